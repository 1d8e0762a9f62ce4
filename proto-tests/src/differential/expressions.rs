//! Random expressions, at least one per operator. They fail on no document and have the same value on both
//! sides.

use bson::{Bson, DateTime, bson};

/// A number of every document that has one.
const N: &str = "$n";

/// Each operator, and an expression with it.
pub(super) fn all() -> Vec<(String, Bson)> {
    let groups = [
        arithmetic(),
        arrays(),
        comparisons(),
        strings(),
        types(),
        dates(),
        objects(),
    ];
    groups
        .into_iter()
        .flatten()
        .filter_map(|expression| {
            let name = expression.as_document()?.keys().next()?.clone();
            Some((name, expression))
        })
        .collect()
}

/// Stands for a field's path in expressions that take any.
const FIELD: &str = "$FIELD";

/// An expression with a field's path in place of [`FIELD`].
pub(super) fn named(expression: &Bson, path: &str) -> Bson {
    match expression {
        Bson::String(text) => Bson::String(text.replace(FIELD.trim_start_matches('$'), path)),
        Bson::Array(values) => values.iter().map(|value| named(value, path)).collect(),
        Bson::Document(document) => {
            let fields = document.iter().map(|(name, value)| (name.clone(), named(value, path)));
            Bson::Document(fields.collect())
        }
        other => other.clone(),
    }
}

/// Expressions to group by: a field path, `$getField`, variables, and operators on the field.
pub(super) fn groups() -> Vec<Bson> {
    vec![
        bson!(FIELD),
        bson!({ "of": FIELD, "type": { "$type": FIELD } }),
        bson!([FIELD, "$k"]),
        bson!({ "$ifNull": [FIELD, "none"] }),
        bson!({ "$cond": { "if": { "$isArray": [FIELD] }, "then": "array", "else": FIELD } }),
        bson!({ "$literal": FIELD }),
        bson!("$$ROOT.FIELD"),
        bson!("$$CURRENT.FIELD"),
        bson!({ "$getField": "FIELD" }),
        bson!({ "$getField": { "field": "FIELD", "input": "$$ROOT" } }),
        bson!({ "$let": { "vars": { "history": FIELD }, "in": ["$$history", "$n"] } }),
        bson!({ "$let": { "vars": { "CURRENT": "$nested" }, "in": "$x" } }),
        bson!({ "$map": { "input": ["$n"], "as": "CURRENT", "in": "$k" } }),
        bson!({ "$map": { "input": [FIELD, "$n"], "in": { "$type": "$$this" } } }),
        bson!({ "$filter": { "input": ["$n", 1], "as": "k", "cond": { "$eq": ["$$k", "$n"] } } }),
        bson!({ "$switch": { "branches": [{ "case": { "$gt": ["$n", 5] }, "then": FIELD }], "default": "none" } }),
        bson!(null),
    ]
}

/// Accumulators that return an array in no defined order. The field is called `set`, and compared as a set.
pub(super) fn gathered() -> Vec<Bson> {
    vec![
        bson!({ "$push": FIELD }),
        bson!({ "$push": { "of": FIELD, "key": "$k", "n": "$n" } }),
        bson!({ "$push": ["$n", FIELD] }),
        bson!({ "$push": "$_id.x" }),
        bson!({ "$push": { "$mergeObjects": [{ "n": "$n" }, { "of": "$nested" }] } }),
        bson!({ "$addToSet": { "$type": FIELD } }),
        bson!({ "$push": { "$size": { "$setUnion": [[FIELD], ["$n"]] } } }),
    ]
}

/// Accumulators that do not depend on the order of a group.
pub(super) fn accumulators() -> Vec<Bson> {
    let by_number = bson!({ "n": 1 });
    vec![
        bson!({ "$sum": N }),
        bson!({ "$avg": N }),
        bson!({ "$min": N }),
        bson!({ "$max": N }),
        bson!({ "$count": {} }),
        // Of equal values: of others the last digits depend on the order that they come in.
        bson!({ "$stdDevPop": 1 }),
        bson!({ "$stdDevSamp": 1 }),
        bson!({ "$top": { "output": N, "sortBy": &by_number } }),
        bson!({ "$bottom": { "output": N, "sortBy": &by_number } }),
        bson!({ "$topN": { "n": 2, "output": N, "sortBy": &by_number } }),
        bson!({ "$bottomN": { "n": 2, "output": N, "sortBy": &by_number } }),
        bson!({ "$maxN": { "n": 2, "input": N } }),
        bson!({ "$minN": { "n": 2, "input": N } }),
        bson!({ "$mergeObjects": { "same": 1 } }),
        bson!({ "$addToSet": 1 }),
        bson!({ "$first": "all" }),
        bson!({ "$last": "all" }),
        bson!({ "$firstN": { "n": 1, "input": "all" } }),
        bson!({ "$lastN": { "n": 1, "input": "all" } }),
        bson!({ "$accumulator": {
            "init": "function() { return 0; }", "accumulate": "function(state, n) { return state + n; }", "accumulateArgs": [N],
            "merge": "function(one, other) { return one + other; }", "lang": "js",
        } }),
    ]
}

fn arithmetic() -> Vec<Bson> {
    let mut made: Vec<Bson> = [
        "$abs", "$ceil", "$exp", "$floor", "$ln", "$log10", "$sqrt", "$sin", "$cos", "$tan", "$atan",
    ]
    .into_iter()
    .chain([
        "$asinh",
        "$sinh",
        "$cosh",
        "$tanh",
        "$degreesToRadians",
        "$radiansToDegrees",
    ])
    .map(|name| bson!({ name: { "$mod": [{ "$add": [N, 1] }, 5] } }))
    .collect();
    // The logarithm of zero fails.
    made.retain(|one| {
        one.as_document()
            .is_some_and(|one| !one.contains_key("$ln") && !one.contains_key("$log10"))
    });
    made.extend([
        bson!({ "$ln": 2 }),
        bson!({ "$log10": 100 }),
        bson!({ "$acos": 1 }),
        bson!({ "$acosh": 1 }),
        bson!({ "$asin": 1 }),
        bson!({ "$atanh": 0 }),
        bson!({ "$atan2": [N, 2] }),
        bson!({ "$add": [N, 1] }),
        bson!({ "$divide": [N, 2] }),
        bson!({ "$log": [8, 2] }),
        bson!({ "$mod": [N, 3] }),
        bson!({ "$multiply": [N, 2] }),
        bson!({ "$pow": [2, { "$mod": [N, 5] }] }),
        bson!({ "$round": [{ "$divide": [N, 3] }, 1] }),
        bson!({ "$subtract": [N, 1] }),
        bson!({ "$trunc": [{ "$divide": [N, 3] }, 1] }),
        bson!({ "$sum": [N, "$count"] }),
        bson!({ "$avg": [N, 1] }),
        bson!({ "$max": [N, 3] }),
        bson!({ "$min": [N, 3] }),
        bson!({ "$stdDevPop": [N, 3] }),
        bson!({ "$stdDevSamp": [N, 3] }),
        bson!({ "$binarySize": "abc" }),
        bson!({ "$bsonSize": { "x": N } }),
    ]);
    made
}

fn arrays() -> Vec<Bson> {
    let list = bson!({ "$cond": [{ "$isArray": "$tags" }, "$tags", [1, N]] });
    let pairs = bson!([["a", N], ["b", 1]]);
    vec![
        bson!({ "$arrayElemAt": [&list, 0] }),
        bson!({ "$arrayToObject": { "$literal": &pairs } }),
        bson!({ "$concatArrays": [&list, [N]] }),
        bson!({ "$filter": { "input": &list, "as": "one", "cond": { "$gte": ["$$one", 1] } } }),
        bson!({ "$first": &list }),
        bson!({ "$last": &list }),
        bson!({ "$firstN": { "n": 2, "input": &list } }),
        bson!({ "$lastN": { "n": 2, "input": &list } }),
        bson!({ "$maxN": { "n": 2, "input": &list } }),
        bson!({ "$minN": { "n": 2, "input": &list } }),
        bson!({ "$in": [N, &list] }),
        bson!({ "$indexOfArray": [&list, N] }),
        bson!({ "$isArray": "$tags" }),
        bson!({ "$map": { "input": &list, "as": "one", "in": ["$$one"] } }),
        bson!({ "$range": [0, { "$mod": [N, 4] }] }),
        bson!({ "$reduce": { "input": &list, "initialValue": 0, "in": { "$add": ["$$value", 1] } } }),
        bson!({ "$reverseArray": &list }),
        bson!({ "$size": &list }),
        bson!({ "$slice": [&list, 1] }),
        bson!({ "$sortArray": { "input": [N, 3, 1], "sortBy": 1 } }),
        bson!({ "$zip": { "inputs": [&list, [N]] } }),
        bson!({ "$allElementsTrue": [[N, "$qty"]] }),
        bson!({ "$anyElementTrue": [[N, "$qty"]] }),
        bson!({ "$setEquals": [[N], [1]] }),
        bson!({ "$setIsSubset": [[N], [1, 2]] }),
        bson!({ "$size": { "$setDifference": [[N, 1], [1]] } }),
        bson!({ "$setDifference": [[N], [1]] }),
        bson!({ "$setIntersection": [[N], [1, N]] }),
        bson!({ "$setUnion": [[N], [N]] }),
    ]
}

fn comparisons() -> Vec<Bson> {
    vec![
        bson!({ "$and": [N, "$qty"] }),
        bson!({ "$or": [false, "$qty"] }),
        bson!({ "$not": ["$qty"] }),
        bson!({ "$cmp": ["$qty", "$count"] }),
        bson!({ "$eq": ["$qty", "$count"] }),
        bson!({ "$ne": ["$k", 1] }),
        bson!({ "$gt": ["$qty", N] }),
        bson!({ "$gte": ["$qty", N] }),
        bson!({ "$lt": ["$qty", N] }),
        bson!({ "$lte": ["$qty", N] }),
        bson!({ "$cond": { "if": "$qty", "then": N, "else": "$$REMOVE" } }),
        bson!({ "$ifNull": ["$qty", "$count", "none"] }),
        bson!({ "$switch": { "branches": [{ "case": { "$eq": [N, 1] }, "then": "one" }], "default": "more" } }),
        bson!({ "$let": { "vars": { "x": N }, "in": { "$add": ["$$x", 1] } } }),
        bson!({ "$literal": "$n" }),
        bson!({ "$lt": [{ "$rand": {} }, 1] }),
        bson!({ "$function": { "body": "function(n) { return n + 1; }", "args": [N], "lang": "js" } }),
    ]
}

fn strings() -> Vec<Bson> {
    let text = bson!({ "$cond": [{ "$eq": [{ "$type": "$qty" }, "string"] }, "$qty", "abcABC"] });
    vec![
        bson!({ "$concat": [&text, "-"] }),
        bson!({ "$indexOfBytes": [&text, "b"] }),
        bson!({ "$indexOfCP": [&text, "b"] }),
        bson!({ "$ltrim": { "input": &text, "chars": "a" } }),
        bson!({ "$rtrim": { "input": &text, "chars": "C" } }),
        bson!({ "$trim": { "input": &text } }),
        bson!({ "$regexFind": { "input": &text, "regex": "b" } }),
        bson!({ "$regexFindAll": { "input": &text, "regex": "b", "options": "i" } }),
        bson!({ "$regexMatch": { "input": &text, "regex": "^a" } }),
        bson!({ "$replaceOne": { "input": &text, "find": "b", "replacement": "x" } }),
        bson!({ "$replaceAll": { "input": &text, "find": "b", "replacement": "x" } }),
        bson!({ "$split": [&text, "b"] }),
        bson!({ "$strLenBytes": &text }),
        bson!({ "$strLenCP": &text }),
        bson!({ "$strcasecmp": [&text, "ABC"] }),
        bson!({ "$substr": [&text, 0, 1] }),
        bson!({ "$substrBytes": [&text, 0, 1] }),
        bson!({ "$substrCP": [&text, 0, 1] }),
        bson!({ "$toLower": &text }),
        bson!({ "$toUpper": &text }),
    ]
}

fn types() -> Vec<Bson> {
    vec![
        bson!({ "$convert": { "input": "$qty", "to": "string", "onError": "none", "onNull": "null" } }),
        bson!({ "$isNumber": "$qty" }),
        bson!({ "$toBool": N }),
        bson!({ "$toDate": { "$toLong": N } }),
        bson!({ "$toDecimal": N }),
        bson!({ "$toDouble": N }),
        bson!({ "$toInt": N }),
        bson!({ "$toLong": N }),
        bson!({ "$toObjectId": "abababababababababababab" }),
        bson!({ "$toString": N }),
        bson!({ "$type": "$k" }),
    ]
}

fn dates() -> Vec<Bson> {
    let date = Bson::DateTime(DateTime::from_millis(1_698_335_223_434));
    let parts: Vec<Bson> = [
        "$dayOfMonth",
        "$dayOfWeek",
        "$dayOfYear",
        "$hour",
        "$isoDayOfWeek",
        "$isoWeek",
        "$isoWeekYear",
    ]
    .into_iter()
    .chain(["$millisecond", "$minute", "$month", "$second", "$week", "$year"])
    .map(|name| bson!({ name: &date }))
    .collect();
    let mut made = parts;
    made.extend([
        bson!({ "$dateAdd": { "startDate": &date, "unit": "day", "amount": N } }),
        bson!({ "$dateSubtract": { "startDate": &date, "unit": "day", "amount": N } }),
        bson!({ "$dateDiff": { "startDate": &date, "endDate": &date, "unit": "hour" } }),
        bson!({ "$dateFromParts": { "year": 2023, "month": N } }),
        bson!({ "$dateFromString": { "dateString": "2023-01-01" } }),
        bson!({ "$dateToParts": { "date": &date } }),
        bson!({ "$dateToString": { "date": &date, "format": "%Y" } }),
        bson!({ "$dateTrunc": { "date": &date, "unit": "hour" } }),
        bson!({ "$tsSecond": "$nowhere" }),
        bson!({ "$tsIncrement": "$nowhere" }),
    ]);
    made
}

fn objects() -> Vec<Bson> {
    vec![
        bson!({ "$getField": "qty" }),
        bson!({ "$setField": { "field": "a.b", "input": { "x": N }, "value": 1 } }),
        bson!({ "$unsetField": { "field": "x", "input": { "x": N } } }),
        bson!({ "$mergeObjects": [{ "x": N }, { "y": 1 }] }),
        bson!({ "$objectToArray": { "x": N } }),
    ]
}

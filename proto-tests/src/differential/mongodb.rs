//! The operators, stages and options of MongoDB 6.0. Each is generated, or excluded with a reason.

use super::Coverage;

/// Query operators, but those of text and of geometry that need an index.
const FILTERS: &str = "$eq $gt $gte $in $lt $lte $ne $nin $and $not $nor $or $exists $type $expr $jsonSchema $mod $regex $options \
    $text $where $geoIntersects $geoWithin $near $nearSphere $all $elemMatch $size $bitsAllClear $bitsAllSet $bitsAnyClear \
    $bitsAnySet $comment $sampleRate $meta $slice";
/// Update operators and modifiers.
const UPDATES: &str = "$currentDate $inc $min $max $mul $rename $set $setOnInsert $unset $addToSet $pop $pull $push $pullAll $each \
    $position $bit $sort $slice";
/// Aggregation stages.
const STAGES: &str = "$addFields $bucket $bucketAuto $changeStream $collStats $count $currentOp $densify $documents $facet $fill \
    $geoNear $graphLookup $group $indexStats $limit $listLocalSessions $listSessions $lookup $match $merge $out $planCacheStats \
    $project $redact $replaceRoot $replaceWith $sample $set $setWindowFields $skip $sort $sortByCount $unionWith $unset $unwind";
/// Expression operators, accumulators and window functions.
const EXPRESSIONS: &str = "$abs $accumulator $acos $acosh $add $addToSet $allElementsTrue $and $anyElementTrue $arrayElemAt \
    $arrayToObject $asin $asinh $atan $atan2 $atanh $avg $binarySize $bottom $bottomN $bsonSize $ceil $cmp $concat $concatArrays \
    $cond $convert $cos $cosh $count $covariancePop $covarianceSamp $dateAdd $dateDiff $dateFromParts $dateFromString \
    $dateSubtract $dateToParts $dateToString $dateTrunc $dayOfMonth $dayOfWeek $dayOfYear $degreesToRadians $denseRank \
    $derivative $divide $documentNumber $eq $exp $expMovingAvg $filter $first $firstN $floor $function $getField $gt $gte $hour \
    $ifNull $in $indexOfArray $indexOfBytes $indexOfCP $integral $isArray $isNumber $isoDayOfWeek $isoWeek $isoWeekYear $last \
    $lastN $let $linearFill $literal $ln $locf $log $log10 $lt $lte $ltrim $map $max $maxN $mergeObjects $millisecond $min $minN \
    $minute $mod $month $multiply $ne $not $objectToArray $or $pow $push $radiansToDegrees $rand $range $rank $reduce $regexFind \
    $regexFindAll $regexMatch $replaceAll $replaceOne $reverseArray $round $rtrim $sampleRate $second $setDifference $setEquals \
    $setField $setIntersection $setIsSubset $setUnion $shift $sin $sinh $size $slice $sortArray $split $sqrt $stdDevPop \
    $stdDevSamp $strLenBytes $strLenCP $strcasecmp $substr $substrBytes $substrCP $subtract $sum $switch $tan $tanh $toBool \
    $toDate $toDecimal $toDouble $toInt $toLong $toLower $toObjectId $toString $toUpper $top $topN $trim $trunc $tsIncrement \
    $tsSecond $type $unsetField $week $year $zip";
/// Variables of the system.
const VARIABLES: &str = "$$ROOT $$REMOVE $$NOW $$KEEP $$DESCEND $$PRUNE";

/// Of which options there is a table.
const SUPPORT: &str = include_str!("../../../docs/support.md");

/// What is not generated, and why: operators, `command.option`, or `command.*`.
const EXCLUDED: &[(&str, &str)] = &[
    (
        "every command.*",
        "by sessions, topologies and users: tests of their own",
    ),
    (
        "update.updates.sort",
        "of MongoDB 8.0, a mongod of which is not at hand: tests/writes/updates/sorted.rs compares it with findAndModify",
    ),
    ("getMore.*", "sent for the cursors of the others"),
    ("killCursors.*", "sent for the cursors of the others"),
    (
        "explain.*",
        "returns plans, which differ: tests/documents/support_matrix",
    ),
    (
        "collMod.*",
        "of views; of a shaped collection refused but for what changes nothing: tests/documents/support_matrix",
    ),
    (
        "renameCollection.*",
        "the collection has another name then: tests/documents/support_matrix and tests/collections/definitions",
    ),
    ("collStats.*", "sizes: tests/documents/support_matrix"),
    ("dataSize.*", "sizes: tests/documents/support_matrix"),
    (
        "validate.*",
        "returns facts of the stored layout: tests/documents/support_matrix",
    ),
    (
        "compact.*",
        "changes nothing that is seen: tests/documents/support_matrix",
    ),
    (
        "planCacheClear.*",
        "changes nothing that is seen: tests/documents/support_matrix",
    ),
    (
        "listCollections.*",
        "tests/documents/support_matrix and tests/collections/definitions",
    ),
    (
        "listIndexes.*",
        "sent plainly; options change its form: tests/documents/support_matrix",
    ),
    ("dbStats.*", "sizes: tests/documents/support_matrix"),
    ("hello.*", "relayed"),
    (
        "create.*",
        "options are refused or change nothing: tests/documents/support_matrix",
    ),
    ("drop.comment", "tests/documents/support_matrix"),
    ("dropIndexes.collectionUUID", "differs on both sides"),
    (
        "createIndexes.*",
        "options of indexes are refused, but for those that are generated: tests/documents/support_matrix",
    ),
    (
        "delete.bypassDocumentValidation",
        "changes nothing: tests/documents/support_matrix",
    ),
    ("find.tailable", "a mistake that is generated"),
    ("find.oplogReplay", "changes nothing: tests/documents/support_matrix"),
    ("find.readOnce", "changes nothing: tests/documents/support_matrix"),
    ("find.term", "internal to servers"),
    ("find.$_requestResumeToken", "internal to servers"),
    ("find.$_resumeAfter", "internal to servers"),
    ("find.encryptionInformation", "internal to drivers"),
    ("aggregate.explain", "returns plans, which differ"),
    ("aggregate.collation", "generated where a pipeline reaches others"),
    ("*.collectionUUID", "differs on both sides"),
    ("*.stmtId", "drivers count for themselves: tests/exactly_once"),
    ("*.stmtIds", "sent where a part of a command is refused"),
    ("$geoNear", "needs an index that is refused"),
    ("$planCacheStats", "returns facts of the stored layout"),
    ("$covariancePop", "a window function like $sum"),
    ("$covarianceSamp", "a window function like $sum"),
    ("$derivative", "a window function like $sum"),
    ("$integral", "a window function like $sum"),
];

/// The names of MongoDB's commands, options and operators, as in [`command_names`](super::command_names).
#[must_use]
pub fn names() -> Vec<String> {
    let operators = [FILTERS, UPDATES, STAGES, EXPRESSIONS, VARIABLES];
    let operators = operators.into_iter().flat_map(str::split_whitespace).map(str::to_owned);
    operators.chain(options()).collect()
}

/// `command.option` of each row of the table of commands.
fn options() -> Vec<String> {
    let mut options = Vec::new();
    let mut command = "";
    for line in SUPPORT.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            command = heading.split('`').nth(1).unwrap_or_default();
        } else if line.starts_with("### ") {
            // Stages, which are listed here.
            command = "";
        } else if line.starts_with("| `") && !command.is_empty() {
            let names = line.split('|').nth(1).unwrap_or_default().split('`').skip(1).step_by(2);
            options.extend(names.map(|name| format!("{command}.{name}")));
        }
    }
    options
}

fn is_excluded(name: &str) -> bool {
    EXCLUDED.iter().any(|(excluded, _)| match excluded.split_once('*') {
        Some((before, "")) => name.starts_with(before),
        Some(("", after)) => name.ends_with(after),
        _ => name == *excluded,
    })
}

/// What MongoDB has, no run has generated, and no reason is given for.
#[must_use]
pub fn not_generated(coverage: &Coverage) -> Vec<String> {
    let names = names().into_iter();
    names
        .filter(|name| !coverage.has_name(name) && !is_excluded(name))
        .collect()
}

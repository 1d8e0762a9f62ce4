//! The forms of a projection that `find` has and `$project` has not, as stages.
//!
//! * `$slice` becomes the expression of that name, for arrays only, as `find` has it.
//! * `$elemMatch` is matched by mongod itself: each element is wrapped as an array of its own and asked the client's own
//!   condition, in a `$lookup` on documents made of the array. So the first that matches is found exactly as `find` would.
//!
//! The positional operator is not made: which element it means depends on how the filter was matched.

use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use crate::command::document::{array_of, as_flag, as_whole_number, first_field, put, single};

/// The variable that carries an array into its `$lookup`.
const ELEMENTS: &str = "mongoshape_elements";
/// The field that an element is wrapped in.
const ELEMENT: &str = "element";

/// One field of a projection.
enum Form<'a> {
    /// What `$project` has too.
    Plain(RawBsonRef<'a>),
    /// `{$slice: count}`, or `{$slice: [skip, count]}`.
    Slice(Vec<i32>),
    /// `{$elemMatch: condition}`.
    ElementMatch(&'a RawDocument),
}

/// The stages that do what a `find`'s projection does.
///
/// # Errors
/// What in it cannot be done, for a message.
pub(super) fn stages(projection: &RawDocument) -> Result<Vec<RawDocumentBuf>, &'static str> {
    let mut fields = Vec::new();
    for (name, value) in projection.iter().flatten() {
        fields.push((name.as_str(), form(name.as_str(), value)?));
    }
    if fields.iter().all(|(_, form)| matches!(form, Form::Plain(_))) {
        return Ok(vec![single("$project", projection)]);
    }
    let inclusion = includes(&fields);
    let mut stages = Vec::new();
    let mut rest = RawDocumentBuf::new();
    for (name, form) in &fields {
        match form {
            Form::Plain(value) => put(&mut rest, name, *value),
            Form::Slice(arguments) => stages.push(slice(name, arguments)),
            Form::ElementMatch(condition) => stages.extend(element_match(name, condition)),
        }
        if inclusion && !matches!(form, Form::Plain(_)) {
            put(&mut rest, name, true);
        }
    }
    if !rest.is_empty() {
        stages.push(single("$project", rest));
    }
    Ok(stages)
}

/// Whether only the named fields are answered: as any plain field says; if there is none, as `_id` says; if that is not
/// there or out, then not beside a `$slice`. Found out on mongod 6.0.5.
fn includes(fields: &[(&str, Form<'_>)]) -> bool {
    let plain = |wanted: fn(&str) -> bool| {
        fields.iter().find_map(|(name, form)| match form {
            Form::Plain(value) if wanted(name) => Some(as_flag(*value).unwrap_or(true)),
            _ => None,
        })
    };
    plain(|name| name != "_id").unwrap_or_else(|| {
        plain(|name| name == "_id") == Some(true) || !fields.iter().any(|(_, form)| matches!(form, Form::Slice(_)))
    })
}

fn form<'a>(name: &str, value: RawBsonRef<'a>) -> Result<Form<'a>, &'static str> {
    if name.ends_with(".$") {
        return Err("the positional operator ($)");
    }
    let operator = value.as_document().and_then(first_field);
    let form = match operator {
        Some(("$meta", _)) => return Err("$meta"),
        Some(("$elemMatch", RawBsonRef::Document(condition))) => Form::ElementMatch(condition),
        Some(("$slice", argument)) => match slice_arguments(argument)? {
            Some(arguments) => Form::Slice(arguments),
            None => Form::Plain(value),
        },
        _ => Form::Plain(value),
    };
    if !matches!(form, Form::Plain(_)) && name.contains('.') {
        return Err("$slice or $elemMatch on a field inside another");
    }
    Ok(form)
}

/// The numbers of a `$slice`; `None` for the expression of that name, which begins with an array.
fn slice_arguments(argument: RawBsonRef<'_>) -> Result<Option<Vec<i32>>, &'static str> {
    // Beyond an int32 the slice is as good as unbounded: no array has so many elements.
    let number = |value| as_whole_number(value).map(|number| i32::try_from(number).unwrap_or(clamped(number)));
    let RawBsonRef::Array(array) = argument else {
        return number(argument)
            .map(|count| Some(vec![count]))
            .ok_or("a $slice by something that is no number");
    };
    let numbers: Option<Vec<i32>> = array.into_iter().map(|value| number(value.ok()?)).collect();
    match numbers {
        Some(numbers) if matches!(numbers.as_slice(), [_, count] if *count > 0) => Ok(Some(numbers)),
        Some(_) => Err("a $slice of that form"),
        None => Ok(None),
    }
}

fn clamped(number: i64) -> i32 {
    if number < 0 {
        i32::MIN.saturating_add(1)
    } else {
        i32::MAX
    }
}

/// What is no array is left as it is.
fn slice(name: &str, arguments: &[i32]) -> RawDocumentBuf {
    let path = format!("${name}");
    // The expression refuses to take none.
    let sliced = if arguments == [0] {
        RawBson::Array(RawArrayBuf::new())
    } else {
        let numbers = arguments.iter().map(|number| RawBson::Int32(*number));
        let values = std::iter::once(RawBson::String(path.clone())).chain(numbers);
        RawBson::Document(single("$slice", values.collect::<RawArrayBuf>()))
    };
    single(
        "$set",
        single(name, if_array(&path, sliced, RawBson::String(path.clone()))),
    )
}

fn element_match(name: &str, condition: &RawDocument) -> [RawDocumentBuf; 2] {
    let path = format!("${name}");
    let mut map = single("input", format!("$${ELEMENTS}"));
    map.append(
        cstr!("in"),
        single(
            ELEMENT,
            [RawBson::String("$$this".to_owned())]
                .into_iter()
                .collect::<RawArrayBuf>(),
        ),
    );
    let matching = [
        single("$documents", single("$map", map)),
        single("$match", single(ELEMENT, single("$elemMatch", condition))),
        single("$limit", 1),
    ];
    let mut lookup = single(
        "let",
        single(
            ELEMENTS,
            if_array(&path, RawBson::String(path.clone()), RawBson::Array(RawArrayBuf::new())),
        ),
    );
    lookup.append(cstr!("pipeline"), array_of(&matching));
    lookup.append(cstr!("as"), name);
    // One wrapped element, or none, and then no field.
    let first = single("$first", format!("{path}.{ELEMENT}"));
    let branches: RawArrayBuf = [RawBson::Document(first), RawBson::String("$$REMOVE".to_owned())]
        .into_iter()
        .collect();
    [
        single("$lookup", lookup),
        single("$set", single(name, single("$ifNull", branches))),
    ]
}

fn if_array(path: &str, then: RawBson, otherwise: RawBson) -> RawDocumentBuf {
    let branches: RawArrayBuf = [RawBson::Document(single("$isArray", path)), then, otherwise]
        .into_iter()
        .collect();
    single("$cond", branches)
}

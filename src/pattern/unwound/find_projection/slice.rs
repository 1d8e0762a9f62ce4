//! `$slice` of `find`: a value that is not an array is unchanged, and a path continues into the
//! documents of an array, but not into arrays within it.

use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocumentBuf};

use crate::command::document::{as_whole_number, put, single};

/// The most steps of a path. Each step adds about ten levels to the expression, and mongod accepts
/// 200.
const MAX_STEPS: usize = 10;

/// The numbers of a `$slice`. `None` for the expression of that name, which begins with an array.
///
/// # Errors
/// A form that is not supported, for an error message.
pub(super) fn arguments(argument: RawBsonRef<'_>) -> Result<Option<Vec<i32>>, &'static str> {
    let RawBsonRef::Array(array) = argument else {
        return number(argument)?
            .map(|count| Some(vec![count]))
            .ok_or("a $slice by a value that is not a number");
    };
    let mut numbers = Vec::new();
    for value in array.into_iter().flatten() {
        match number(value)? {
            Some(number) => numbers.push(number),
            None => return Ok(None),
        }
    }
    match numbers.as_slice() {
        [_, count] if *count > 0 => Ok(Some(numbers)),
        _ => Err("a $slice of this form"),
    }
}

/// The number of a `$slice`. A number beyond int32 is replaced by the nearest int32, because no
/// array has so many elements.
fn number(value: RawBsonRef<'_>) -> Result<Option<i32>, &'static str> {
    if let RawBsonRef::Decimal128(number) = value
        && !number
            .to_string()
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'-')
    {
        // mongod rounds it, but truncates other numbers.
        return Err("a $slice by a decimal that is not a whole number");
    }
    Ok(as_whole_number(value).map(|number| {
        let nearest = if number < 0 { -i32::MAX } else { i32::MAX };
        i32::try_from(number).map_or(nearest, |number| number.max(-i32::MAX))
    }))
}

/// The stage that slices at that path.
///
/// # Errors
/// The path is too long, for an error message.
pub(super) fn stage(path: &str, arguments: &[i32]) -> Result<RawDocumentBuf, &'static str> {
    let steps: Vec<&str> = path.split('.').collect();
    match steps.split_first() {
        Some((root, steps)) if steps.len() < MAX_STEPS => {
            let value = RawBson::String(format!("${root}"));
            Ok(single("$set", single(root, at(value, steps, arguments))))
        }
        _ => Err("a $slice of a path this deep"),
    }
}

/// The expression for a value in which the value at the path is sliced.
fn at(value: RawBson, path: &[&str], arguments: &[i32]) -> RawBson {
    let is_array = || RawBson::Document(single("$isArray", "$$value"));
    let whole = || RawBson::String("$$value".to_owned());
    let sliced = match path.split_first() {
        None => condition([is_array(), slice(arguments), whole()]),
        Some((step, rest)) => {
            // An earlier `$project` leaves missing values in arrays.
            let is_there = [
                RawBson::Document(single("$type", "$$this")),
                RawBson::String("missing".to_owned()),
            ];
            let mut filter = single("input", "$$value");
            put(
                &mut filter,
                "cond",
                single("$ne", is_there.into_iter().collect::<RawArrayBuf>()),
            );
            let mut map = single("input", single("$filter", filter));
            put(&mut map, "as", "element");
            put(&mut map, "in", in_document("$$element", step, rest, arguments));
            let elements = RawBson::Document(single("$map", map));
            let otherwise = in_document("$$value", step, rest, arguments);
            condition([is_array(), elements, otherwise])
        }
    };
    let mut binding = single("vars", single("value", value));
    put(&mut binding, "in", sliced);
    RawBson::Document(single("$let", binding))
}

/// The expression for a variable in which the value at the path is sliced, if the variable is a
/// document. Any other value stays as it is.
fn in_document(variable: &str, step: &str, rest: &[&str], arguments: &[i32]) -> RawBson {
    let types = [
        RawBson::Document(single("$type", variable)),
        RawBson::String("object".to_owned()),
    ];
    let is_document = single("$eq", types.into_iter().collect::<RawArrayBuf>());
    let name = || single("$literal", step);
    let mut get = single("field", name());
    put(&mut get, "input", variable);
    let inner = at(RawBson::Document(single("$getField", get)), rest, arguments);
    let mut set = single("field", name());
    put(&mut set, "input", variable);
    put(&mut set, "value", inner);
    condition([
        RawBson::Document(is_document),
        RawBson::Document(single("$setField", set)),
        RawBson::String(variable.to_owned()),
    ])
}

fn slice(arguments: &[i32]) -> RawBson {
    // The expression refuses a count of 0.
    if arguments == [0] {
        return RawBson::Array(RawArrayBuf::new());
    }
    let numbers = arguments.iter().map(|number| RawBson::Int32(*number));
    let values = std::iter::once(RawBson::String("$$value".to_owned())).chain(numbers);
    RawBson::Document(single("$slice", values.collect::<RawArrayBuf>()))
}

fn condition(branches: [RawBson; 3]) -> RawBson {
    RawBson::Document(single("$cond", branches.into_iter().collect::<RawArrayBuf>()))
}

//! `$slice` of `find`: a value that is not an array is unchanged, and a path continues into the
//! documents of an array, but not into arrays within it.

use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocumentBuf};

use crate::command::document::{as_whole_number, put, single};
use crate::pattern::exact_match;

/// The most steps of a path. Each step adds eleven levels to the expression, and mongod accepts
/// 200.
const MAX_STEPS: usize = 10;

/// The variable with the value that is sliced.
const VALUE: &str = "$$value";
/// The variable with the list of documents in which a path continues.
const ELEMENTS: &str = "$$elements";
/// The variable with one of them.
const ELEMENT: &str = "$$element";

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

/// The expression for a value in which the value at the path is sliced. Each step contains the rest of the
/// path once: so its size is proportional to that of the path.
fn at(value: RawBson, path: &[&str], arguments: &[i32]) -> RawBson {
    let sliced = match path.split_first() {
        None => condition([is_array(VALUE), slice(arguments), variable(VALUE)]),
        Some((step, rest)) => in_documents(step, rest, arguments),
    };
    bind("value", value, sliced)
}

/// The expression for `$$value` in which the value at the path is sliced: in a document, or in each document
/// of an array. Any other value stays as it is.
fn in_documents(step: &str, rest: &[&str], arguments: &[i32]) -> RawBson {
    // An earlier `$project` leaves missing values in arrays.
    let is_there = call("$ne", [type_of("$$this"), RawBson::String("missing".to_owned())]);
    let mut filter = single("input", VALUE);
    put(&mut filter, "cond", is_there);
    let elements = RawBson::Document(single("$filter", filter));
    let one: RawArrayBuf = [variable(VALUE)].into_iter().collect();
    let mut map = single("input", condition([is_array(VALUE), elements, RawBson::Array(one)]));
    put(&mut map, "as", "element");
    put(&mut map, "in", in_document(step, rest, arguments));
    // A missing value is null in the list of one value, so only a document is taken out of it.
    let first = RawBson::Document(single("$first", ELEMENTS));
    let of_one = condition([is_document(VALUE), first, variable(VALUE)]);
    let sliced = condition([is_array(VALUE), variable(ELEMENTS), of_one]);
    bind("elements", RawBson::Document(single("$map", map)), sliced)
}

/// The expression for `$$element` in which the value at the path is sliced, if it is a document. Any other
/// value stays as it is.
fn in_document(step: &str, rest: &[&str], arguments: &[i32]) -> RawBson {
    let field = || single("$literal", step);
    let mut get = single("field", field());
    put(&mut get, "input", ELEMENT);
    let inner = at(RawBson::Document(single("$getField", get)), rest, arguments);
    let mut set = single("field", field());
    put(&mut set, "input", ELEMENT);
    put(&mut set, "value", inner);
    let set = RawBson::Document(single("$setField", set));
    condition([is_document(ELEMENT), set, variable(ELEMENT)])
}

fn slice(arguments: &[i32]) -> RawBson {
    // The expression refuses a count of 0.
    if arguments == [0] {
        return RawBson::Array(RawArrayBuf::new());
    }
    let numbers = arguments.iter().map(|number| RawBson::Int32(*number));
    let values = std::iter::once(variable(VALUE)).chain(numbers);
    RawBson::Document(single("$slice", values.collect::<RawArrayBuf>()))
}

fn variable(name: &str) -> RawBson {
    RawBson::String(name.to_owned())
}

fn is_array(variable: &str) -> RawBson {
    RawBson::Document(single("$isArray", variable))
}

fn is_document(variable: &str) -> RawBson {
    call("$eq", [type_of(variable), RawBson::String("object".to_owned())])
}

fn type_of(variable: &str) -> RawBson {
    RawBson::Document(single("$type", variable))
}

/// The expression `of_variable`, in which a variable has that value.
fn bind(name: &str, value: RawBson, of_variable: RawBson) -> RawBson {
    let mut binding = single("vars", single(name, value));
    put(&mut binding, "in", of_variable);
    RawBson::Document(single("$let", binding))
}

fn condition(branches: [RawBson; 3]) -> RawBson {
    call("$cond", branches)
}

fn call<const N: usize>(operator: &str, arguments: [RawBson; N]) -> RawBson {
    RawBson::Document(exact_match::call(operator, arguments))
}

//! The condition that a value is unchanged, in type and in every bit.
//!
//! mongod's `$eq` treats 1 and 1.0 as equal, and under a collation "a" and "A". So in addition to
//! being equal, numbers must have the same type, and strings the same bytes. A value outside of a long array
//! has its own conditions, and a long array has one.

mod long_array;

use std::collections::HashSet;

use bson::raw::{RawArray, RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};

use crate::command::document::{array_of, put, single, type_name};
use crate::pattern::unsupported::Unsupported;

/// The variable for the compared value.
const VALUE: &str = "$$is";
/// The variable for the value that it must have.
const EXPECTED: &str = "$$was";
/// The deepest nesting of a number or string inside an item. Each level uses some of the 200 levels
/// that a command may have.
const MAX_DEPTH: usize = 50;

/// The expression that `is` has exactly this value. With `by_bytes` strings are compared by bytes,
/// because a collation may treat different strings as equal.
///
/// # Errors
/// The part of the value that cannot be compared, for an error message.
pub fn same(is: RawBson, value: RawBsonRef<'_>, by_bytes: bool) -> Result<RawDocumentBuf, Unsupported> {
    let mut same = Same {
        by_bytes,
        types: RawArrayBuf::new(),
        names: RawArrayBuf::new(),
        more: Vec::new(),
        has_long_array: false,
    };
    same.look_at(Part::Whole, value, 0)?;
    let mut variables = single("is", is);
    let expected: RawBson = if same.has_long_array {
        put(&mut variables, "was", literal(value));
        EXPECTED.into()
    } else {
        literal(value).into()
    };
    let equal = call("$eq", [VALUE.into(), expected]);
    let mut of_types = RawArrayBuf::new();
    of_types.push(&same.types);
    of_types.push(&same.names);
    let mut all = vec![single("$eq", &of_types)];
    all.append(&mut same.more);
    // The conditions after the equality hold only for an equal value, and may fail on others.
    let all = single("$and", array_of(&all));
    let choice = call("$cond", [equal.into(), all.into(), false.into()]);
    let mut bound = single("vars", &variables);
    put(&mut bound, "in", &choice);
    Ok(single("$let", &bound))
}

/// Whether a value contains text, so that other values may be equal to it under a collation.
#[must_use]
pub fn holds_text(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::String(_) | RawBsonRef::Symbol(_) | RawBsonRef::JavaScriptCode(_) => true,
        RawBsonRef::Document(document) => document.iter().flatten().any(|(_, value)| holds_text(value)),
        RawBsonRef::Array(array) => array.into_iter().flatten().any(holds_text),
        _ => false,
    }
}

/// A part of the compared value.
#[derive(Clone, Copy)]
enum Part<'a> {
    Whole,
    Field(&'a Part<'a>, &'a str),
    Element(&'a Part<'a>, usize),
}

impl Part<'_> {
    /// The expression for this part of a variable.
    fn of(self, variable: &str) -> RawBson {
        match self {
            Self::Whole => variable.into(),
            Self::Field(parent, name) => {
                let is_plain = !name.is_empty() && !name.contains(['.', '$', '\0']);
                match parent.of(variable) {
                    RawBson::String(path) if is_plain => RawBson::String(format!("{path}.{name}")),
                    input => {
                        let mut arguments = single("field", single("$literal", name));
                        put(&mut arguments, "input", input);
                        single("$getField", &arguments).into()
                    }
                }
            }
            Self::Element(parent, position) => {
                let position = i64::try_from(position).unwrap_or(i64::MAX);
                call("$arrayElemAt", [parent.of(variable), position.into()]).into()
            }
        }
    }
}

/// The conditions in addition to equality.
struct Same {
    by_bytes: bool,
    /// Expressions for types.
    types: RawArrayBuf,
    /// The types that they must return.
    names: RawArrayBuf,
    more: Vec<RawDocumentBuf>,
    /// Whether a condition contains [`EXPECTED`].
    has_long_array: bool,
}

impl Same {
    fn look_at(&mut self, part: Part<'_>, value: RawBsonRef<'_>, depth: usize) -> Result<(), Unsupported> {
        if depth > MAX_DEPTH {
            return Err(format!(
                "an update, other than by its `_id`, of an item nested more than {MAX_DEPTH} levels deep"
            )
            .into());
        }
        let deeper = depth.saturating_add(1);
        match value {
            RawBsonRef::Document(document) => self.fields(part, document, deeper),
            RawBsonRef::Array(array) => self.elements(part, array, deeper),
            RawBsonRef::Int32(_) | RawBsonRef::Int64(_) => {
                self.has_type(part, value);
                Ok(())
            }
            RawBsonRef::Double(_) | RawBsonRef::Decimal128(_) => {
                self.has_type(part, value);
                // A zero has a sign, and a decimal has an exponent.
                if !matches!(value, RawBsonRef::Double(number) if number != 0.0) {
                    let text = single("$toString", literal(value));
                    let is = single("$toString", part.of(VALUE));
                    self.more.push(call("$eq", [is.into(), text.into()]));
                }
                Ok(())
            }
            RawBsonRef::String(text) | RawBsonRef::Symbol(text) | RawBsonRef::JavaScriptCode(text) => {
                // A symbol is equal to a string.
                self.has_type(part, value);
                if self.by_bytes {
                    self.has_bytes(part, value, text);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn fields(&mut self, part: Part<'_>, document: &RawDocument, depth: usize) -> Result<(), Unsupported> {
        let mut seen = HashSet::new();
        for (name, value) in document.iter().flatten() {
            let name = name.as_str();
            // An expression reads only the first field of a name.
            if !seen.insert(name) {
                continue;
            }
            self.look_at(Part::Field(&part, name), value, depth)?;
        }
        Ok(())
    }

    fn elements(&mut self, part: Part<'_>, array: &RawArray, depth: usize) -> Result<(), Unsupported> {
        // Under a collation, the condition on a long array would not distinguish all texts.
        if !self.by_bytes
            && let Some(levels) = long_array::levels(array)
        {
            let [is, was] = [VALUE, EXPECTED].map(|variable| long_array::bits(part.of(variable), levels));
            self.more.push(call("$eq", [is, was]));
            self.has_long_array = true;
            return Ok(());
        }
        for (position, value) in array.into_iter().flatten().enumerate() {
            self.look_at(Part::Element(&part, position), value, depth)?;
        }
        Ok(())
    }

    /// Adds the condition that a string, a symbol or code has these bytes.
    fn has_bytes(&mut self, part: Part<'_>, value: RawBsonRef<'_>, text: &str) {
        let is = part.of(VALUE);
        let is = match value {
            RawBsonRef::String(_) => is,
            // The operators below accept only strings.
            _ => call("$substrBytes", [is, 0.into(), (-1).into()]).into(),
        };
        let found = call("$indexOfBytes", [is.clone(), single("$literal", text).into()]);
        self.more.push(call("$eq", [found.into(), 0.into()]));
        let length = i64::try_from(text.len()).unwrap_or(i64::MAX);
        self.more
            .push(call("$eq", [single("$strLenBytes", is).into(), length.into()]));
    }

    fn has_type(&mut self, part: Part<'_>, value: RawBsonRef<'_>) {
        self.types.push(single("$type", part.of(VALUE)));
        self.names.push(type_name(value));
    }
}

fn literal(value: RawBsonRef<'_>) -> RawDocumentBuf {
    single("$literal", value)
}

pub(in crate::pattern) fn call<const N: usize>(operator: &str, arguments: [RawBson; N]) -> RawDocumentBuf {
    let arguments: RawArrayBuf = arguments.into_iter().collect();
    single(operator, &arguments)
}

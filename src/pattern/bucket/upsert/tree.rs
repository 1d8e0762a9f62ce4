//! A document that is changed path by path. Unchanged parts keep their bytes.

use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocumentBuf};

use super::UpsertError;
use crate::command::document::put;
use crate::command::error::ErrorCode;
use crate::command::value_text::value_text;

/// The most positions after the end of an array at which an element may be set. mongod fills the gap with
/// null.
const MAX_FILLED: usize = 1000;

/// A value in the document.
#[derive(Clone, Debug)]
pub(super) enum Node {
    /// An unparsed value of any type.
    Whole(RawBson),
    /// A document that a path leads into.
    Document(Vec<(String, Node)>),
    /// An array that a path leads into.
    Array(Vec<Node>),
}

/// A path leads into a value without fields.
#[derive(Debug)]
pub(super) struct Blocked {
    /// The part of the path that cannot exist.
    pub(super) part: String,
    /// The value that cannot have it, as in mongod's messages.
    pub(super) element: String,
}

impl Blocked {
    /// mongod's error for an operator that adds fields.
    pub(super) fn on_creation(self) -> UpsertError {
        let message = format!("Cannot create field '{}' in element {}", self.part, self.element);
        UpsertError::mongod(ErrorCode::PathNotViable, message)
    }
}

impl Node {
    pub(super) fn empty() -> Self {
        Self::Document(Vec::new())
    }

    pub(super) fn of(value: RawBsonRef<'_>) -> Self {
        Self::Whole(value.into())
    }

    /// The value at a path. `None` if it is missing.
    pub(super) fn find(&mut self, parts: &[&str]) -> Result<Option<&mut Self>, Blocked> {
        self.find_named("", parts)
    }

    fn find_named(&mut self, own_name: &str, parts: &[&str]) -> Result<Option<&mut Self>, Blocked> {
        let Some((part, rest)) = parts.split_first() else {
            return Ok(Some(self));
        };
        self.open();
        if self.child_position(part).is_none() {
            return Err(self.blocked(own_name, part));
        }
        match self.child(part) {
            Some(child) => child.find_named(part, rest),
            None => Ok(None),
        }
    }

    /// Sets the value at a path. Creates the documents along the path.
    pub(super) fn set(&mut self, parts: &[&str], value: Self) -> Result<(), UpsertError> {
        self.set_named("", parts, value)
    }

    fn set_named(&mut self, own_name: &str, parts: &[&str], value: Self) -> Result<(), UpsertError> {
        let Some((part, rest)) = parts.split_first() else {
            *self = value;
            return Ok(());
        };
        self.open();
        let Some(position) = self.child_position(part) else {
            return Err(self.blocked(own_name, part).on_creation());
        };
        if self.child(part).is_none() {
            match self {
                Self::Document(fields) => fields.push(((*part).to_owned(), Self::empty())),
                Self::Array(elements) => {
                    if position.saturating_sub(elements.len()) > MAX_FILLED {
                        return Err(UpsertError::unsupported(format!(
                            "an upsert of element {position} of an array"
                        )));
                    }
                    elements.resize(position, Self::Whole(RawBson::Null));
                    elements.push(Self::empty());
                }
                Self::Whole(_) => {}
            }
        }
        match self.child(part) {
            Some(child) => child.set_named(part, rest, value),
            None => Ok(()),
        }
    }

    /// Removes the value at a path. An array element becomes null.
    pub(super) fn remove(&mut self, parts: &[&str]) {
        let Some((last, parents)) = parts.split_last() else {
            return;
        };
        let Ok(Some(parent)) = self.find(parents) else {
            return;
        };
        parent.open();
        if let Self::Document(fields) = parent {
            if let Some(position) = fields.iter().position(|(name, _)| name == last) {
                fields.remove(position);
            }
        } else if let Some(element) = parent.child(last) {
            *element = Self::Whole(RawBson::Null);
        }
    }

    /// The elements, if the value is an array.
    pub(super) fn elements(&mut self) -> Option<&mut Vec<Self>> {
        self.open();
        match self {
            Self::Array(elements) => Some(elements),
            _ => None,
        }
    }

    /// Parses one level of a document or an array.
    fn open(&mut self) {
        let opened = match self {
            Self::Whole(RawBson::Document(document)) => {
                let fields = document.iter().flatten();
                Self::Document(
                    fields
                        .map(|(name, value)| (name.as_str().to_owned(), Self::of(value)))
                        .collect(),
                )
            }
            Self::Whole(RawBson::Array(array)) => Self::Array(array.into_iter().flatten().map(Self::of).collect()),
            _ => return,
        };
        *self = opened;
    }

    /// The position of a child with this name: 0 in a document, the number in an array. `None` if
    /// there cannot be such a child.
    fn child_position(&self, part: &str) -> Option<usize> {
        match self {
            Self::Document(_) => Some(0),
            Self::Array(_) if part.bytes().all(|byte| byte.is_ascii_digit()) => part.parse().ok(),
            _ => None,
        }
    }

    fn child(&mut self, part: &str) -> Option<&mut Self> {
        match self {
            Self::Document(fields) => fields.iter_mut().find(|(name, _)| name == part).map(|(_, value)| value),
            Self::Array(elements) => elements.get_mut(part.parse::<usize>().ok()?),
            Self::Whole(_) => None,
        }
    }

    fn blocked(&self, own_name: &str, part: &str) -> Blocked {
        let value = value_text(self.to_raw().as_raw_bson_ref());
        Blocked {
            part: part.to_owned(),
            element: format!("{{{own_name}: {value}}}"),
        }
    }

    pub(super) fn to_raw(&self) -> RawBson {
        match self {
            Self::Whole(value) => value.clone(),
            Self::Document(fields) => {
                let mut document = RawDocumentBuf::new();
                for (name, value) in fields {
                    put(&mut document, name, value.to_raw());
                }
                RawBson::Document(document)
            }
            Self::Array(elements) => {
                let mut array = RawArrayBuf::new();
                for element in elements {
                    array.push(element.to_raw());
                }
                RawBson::Array(array)
            }
        }
    }

    /// The whole document.
    pub(super) fn into_document(self) -> RawDocumentBuf {
        match self.to_raw() {
            RawBson::Document(document) => document,
            _ => RawDocumentBuf::new(),
        }
    }
}

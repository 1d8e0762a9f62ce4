//! A document that is changed path by path. Unchanged parts keep their bytes.

use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocumentBuf};

use super::UpsertError;
use crate::command::document::put;
use crate::command::error::ErrorCode;
use crate::command::value_text::value_text;

/// How far behind its end an array may be set; mongod fills what is between with null.
const MAX_FILLED: usize = 1000;

/// A value in the document.
#[derive(Clone, Debug)]
pub(super) enum Node {
    /// As it came, of any type.
    Whole(RawBson),
    /// A document that a path led into.
    Document(Vec<(String, Node)>),
    /// An array that a path led into.
    Array(Vec<Node>),
}

/// A path leads into what has no fields.
#[derive(Debug)]
pub(super) struct Blocked {
    /// Which part it is that cannot be.
    pub(super) part: String,
    /// What cannot have it, as mongod's messages have it.
    pub(super) element: String,
}

impl Blocked {
    /// As mongod says it of an operator that adds fields.
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

    /// The value at a path, or `None` where there is none.
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

    /// Sets the value at a path, and makes the documents that lead to it.
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

    /// Takes the value at a path away; an array's element becomes null.
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

    /// The elements, where it is an array.
    pub(super) fn elements(&mut self) -> Option<&mut Vec<Self>> {
        self.open();
        match self {
            Self::Array(elements) => Some(elements),
            _ => None,
        }
    }

    /// Takes a document or an array apart, one level.
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

    /// Where a child of this name is or may be: in a document anywhere, in an array where it says. `None`
    /// where none may be.
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

    /// The value.
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

    /// The document that it is.
    pub(super) fn into_document(self) -> RawDocumentBuf {
        match self.to_raw() {
            RawBson::Document(document) => document,
            _ => RawDocumentBuf::new(),
        }
    }
}

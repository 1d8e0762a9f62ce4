//! The features of a write that may be a reason to refuse it.

use bson::{Bson, Document, Timestamp};

use super::{holds, names};
use crate::differential::Topology;
use crate::shape::{ItemIds, Outlier, Shape};

/// A statement of an `update` or `delete`, or any other write command, and its target.
#[derive(Debug, Clone, Copy)]
pub(in crate::differential) struct WriteRequest<'a> {
    pub(in crate::differential) statement: &'a Document,
    pub(in crate::differential) shape: &'a Shape,
    /// Where it is one of the outlier pattern.
    pub(in crate::differential) outlier: Option<&'a Outlier>,
    pub(in crate::differential) topology: Topology,
    /// Whether it was sent before.
    pub(in crate::differential) is_sent_again: bool,
}

impl WriteRequest<'_> {
    pub(super) fn filter(&self) -> &Bson {
        let filter = self.statement.get("q").or_else(|| self.statement.get("query"));
        filter.unwrap_or(&Bson::Null)
    }

    pub(super) fn change(&self) -> &Bson {
        let change = self.statement.get("u").or_else(|| self.statement.get("update"));
        change.unwrap_or(&Bson::Null)
    }

    pub(super) fn upserts(&self) -> bool {
        self.statement.get_bool("upsert").unwrap_or(false)
    }

    /// Whether it writes at most one document, or may insert one.
    pub(super) fn is_of_one(&self) -> bool {
        let is_of_many = self.statement.get_bool("multi").unwrap_or(false)
            || self
                .statement
                .get("limit")
                .is_some_and(|limit| *limit == Bson::Int32(0));
        !is_of_many || self.upserts()
    }

    /// Whether the proxy finds the key by the `_id` in the filter. It does for `update` and `delete`.
    pub(super) fn leads_to_key(&self) -> bool {
        let filter = self.statement.get_document("q").ok();
        let id = filter.and_then(|filter| filter.get("_id"));
        let id = match id {
            Some(Bson::Document(condition)) if condition.len() == 1 => condition.get("$eq").or(id),
            id => id,
        };
        let is_value = match id {
            None | Some(Bson::Array(_) | Bson::RegularExpression(_) | Bson::Undefined | Bson::Symbol(_)) => false,
            Some(Bson::Document(value)) => !value.keys().any(|name| name.starts_with('$')),
            Some(_) => true,
        };
        let is_possible = !self.upserts() && !self.statement.contains_key("collation");
        is_value && is_possible && self.shape.item_ids == ItemIds::UniqueInKey
    }

    /// The change as operators.
    fn operators(&self) -> Option<&Document> {
        let change = self.change().as_document()?;
        change.keys().next()?.starts_with('$').then_some(change)
    }

    fn replacement(&self) -> Option<&Document> {
        self.change().as_document().filter(|_| self.operators().is_none())
    }

    pub(super) fn is_by_operators(&self) -> bool {
        self.operators().is_some()
    }

    /// Whether it is by one of these operators.
    pub(super) fn has_operator(&self, names: &[&str]) -> bool {
        let operators = self.operators();
        operators.is_some_and(|operators| names.iter().any(|name| operators.contains_key(*name)))
    }

    /// The paths that operators change, those included that a `$rename` fills.
    pub(super) fn paths(&self) -> Vec<&str> {
        let mut changed = Vec::new();
        for (operator, paths) in self.operators().into_iter().flatten() {
            for (path, value) in paths.as_document().into_iter().flatten() {
                changed.push(path.as_str());
                changed.extend(value.as_str().filter(|_| operator == "$rename"));
            }
        }
        changed
    }

    /// Whether operators change one of these fields, or something within it.
    pub(super) fn changes_field(&self, fields: &[&str]) -> bool {
        let paths = self.paths();
        let mut roots = paths.iter().map(|path| path.split('.').next().unwrap_or_default());
        roots.any(|root| fields.contains(&root))
    }

    fn key(&self) -> Vec<&str> {
        self.shape.key.iter().map(String::as_str).collect()
    }

    /// What decides where an item lies.
    pub(super) fn changes_place(&self) -> bool {
        let mut fields = self.key();
        fields.extend(self.shape.time.as_deref());
        self.changes_field(&fields)
    }

    /// Whether an item may get another key by it.
    pub(super) fn may_change_key(&self) -> bool {
        self.change().as_array().is_some() || self.replacement().is_some() || self.changes_field(&self.key())
    }

    /// Whether an item may get another key or time by it.
    pub(super) fn may_move(&self) -> bool {
        self.change().as_array().is_some() || self.replacement().is_some() || self.changes_place()
    }

    /// Whether it may give an item a key that is none.
    pub(super) fn may_give_no_key(&self) -> bool {
        let is_none = |document: &Document| {
            let values = self.key().into_iter().filter_map(|key| document.get(key));
            values.into_iter().any(is_no_key)
        };
        let of_stages = self.change().as_array().is_some() && self.key().iter().any(|key| names(self.change(), key));
        let of_filter = self.upserts() && self.key().iter().any(|key| names(self.filter(), key));
        of_stages || of_filter || self.replacement().is_some_and(is_none) || self.changes_field(&self.key())
    }

    pub(super) fn has_filters_of_arrays(&self) -> bool {
        let filters = self.statement.get_array("arrayFilters");
        filters.is_ok_and(|filters| !filters.is_empty())
    }

    /// Whether anything in it has a part of a path, or a field, of this kind.
    pub(super) fn has_part(&self, is_kind: impl Fn(&str) -> bool) -> bool {
        let of_field = |name: &str, _: &Bson| name.split('.').any(&is_kind);
        [self.filter(), self.change()]
            .into_iter()
            .any(|value| holds(value, &of_field))
            || self.paths().iter().any(|path| path.split('.').any(&is_kind))
    }

    /// Whether anything in it is a timestamp that servers fill in.
    pub(super) fn has_empty_timestamp(&self) -> bool {
        let empty = Bson::Timestamp(Timestamp { time: 0, increment: 0 });
        let statement = Bson::Document(self.statement.clone());
        holds(&statement, &|_, value| *value == empty)
    }
}

/// What a bucket cannot be found by.
pub(in crate::differential) fn is_no_key(value: &Bson) -> bool {
    matches!(
        value,
        Bson::Array(_) | Bson::Undefined | Bson::Symbol(_) | Bson::DbPointer(_)
    )
}

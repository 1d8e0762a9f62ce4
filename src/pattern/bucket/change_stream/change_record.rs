//! The record of a change that its event on a page does not show: an item leaves its page for another one, or
//! is replaced by a statement that does not replace it as a whole.
//!
//! `control.moved: {count, own, replaced, pipeline}`. `count` ascends, so each record changes the field. A
//! record of an earlier version has no `pipeline`.

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};

use crate::command::arguments::with_replaced;
use crate::command::document::{append_fields, as_flag, as_whole_number, get, put, single};
use crate::command::update::UpdateForm;
use crate::pattern::bucket::expression::{call, field, literal};
use crate::pattern::shapes::BucketShape;

/// Paths of the record.
const PATH: &str = "control.moved";
const COUNT: &str = "control.moved.count";
const OWN: &str = "control.moved.own";
const REPLACED: &str = "control.moved.replaced";
const PIPELINE: &str = "control.moved.pipeline";

/// The change of an item, as the change stream needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeRecord {
    /// Whether the transaction is the proxy's own. The application's events then belong to no transaction.
    pub is_own_transaction: bool,
    /// The application's update of the item.
    pub form: UpdateForm,
}

impl ChangeRecord {
    fn is_replacement(self) -> bool {
        self.form == UpdateForm::Replacement
    }

    fn is_pipeline(self) -> bool {
        self.form == UpdateForm::Pipeline
    }

    /// The stage of an update that records the change.
    #[must_use]
    pub fn stage(self) -> RawDocumentBuf {
        let before = call("$ifNull", field(COUNT).as_str(), 0);
        let mut record = single("count", call("$add", &before, 1));
        put(&mut record, "own", literal(self.is_own_transaction));
        put(&mut record, "replaced", literal(self.is_replacement()));
        put(&mut record, "pipeline", literal(self.is_pipeline()));
        single("$set", single(PATH, &record))
    }

    /// Operators of an update, with the record of the change: further fields of `$set`, and an `$inc`. They
    /// must have no `$inc` of their own.
    #[must_use]
    pub fn added_to(self, operators: &RawDocument) -> RawDocumentBuf {
        let mut set = RawDocumentBuf::new();
        if let Some(own) = get(operators, "$set").and_then(RawBsonRef::as_document) {
            append_fields(&mut set, own);
        }
        put(&mut set, OWN, self.is_own_transaction);
        put(&mut set, REPLACED, self.is_replacement());
        put(&mut set, PIPELINE, self.is_pipeline());
        let mut update = with_replaced(operators, &[("$set", None)]);
        put(&mut update, "$set", &set);
        put(&mut update, "$inc", single(COUNT, 1));
        update
    }

    /// A statement of `update`, with the record of the change: a further stage, or further operators.
    #[must_use]
    pub fn recorded_by(self, statement: &RawDocument) -> RawDocumentBuf {
        match get(statement, "u") {
            Some(RawBsonRef::Array(stages)) => {
                let mut stages: RawArrayBuf = stages.into_iter().flatten().collect();
                stages.push(self.stage());
                with_replaced(statement, &[("u", Some(RawBsonRef::Array(&stages)))])
            }
            Some(RawBsonRef::Document(operators)) => {
                let update = self.added_to(operators);
                with_replaced(statement, &[("u", Some(RawBsonRef::Document(&update)))])
            }
            _ => statement.to_owned(),
        }
    }

    /// The record that the change of a page from `before` to `after` has written, if it has.
    pub(super) fn between(before: &RawDocument, after: &RawDocument) -> Option<Self> {
        let record = |page| get(get(page, BucketShape::CONTROL)?.as_document()?, "moved")?.as_document();
        let count = |record: &RawDocument| get(record, "count").and_then(as_whole_number);
        let new = record(after)?;
        if record(before).and_then(count) == count(new) {
            return None;
        }
        let flag = |name| get(new, name).and_then(as_flag).unwrap_or_default();
        Some(Self {
            is_own_transaction: flag("own"),
            form: match (flag("replaced"), flag("pipeline")) {
                (true, _) => UpdateForm::Replacement,
                (false, true) => UpdateForm::Pipeline,
                (false, false) => UpdateForm::Operators,
            },
        })
    }
}

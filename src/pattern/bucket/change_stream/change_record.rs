//! The record of a change that its event on a page does not show: an item leaves its page for another one, or
//! is replaced by a statement that does not replace it as a whole.
//!
//! `control.moved: {count, own, replaced, pipeline, assigned}`. `count` ascends, so each record changes the
//! field. A record of an earlier version has no `assigned`, and may have no `pipeline`.

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};

use crate::command::arguments::with_replaced;
use crate::command::document::{append_fields, as_flag, as_whole_number, get, put, single};
use crate::command::update::UpdateForm;
use crate::pattern::bucket::expression::{call, field, literal};
use crate::pattern::bucket::field_names::is_positional;
use crate::pattern::shapes::BucketShape;

/// Paths of the record.
const PATH: &str = "control.moved";
const COUNT: &str = "control.moved.count";
const OWN: &str = "control.moved.own";
const REPLACED: &str = "control.moved.replaced";
const PIPELINE: &str = "control.moved.pipeline";
const ASSIGNED: &str = "control.moved.assigned";

/// The change of an item, as the change stream needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeRecord {
    /// Whether the transaction is the proxy's own. The application's events then belong to no transaction.
    pub is_own_transaction: bool,
    /// The application's update of the item.
    pub update: AppliedUpdate,
}

/// The application's update of an item, as its description needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppliedUpdate {
    /// The form of the change.
    pub form: UpdateForm,
    /// The paths at which operators store a new document or array. mongod describes a new value there as a
    /// whole.
    pub assigned: Vec<String>,
}

impl AppliedUpdate {
    /// The update by a change: operators, a pipeline or a replacement.
    #[must_use]
    pub fn of(change: RawBsonRef<'_>) -> Self {
        match (UpdateForm::of(change), change) {
            (UpdateForm::Operators, RawBsonRef::Document(operators)) => Self::of_operators(operators),
            (form, _) => form.into(),
        }
    }

    /// The update by operators.
    #[must_use]
    pub fn of_operators(operators: &RawDocument) -> Self {
        let mut assigned = Vec::new();
        for (operator, paths) in operators.iter().flatten() {
            let paths = paths.as_document().into_iter().flatten().flatten();
            let paths = paths.filter_map(|(path, operand)| assigned_path(operator.as_str(), path.as_str(), operand));
            assigned.extend(
                paths
                    .filter(|path| !path.split('.').any(is_positional))
                    .map(str::to_owned),
            );
        }
        Self {
            form: UpdateForm::Operators,
            assigned,
        }
    }
}

impl From<UpdateForm> for AppliedUpdate {
    fn from(form: UpdateForm) -> Self {
        let assigned = Vec::new();
        Self { form, assigned }
    }
}

/// The path at which an operator stores a new document or array, if it does.
fn assigned_path<'a>(operator: &str, path: &'a str, operand: RawBsonRef<'a>) -> Option<&'a str> {
    let is_assigned = match operator {
        "$set" => matches!(operand, RawBsonRef::Document(_) | RawBsonRef::Array(_)),
        "$addToSet" | "$pull" | "$pullAll" | "$pop" => true,
        // Without these modifiers, mongod describes the appended elements.
        "$push" => operand.as_document().is_some_and(|modifiers| {
            let is_in = |name| get(modifiers, name).is_some();
            ["$position", "$slice", "$sort"].into_iter().any(is_in)
        }),
        "$rename" => return operand.as_str(),
        _ => false,
    };
    is_assigned.then_some(path)
}

impl ChangeRecord {
    fn is_replacement(&self) -> bool {
        self.update.form == UpdateForm::Replacement
    }

    fn is_pipeline(&self) -> bool {
        self.update.form == UpdateForm::Pipeline
    }

    fn assigned(&self) -> RawArrayBuf {
        self.update.assigned.iter().map(String::as_str).collect()
    }

    /// The stage of an update that records the change.
    #[must_use]
    pub fn stage(&self) -> RawDocumentBuf {
        let before = call("$ifNull", field(COUNT).as_str(), 0);
        let mut record = single("count", call("$add", &before, 1));
        put(&mut record, "own", literal(self.is_own_transaction));
        put(&mut record, "replaced", literal(self.is_replacement()));
        put(&mut record, "pipeline", literal(self.is_pipeline()));
        put(&mut record, "assigned", literal(self.assigned()));
        single("$set", single(PATH, &record))
    }

    /// Operators of an update, with the record of the change: further fields of `$set`, and an `$inc`. They
    /// must have no `$inc` of their own.
    #[must_use]
    pub fn added_to(&self, operators: &RawDocument) -> RawDocumentBuf {
        let mut set = RawDocumentBuf::new();
        if let Some(own) = get(operators, "$set").and_then(RawBsonRef::as_document) {
            append_fields(&mut set, own);
        }
        put(&mut set, OWN, self.is_own_transaction);
        put(&mut set, REPLACED, self.is_replacement());
        put(&mut set, PIPELINE, self.is_pipeline());
        put(&mut set, ASSIGNED, self.assigned());
        let mut update = with_replaced(operators, &[("$set", None)]);
        put(&mut update, "$set", &set);
        put(&mut update, "$inc", single(COUNT, 1));
        update
    }

    /// A statement of `update`, with the record of the change: a further stage, or further operators.
    #[must_use]
    pub fn recorded_by(&self, statement: &RawDocument) -> RawDocumentBuf {
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
        let assigned = get(new, "assigned").and_then(RawBsonRef::as_array);
        let assigned = assigned.into_iter().flatten().flatten();
        let form = match (flag("replaced"), flag("pipeline")) {
            (true, _) => UpdateForm::Replacement,
            (false, true) => UpdateForm::Pipeline,
            (false, false) => UpdateForm::Operators,
        };
        Some(Self {
            is_own_transaction: flag("own"),
            update: AppliedUpdate {
                form,
                assigned: assigned.filter_map(|path| Some(path.as_str()?.to_owned())).collect(),
            },
        })
    }
}

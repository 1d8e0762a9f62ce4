//! Determines the array element of the positional operator: the element that made the filter match (see
//! [`matched_element`](crate::pattern::matched_element)). The answer holds for all documents, so each
//! condition counts whose field may be an array.

use bson::raw::RawDocumentBuf;

use super::Context;
use super::element::ELEMENT;
use crate::command::document::{first_field, single};
use crate::pattern::matched_element::{ElementCondition, is_field_name, path_conditions};

/// The condition on a wrapped element of a field. `None` if the element is not determined.
pub(super) fn on_element(field: &str, context: Context<'_>) -> Option<RawDocumentBuf> {
    let mut conditions = path_conditions(context.filter?)?;
    // An `_id` is never an array either.
    conditions.retain(|condition| condition.path != "_id" && !(context.is_no_array)(condition.path));
    let [condition] = conditions[..] else {
        return None;
    };
    if field.contains('.') || !is_field_name(field) {
        return None;
    }
    let ElementCondition { within, operator } = ElementCondition::of(field, condition)?;
    let (name, _) = first_field(&operator)?;
    let of_element = if within.is_empty() && name != "$elemMatch" {
        single("$elemMatch", &operator)
    } else {
        operator
    };
    Some(single(&format!("{ELEMENT}{within}"), of_element))
}

//! Groups and counts by stored paths: mongod unwinds the buckets and reads the items' fields where they are
//! stored. To assemble an item costs mongod twice as much as to group it.
//!
//! A field path of a client's expression becomes a stored path: `$quantity` becomes
//! `$history.quantity`. A key field is read from the item if the item has a value of its own, and
//! otherwise from the bucket. What cannot be rewritten so (`$$ROOT`, a name that is computed) leaves
//! the pipeline to [`super::unwind`].

use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::expression::{field, is_missing};
use super::predicate_pushdown::BucketPredicate;
use crate::command::document::{first_field, get, single};
use crate::pattern::shapes::BucketShape;
use crate::pattern::unwound::{behind, only_match};

/// Accumulators that name fields otherwise than by expressions, or run code.
const OPAQUE_ACCUMULATORS: [&str; 5] = ["$top", "$topN", "$bottom", "$bottomN", "$accumulator"];

/// Accumulators with a number `n`. mongod evaluates it once for each group, on the group's `_id`: a path
/// in it is no path of the item.
const COUNTED_ACCUMULATORS: [&str; 4] = ["$firstN", "$lastN", "$maxN", "$minN"];

/// Operators whose arguments are not all expressions, or that read the whole document.
const OPAQUE_OPERATORS: [&str; 3] = ["$function", "$meta", "$getField"];

/// The stages on buckets that answer a pipeline which groups or counts items. `None` for any other pipeline.
/// The first stage matches buckets.
pub(super) fn of_aggregate(
    shape: &BucketShape,
    predicate: &BucketPredicate,
    pipeline: &[impl AsRef<RawDocument>],
) -> Option<Vec<RawDocumentBuf>> {
    let has_filter = pipeline
        .first()
        .is_some_and(|stage| only_match(stage.as_ref()).is_some());
    let (summary, rest) = pipeline.get(usize::from(has_filter)..)?.split_first()?;
    let mut stages = matching_items(shape, predicate)?;
    stages.push(StoredPaths(shape).summary(summary.as_ref())?);
    stages.extend(behind(rest));
    Some(stages)
}

/// The stages that unwind the buckets of a filter and leave the items that match, as stored. `None` if the
/// filter has a condition that only whole items show.
pub(super) fn matching_items(shape: &BucketShape, predicate: &BucketPredicate) -> Option<Vec<RawDocumentBuf>> {
    let items = predicate.of_unwound(shape)?;
    let mut stages = vec![single("$unwind", field(shape.items()))];
    if !items.is_empty() {
        stages.push(single("$match", &items));
    }
    Some(stages)
}

/// Rewrites the field paths of items.
struct StoredPaths<'a>(&'a BucketShape);

impl StoredPaths<'_> {
    /// Rewrites a stage whose documents consist only of the results of its expressions.
    fn summary(&self, stage: &RawDocument) -> Option<RawDocumentBuf> {
        let (name, value) = first_field(stage).filter(|_| stage.iter().count() == 1)?;
        Some(match (name, value) {
            ("$group", RawBsonRef::Document(group)) => single(name, self.group(group)?),
            ("$sortByCount", by) => single(name, self.expression(by)?),
            ("$bucket" | "$bucketAuto", RawBsonRef::Document(ranges)) => single(name, self.ranges(ranges)?),
            ("$count", _) => stage.to_owned(),
            _ => return None,
        })
    }

    fn group(&self, group: &RawDocument) -> Option<RawDocumentBuf> {
        let mut rewritten = RawDocumentBuf::new();
        for field in group {
            let (name, value) = field.ok()?;
            let value = match name.as_str() {
                "_id" => self.expression(value)?,
                _ => self.accumulator(value)?,
            };
            rewritten.append(name, value);
        }
        Some(rewritten)
    }

    fn ranges(&self, ranges: &RawDocument) -> Option<RawDocumentBuf> {
        let mut rewritten = RawDocumentBuf::new();
        for field in ranges {
            let (name, value) = field.ok()?;
            match (name.as_str(), value) {
                ("groupBy", value) => rewritten.append(name, self.expression(value)?),
                ("output", RawBsonRef::Document(output)) => rewritten.append(name, self.group(output)?),
                (_, value) => rewritten.append(name, value),
            }
        }
        Some(rewritten)
    }

    fn accumulator(&self, value: RawBsonRef<'_>) -> Option<RawBson> {
        let (name, argument) = first_field(value.as_document()?)?;
        if OPAQUE_ACCUMULATORS.contains(&name) || value.as_document()?.iter().count() != 1 {
            return None;
        }
        let argument = match argument {
            RawBsonRef::Document(arguments) if COUNTED_ACCUMULATORS.contains(&name) => {
                RawBson::Document(self.counted(arguments)?)
            }
            argument => self.expression(argument)?,
        };
        Some(single(name, argument).into())
    }

    /// Rewrites the arguments of an accumulator of [`COUNTED_ACCUMULATORS`].
    fn counted(&self, arguments: &RawDocument) -> Option<RawDocumentBuf> {
        let mut rewritten = RawDocumentBuf::new();
        for argument in arguments {
            let (name, value) = argument.ok()?;
            match name.as_str() {
                "n" => rewritten.append(name, value),
                _ => rewritten.append(name, self.expression(value)?),
            }
        }
        Some(rewritten)
    }

    fn expression(&self, value: RawBsonRef<'_>) -> Option<RawBson> {
        match value {
            RawBsonRef::String(text) => self.text(text),
            RawBsonRef::Array(array) => {
                let values = array.into_iter().map(|value| self.expression(value.ok()?));
                Some(RawBson::Array(values.collect::<Option<RawArrayBuf>>()?))
            }
            RawBsonRef::Document(document) => self.operator(document).map(RawBson::Document),
            constant => Some(constant.into()),
        }
    }

    /// Rewrites an operator with its arguments, or a document of expressions.
    fn operator(&self, document: &RawDocument) -> Option<RawDocumentBuf> {
        if get(document, "$literal").is_some() {
            return Some(document.to_owned());
        }
        let mut rewritten = RawDocumentBuf::new();
        for part in document {
            let (name, value) = part.ok()?;
            if OPAQUE_OPERATORS.contains(&name.as_str())
                || name.as_str().starts_with("$_")
                || redefines_current(name.as_str(), value)
            {
                return None;
            }
            rewritten.append(name, self.expression(value)?);
        }
        Some(rewritten)
    }

    /// Rewrites a string: a field path. Variables and other strings stay as they are.
    fn text(&self, text: &str) -> Option<RawBson> {
        let Some(path) = text.strip_prefix('$') else {
            return Some(text.into());
        };
        if let Some(variable) = path.strip_prefix('$') {
            let name = variable.split('.').next()?;
            return (!matches!(name, "ROOT" | "CURRENT")).then(|| text.into());
        }
        // mongod must report an invalid path in the client's words.
        if path.split('.').any(|name| name.is_empty() || name.starts_with('$')) {
            return None;
        }
        let root = path.split('.').next()?;
        let rest = path.get(root.len()..)?;
        let items = self.0.items();
        let stored = field(&format!("{items}.{}{rest}", self.0.rename().stored(root)));
        if !self.0.key().iter().any(|name| name == root) {
            return Some(stored.into());
        }
        let mut own_or_bucket = single("if", is_missing(&format!("{items}.{root}")));
        own_or_bucket.append(cstr!("then"), text);
        own_or_bucket.append(cstr!("else"), stored);
        Some(single("$cond", &own_or_bucket).into())
    }
}

/// Whether an operator sets the variable `CURRENT`, with which field paths begin.
fn redefines_current(operator: &str, argument: RawBsonRef<'_>) -> bool {
    let argument = argument.as_document();
    match operator {
        "$let" => {
            let variables = argument.and_then(|argument| get(argument, "vars")?.as_document());
            variables.is_some_and(|variables| get(variables, "CURRENT").is_some())
        }
        "$map" | "$filter" => {
            argument.is_some_and(|argument| get(argument, "as").and_then(RawBsonRef::as_str) == Some("CURRENT"))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;

//! Checks a plain collection whose shape is in observe mode: lists its own indexes that would be refused.

use bson::raw::RawDocument;
use mongodb::error::Error;

use crate::maintenance::finding::Finding;
use crate::maintenance::upstream::{ShapedCollection, description, explain, indexes, raw_specs};
use crate::pattern::bucket::item_index::{self, ID, is_own, is_unique, name};
use crate::pattern::outlier::unsupported_index;

/// The findings for one collection, at least one.
pub(super) async fn check(target: &ShapedCollection) -> Vec<Finding> {
    look(target).await.unwrap_or_else(|error| {
        // The proxy works without: it relays the commands.
        let text = format!("is observed, and cannot be inspected: {}", explain(&error));
        vec![Finding::note(target.namespace(), text)]
    })
}

async fn look(target: &ShapedCollection) -> Result<Vec<Finding>, Error> {
    let namespace = target.namespace();
    let described = description(&target.database, &target.collection).await?;
    let Some(described) = described else {
        return Ok(vec![Finding::note(namespace, "is observed, and does not exist yet")]);
    };
    if described.get_str("type").is_ok_and(|kind| kind == "view") {
        return Ok(vec![Finding::note(namespace, "is observed, and is a view")]);
    }
    let there = raw_specs(&indexes(target).await?);
    let refused = there.iter().filter_map(|spec| {
        let text = format!(
            "is observed: index {} would be refused{}: {}; docs/refused-indexes.md lists alternatives",
            name(spec),
            if is_unique(spec) {
                " and its uniqueness lost"
            } else {
                ""
            },
            refusal(target, spec)?
        );
        Some(Finding::warning(&namespace, text))
    });
    let refused: Vec<Finding> = refused.collect();
    if refused.is_empty() {
        let text = format!("is observed: none of its {} indexes would be refused", there.len());
        return Ok(vec![Finding::fine(namespace, text)]);
    }
    Ok(refused)
}

/// The reason why mode `rewrite` would refuse to create an index.
fn refusal(target: &ShapedCollection, spec: &RawDocument) -> Option<String> {
    if let Some(shape) = target.outlier() {
        return unsupported_index::unsupported(shape, spec).map(|what| what.to_string());
    }
    if name(spec) == ID {
        return None;
    }
    if is_own(name(spec)) {
        return Some("its name is reserved for the shape's own indexes".to_owned());
    }
    let stored = item_index::stored(target.bucket()?, spec);
    stored.err().map(|what| what.to_string())
}

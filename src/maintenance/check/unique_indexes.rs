//! Reports unique indexes that proxies have refused, from their records.

use bson::DateTime;
use mongodb::Client;

use crate::maintenance::finding::Finding;
use crate::maintenance::unique_index_record::{exists, recorded};
use crate::maintenance::upstream::{ShapedCollection, explain};
use crate::session::refused_unique_indexes::RefusedUniqueIndex;

/// A warning for each refused unique index of these collections.
pub(super) async fn check(client: &Client, targets: &[ShapedCollection]) -> Vec<Finding> {
    if targets.is_empty() {
        return Vec::new();
    }
    let records = match recorded(client).await {
        Ok(records) => records,
        Err(error) => {
            let text = format!(
                "the records of refused unique indexes cannot be read: {}",
                explain(&error)
            );
            return vec![Finding::note("upstream", text)];
        }
    };
    let mut findings = Vec::new();
    for index in &records {
        let is_of_target = targets.iter().any(|target| target.namespace() == index.id.namespace);
        // A proxy that does not know the record may have created the index.
        if is_of_target && !exists(client, &index.id).await {
            findings.push(warning(index));
        }
    }
    findings
}

fn warning(index: &RefusedUniqueIndex) -> Finding {
    let at = DateTime::from_system_time(index.at);
    let text = format!(
        "unique index {} on {} was refused, so nothing keeps its values apart: {}; last refused at {}. docs/refused-indexes.md lists \
         alternatives; when the application does not create the index any more, drop it through mongoshape, which ends this warning",
        index.id.name,
        index.key,
        index.message,
        at.try_to_rfc3339_string().unwrap_or_default()
    );
    Finding::warning(&index.id.namespace, text)
}

//! Reasons why a proxy would refuse every command on a collection. Checked when `serve` starts and
//! before a reload, so the check must be quick.

use std::time::Duration;

use bson::Document;
use mongodb::error::Error;

use super::{collection, outlier};
use crate::maintenance::finding::Finding;
use crate::maintenance::inspect::{ContentsCheck, first_foreign};
use crate::maintenance::upstream::{ShapedCollection, description, indexes, with_recorded_shape};
use crate::pattern::bucket::index::PAGE;
use crate::pattern::shape_marker;
use crate::pattern::shapes::{BucketShape, OutlierShape};

/// Maximum duration of the search for misfits in one collection.
const SCAN_TIMEOUT: Duration = Duration::from_secs(2);

/// The errors of one collection. Empty if it fits its shape, does not exist, or could not be
/// searched in time.
pub(crate) async fn of(target: &ShapedCollection) -> Result<Vec<Finding>, Error> {
    let recorded = if target.is_automatic() {
        let Some(recorded) = with_recorded_shape(target).await? else {
            return Ok(Vec::new());
        };
        Some(recorded)
    } else {
        None
    };
    let target = recorded.as_ref().unwrap_or(target);
    let mut findings = match (target.bucket(), target.outlier()) {
        (Some(shape), _) => of_bucket(target, shape).await?,
        (_, Some(shape)) => of_outlier(target, shape).await?,
        (None, None) => Vec::new(),
    };
    findings.retain(Finding::is_error);
    Ok(findings)
}

async fn of_bucket(target: &ShapedCollection, shape: &BucketShape) -> Result<Vec<Finding>, Error> {
    let Some(described) = description(&target.database, &target.collection).await? else {
        return Ok(Vec::new());
    };
    // A collection that `compact` has frozen can be served.
    if collection::is_frozen(&described) {
        return Ok(Vec::new());
    }
    let mut findings = collection::unfit(target, &described);
    findings.extend(collection::sharded_with_unique_ids(target, shape).await?);
    if !findings.is_empty() {
        return Ok(findings);
    }
    let there = indexes(target).await?;
    findings.extend(collection::index_findings(target, shape, &there));
    match (has(&there, PAGE), has(&there, shape_marker::INDEX)) {
        (true, true) => {}
        (true, false) => {
            let text = format!(
                "has no index {}, which records its shape; run `mongoshape setup`",
                shape_marker::INDEX
            );
            findings.push(Finding::error(target.namespace(), text));
        }
        (false, _) => {
            if let ContentsCheck::Foreign(id) = first_foreign(target, shape, SCAN_TIMEOUT).await? {
                let text = format!(
                    "contains documents that are not buckets, the first with _id {id}; run `mongoshape check`, which names the remedy"
                );
                findings.push(Finding::error(target.namespace(), text));
            }
        }
    }
    Ok(findings)
}

async fn of_outlier(target: &ShapedCollection, shape: &OutlierShape) -> Result<Vec<Finding>, Error> {
    let described = description(&target.database, &target.collection).await?;
    let mut findings = outlier::unfit(target, described.as_ref());
    findings.extend(outlier::index_findings(target, shape).await?);
    Ok(findings)
}

fn has(indexes: &[Document], name: &str) -> bool {
    indexes
        .iter()
        .any(|index| index.get_str("name").is_ok_and(|found| found == name))
}

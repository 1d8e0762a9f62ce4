//! `shardCollection` and `refineCollectionShardKey` of a bucket collection. The mongos distributes the pages
//! by the first key fields of the shape.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};

use super::{CrossCollectionCommand, in_database};
use crate::command::document::{as_flag, get};
use crate::command::error::CommandError;
use crate::command::namespace::Namespace;
use crate::command::registry::Command;
use crate::pattern::shapes::{BucketShape, ItemIds};
use crate::session::error::RunError;
use crate::session::metrics::RefusalReason;
use crate::session::upstream::UpstreamKind;

/// Creates the collection if `shardCollection` would, because a mongos would create it without the shape's
/// indexes.
pub(super) async fn run(across: &mut CrossCollectionCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    let body = across.context.head.body();
    across.context.check_server_is_known()?;
    let named = get(body, across.context.head.name).and_then(RawBsonRef::as_str);
    let Some(namespace) = named
        .and_then(Namespace::parse)
        .filter(|_| across.context.upstream == UpstreamKind::Mongos)
    else {
        // The server refuses the command.
        return across.context.link.run(body).await;
    };
    let settings = across.context.settings;
    let Some(shape) = settings.shapes.bucket(namespace) else {
        return Err(refuse(across, namespace, across.context.head.name).into());
    };
    if across.context.link.fence_of(namespace).is_some() {
        let what = format!("{} of a collection with an automatic shape", across.context.head.name);
        return Err(refuse(across, namespace, &what).into());
    }
    if let Some(what) = misfit(shape, body) {
        let what = format!("{} {what}", across.context.head.name);
        return Err(refuse(across, namespace, &what).into());
    }
    let there = in_database(body, namespace.database);
    settings.catalog.forget(namespace);
    if across.context.head.command == Command::ShardCollection {
        settings
            .catalog
            .for_writing(&mut across.catalog_session(shape, namespace, &there))
            .await?;
    }
    let sharded = across.context.link.run(body).await;
    // The proxy learns that the collection is sharded when it checks it again.
    settings.catalog.forget(namespace);
    sharded
}

/// The part of the command that does not fit the shape.
fn misfit(shape: &BucketShape, body: &RawDocument) -> Option<&'static str> {
    let key = get(body, "key").and_then(RawBsonRef::as_document);
    // Without a key, the mongos refuses the command.
    let fields = key.into_iter().flat_map(RawDocument::iter).flatten();
    let is_prefix = fields
        .enumerate()
        .all(|(position, (field, _))| shape.key().get(position).is_some_and(|own| own == field.as_str()));
    if !is_prefix {
        return Some("by a key that does not consist of the first key fields of the shape");
    }
    if shape.item_ids() == ItemIds::Unique {
        return Some("with `item_ids = \"unique\"` (set it to \"unique_in_key\")");
    }
    if get(body, "unique").and_then(as_flag) == Some(true) {
        return Some("by a unique key");
    }
    get(body, "timeseries").map(|_| "with `timeseries`")
}

fn refuse(across: &CrossCollectionCommand<'_>, namespace: Namespace<'_>, what: &str) -> CommandError {
    across.refuse(namespace, RefusalReason::Cluster, what)
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;
    use crate::pattern::shapes::{BucketOptions, NamespacePattern};

    fn check(item_ids: ItemIds, options: &RawDocument, expected: Option<&str>) {
        let options_of_shape = BucketOptions {
            item_ids,
            ..BucketOptions::new(
                NamespacePattern::parse("d.c").unwrap(),
                vec!["k".into(), "region".into()],
            )
        };
        let shape = BucketShape::new(options_of_shape).unwrap();
        let found = misfit(&shape, options);
        assert!(
            found.is_some() == expected.is_some() && found.unwrap_or_default().contains(expected.unwrap_or_default()),
            "{options:?}: {found:?}"
        );
    }

    #[test]
    fn a_shard_key_is_a_prefix_of_the_key() {
        let check_key = |key: RawDocumentBuf, expected| check(ItemIds::UniqueInKey, &rawdoc! { "key": key }, expected);
        check_key(rawdoc! { "k": 1 }, None);
        check_key(rawdoc! { "k": "hashed" }, None);
        check_key(rawdoc! { "k": 1, "region": 1 }, None);
        check_key(rawdoc! { "region": 1 }, Some("first key fields"));
        check_key(rawdoc! { "k": 1, "n": 1 }, Some("first key fields"));
        check_key(rawdoc! { "k": 1, "region": 1, "n": 1 }, Some("first key fields"));
        check(ItemIds::Unique, &rawdoc! { "key": { "k": 1 } }, Some("unique_in_key"));
        check(
            ItemIds::Stored,
            &rawdoc! { "key": { "k": 1 }, "unique": true },
            Some("unique key"),
        );
    }
}

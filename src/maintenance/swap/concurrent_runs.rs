//! Detects another run on the same collection, because two runs would fill one copy.

use std::time::Duration;

use bson::{Bson, Document, doc};
use mongodb::Client;
use mongodb::error::Error;
use tokio::time::sleep;

use super::kind::SwapKind;
use crate::maintenance::finding::Finding;
use crate::maintenance::upstream::explain;

/// Checks, and the pause between them: a process that was just killed may still be listed.
const LOOKS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(250);

/// Bytes of the namespace in the application's name. MongoDB limits the name to 128 bytes, also with the
/// secret of an [embedded proxy](crate::maintenance::embedded_proxy).
const MAX_NAMESPACE: usize = 48;

/// A unique name for a run. All runs on a collection, of any build, have the same beginning of the
/// name.
pub(crate) fn own_name(work: SwapKind, namespace: &str) -> String {
    format!("{}{:016x}", common_name(work, namespace), rand::random::<u64>())
}

/// The checksum distinguishes namespaces with the same beginning.
fn common_name(work: SwapKind, namespace: &str) -> String {
    let end = namespace.floor_char_boundary(MAX_NAMESPACE);
    let beginning = namespace.get(..end).unwrap_or_default();
    let checksum = crc32c::crc32c(namespace.as_bytes());
    format!("{}{beginning} {checksum:08x} ", work.name())
}

/// Operations in progress and idle connections: of all users, or without that privilege of this
/// user, whose credentials other runs share.
async fn current(client: &Client) -> Result<Document, Error> {
    let admin = client.database("admin");
    match admin.run_command(doc! { "currentOp": 1, "$all": true }).await {
        Err(_) => {
            admin
                .run_command(doc! { "currentOp": 1, "$all": true, "$ownOps": true })
                .await
        }
        current => current,
    }
}

/// A finding if another run is in progress, or if that cannot be determined.
pub(crate) async fn look(client: &Client, work: SwapKind, namespace: &str, own: &str) -> Option<Finding> {
    let common = common_name(work, namespace);
    for look in 1.. {
        let current = match current(client).await {
            Ok(current) => current,
            Err(error) => {
                let text = format!(
                    "cannot determine whether another `{}` runs: {}",
                    work.command(),
                    explain(&error)
                );
                return Some(Finding::note(namespace, text));
            }
        };
        let operations = current.get_array("inprog").into_iter().flatten();
        let mut names = operations
            .filter_map(Bson::as_document)
            .filter_map(|one| one.get_str("appName").ok());
        let other = names.find(|name| name.starts_with(&common) && *name != own)?;
        if look == LOOKS {
            let text = format!("another run is in progress, with the application name \"{other}\"; wait until it ends");
            return Some(Finding::error(namespace, text));
        }
        sleep(PAUSE).await;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_the_same_in_every_build_and_of_the_length_that_mongodb_takes() {
        assert_eq!(
            common_name(SwapKind::Compact, "a.b"),
            "mongoshape compact a.b e8a9d8d4 "
        );
        let long = format!("d.{}", "\u{e9}".repeat(120));
        for namespace in ["a.b", &long] {
            let (one, other) = (
                own_name(SwapKind::Compact, namespace),
                own_name(SwapKind::Compact, namespace),
            );
            assert!(one != other && one.len() <= 128, "{one}");
            assert!(one.starts_with(&common_name(SwapKind::Compact, namespace)));
        }
        assert_ne!(
            common_name(SwapKind::Pack, &long),
            common_name(SwapKind::Pack, &format!("{long}x"))
        );
    }
}

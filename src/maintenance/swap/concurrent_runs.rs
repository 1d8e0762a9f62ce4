//! Whether another run on a collection is under way: two would fill one copy.

use std::time::Duration;

use bson::{Bson, Document, doc};
use mongodb::Client;
use mongodb::error::Error;
use tokio::time::sleep;

use super::kind::SwapKind;
use crate::maintenance::finding::Finding;
use crate::maintenance::upstream::explain;

/// A process that was just killed may still be listed.
const LOOKS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(250);

/// Bytes of a namespace that are part of a name: MongoDB takes names of 128 bytes.
const MAX_NAMESPACE: usize = 64;

/// A name that no other run has, but begins like that of each on the same collection, of whatever build.
pub(crate) fn own_name(work: SwapKind, namespace: &str) -> String {
    format!("{}{:016x}", common_name(work, namespace), rand::random::<u64>())
}

/// The checksum tells long namespaces apart, and one from another that begins like it.
fn common_name(work: SwapKind, namespace: &str) -> String {
    let end = namespace.floor_char_boundary(MAX_NAMESPACE);
    let beginning = namespace.get(..end).unwrap_or_default();
    let checksum = crc32c::crc32c(namespace.as_bytes());
    format!("{}{beginning} {checksum:08x} ", work.name())
}

/// What goes on, with connections that are idle: of all users, or of this one, whose configuration the others
/// have.
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

/// That there is one, or that nobody can tell.
pub(crate) async fn look(client: &Client, work: SwapKind, namespace: &str, own: &str) -> Option<Finding> {
    let common = common_name(work, namespace);
    for look in 1.. {
        let current = match current(client).await {
            Ok(current) => current,
            Err(error) => {
                let text = format!(
                    "cannot tell whether another `{}` runs: {}",
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
            let text = format!("another run, known to the server as \"{other}\", is under way; wait for its end");
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

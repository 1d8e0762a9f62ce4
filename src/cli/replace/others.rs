//! Whether another run on a collection is under way: two would fill one copy.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use bson::{Bson, Document, doc};
use mongodb::Client;
use mongodb::error::Error;
use tokio::time::sleep;

use super::Work;
use crate::cli::finding::Finding;
use crate::cli::upstream::explain;

/// A process that was just killed may still be listed.
const LOOKS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(250);

/// A name that no other run has, but begins like that of each on the same collection. Names are short.
pub(in crate::cli) fn own_name(work: Work, namespace: &str) -> String {
    format!("{} {:016x}", common_name(work, namespace), rand::random::<u64>())
}

fn common_name(work: Work, namespace: &str) -> String {
    let mut hasher = DefaultHasher::new();
    namespace.hash(&mut hasher);
    format!("{}{:016x}", work.name(), hasher.finish())
}

/// What goes on, with connections that are idle: of all users, or of this one, whose configuration the others have.
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
pub(in crate::cli) async fn look(client: &Client, work: Work, namespace: &str, own: &str) -> Option<Finding> {
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

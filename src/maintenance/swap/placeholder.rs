//! The placeholder: an empty collection with the name under which the swapped collection will be kept.
//!
//! The rename of the swapped collection to that name drops this placeholder by its UUID. So after the
//! placeholder has been dropped, a late rename fails.

use bson::raw::RawDocumentBuf;
use bson::{Binary, Document, doc};

use super::{Freezing, Halt, uuid_of};
use crate::maintenance::upstream::description;
use crate::pattern::bucket::pack;

/// Whether a listed collection is a placeholder.
pub(crate) fn is_placeholder(described: &Document) -> bool {
    let options = described.get_document("options").ok();
    let options = options.and_then(|options| RawDocumentBuf::try_from(options).ok());
    options.is_some_and(|options| pack::is_placeholder(&options))
}

/// Drops an existing placeholder with this name.
pub(crate) async fn clear(by: Freezing<'_>, name: &str) -> Result<(), Halt> {
    match description(&by.target.database, name).await? {
        Some(described) if is_placeholder(&described) => by.drop(name, Some(&uuid_of(&described)?)).await,
        _ => Ok(()),
    }
}

/// Creates a placeholder with this name. Returns its UUID.
pub(crate) async fn keep(by: Freezing<'_>, name: &str) -> Result<Binary, Halt> {
    let validator = Document::try_from(pack::placeholder()).map_err(|error| Halt::Words(error.to_string()))?;
    let create = doc! { "create": name, "validator": validator };
    by.target.database.run_command(create).await?;
    let made = description(&by.target.database, name).await?;
    match made.filter(is_placeholder) {
        Some(made) => uuid_of(&made),
        None => Err(Halt::Words(format!("another program dropped {name}"))),
    }
}

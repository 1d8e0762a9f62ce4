//! The placeholder: an empty collection with the name under which the plain documents will be kept.
//!
//! The rename of the plain collection to that name drops this placeholder by its UUID. So after the
//! placeholder has been dropped, a late rename fails.

use bson::raw::RawDocumentBuf;
use bson::{Binary, Document, doc};

use crate::maintenance::swap::{Freezing, Halt, uuid_of};
use crate::maintenance::upstream::description;
use crate::pattern::bucket::pack;

/// Whether a listed collection is a placeholder.
pub(super) fn is_one(described: &Document) -> bool {
    let options = described.get_document("options").ok();
    let options = options.and_then(|options| RawDocumentBuf::try_from(options).ok());
    options.is_some_and(|options| pack::is_placeholder(&options))
}

/// Drops an existing placeholder.
pub(super) async fn clear(by: Freezing<'_>) -> Result<(), Halt> {
    let name = pack::plain_name(&by.target.collection);
    match description(&by.target.database, &name).await? {
        Some(described) if is_one(&described) => by.drop(&name, Some(&uuid_of(&described)?)).await,
        _ => Ok(()),
    }
}

/// Creates a placeholder.
pub(super) async fn keep(by: Freezing<'_>) -> Result<Binary, Halt> {
    let name = pack::plain_name(&by.target.collection);
    let validator = Document::try_from(pack::placeholder()).map_err(|error| Halt::Words(error.to_string()))?;
    let create = doc! { "create": &name, "validator": validator };
    by.target.database.run_command(create).await?;
    let made = description(&by.target.database, &name).await?;
    match made.filter(is_one) {
        Some(made) => uuid_of(&made),
        None => Err(Halt::Words(format!("another program dropped {name}"))),
    }
}

//! Creates and drops a run's [fence](Fence).

use std::pin::pin;

use bson::raw::{RawArrayBuf, RawDocumentBuf, cstr};
use bson::{Binary, doc};
use mongodb::error::Error;
use mongodb::{Client, Database};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::commands::{INDEX_NOT_FOUND, PAUSE, append_concern, concern_kept, has_code};
use super::halt::Halt;
use super::kind::NAMESPACE_NOT_FOUND;
use crate::command::document::{array_of, single};
use crate::maintenance::upstream::{ShapedCollection, indexes_of};
use crate::pattern::bucket::fence::{Fence, is_fence, is_validator_fence};

/// mongod's code for an index that exists under another name.
pub(super) const OPTIONS_CONFLICT: i32 = 85;

/// The collection to fence.
#[derive(Clone, Copy)]
pub(super) struct Held<'a> {
    pub(super) client: &'a Client,
    pub(super) target: &'a ShapedCollection,
    pub(super) uuid: &'a Binary,
}

/// Drops existing fences and creates one with a new name. If the run is stopped meanwhile, no fence
/// is left.
pub(super) async fn put_up(held: Held<'_>, stop: &CancellationToken) -> Result<Fence, Halt> {
    let mut create = pin!(create(held));
    tokio::select! {
        fence = &mut create => return fence,
        () = stop.cancelled() => {}
    }
    let (database, name) = (&held.target.database, held.target.collection.as_str());
    loop {
        let is_answered = timeout(PAUSE, create.as_mut()).await.is_ok();
        // Dropping an index aborts its build.
        take_down(database, name, held.uuid).await?;
        if is_answered {
            return Err(Halt::Stopped);
        }
    }
}

/// Sent only once: a fence whose creation is uncertain is not used.
async fn create(held: Held<'_>) -> Result<Fence, Halt> {
    let (database, name) = (&held.target.database, held.target.collection.as_str());
    take_down(database, name, held.uuid).await?;
    let fence = Fence::of_run(rand::random());
    let mut command = single("createIndexes", name);
    command.append(cstr!("collectionUUID"), held.uuid);
    command.append(cstr!("indexes"), array_of(&fence.specs()));
    if is_set(held.client).await? {
        // Does not wait for unavailable members to build the indexes.
        command.append(cstr!("commitQuorum"), "majority");
    }
    append_concern(&mut command);
    match database.run_raw_command(command).await {
        Ok(reply) => concern_kept(&reply).map(|()| fence),
        Err(error) if has_code(&error, &[OPTIONS_CONFLICT]) => Err(Halt::Words(
            "another run has just started; wait until it ends".to_owned(),
        )),
        Err(error) => Err(error.into()),
    }
}

/// Drops all fences from the collection with that name and UUID.
pub(crate) async fn take_down(database: &Database, name: &str, uuid: &Binary) -> Result<(), Halt> {
    take_down_where(database, name, uuid, is_fence).await
}

async fn take_down_where(
    database: &Database,
    name: &str,
    uuid: &Binary,
    is_meant: fn(&str) -> bool,
) -> Result<(), Halt> {
    let there = match indexes_of(database, name).await {
        Err(error) if has_code(&error, &[NAMESPACE_NOT_FOUND]) => return Ok(()),
        there => there?,
    };
    let names = there.iter().filter_map(|index| index.get_str("name").ok());
    for fence in names.filter(|name| is_meant(name)) {
        let mut command = drop_indexes(name, uuid, &[fence.to_owned()]);
        append_concern(&mut command);
        match database.run_raw_command(command).await {
            Err(error) if has_code(&error, &[INDEX_NOT_FOUND]) => {}
            reply => concern_kept(&reply?)?,
        }
    }
    Ok(())
}

/// Drops the fences of proxies that change the validator.
pub(super) async fn take_down_validator_fences(database: &Database, name: &str, uuid: &Binary) -> Result<(), Halt> {
    take_down_where(database, name, uuid, is_validator_fence).await
}

pub(super) fn drop_indexes(name: &str, uuid: &Binary, indexes: &[String]) -> RawDocumentBuf {
    let mut command = single("dropIndexes", name);
    command.append(cstr!("collectionUUID"), uuid);
    let indexes: RawArrayBuf = indexes.iter().map(String::as_str).collect();
    command.append(cstr!("index"), &indexes);
    command
}

pub(super) async fn is_set(client: &Client) -> Result<bool, Error> {
    let hello = client.database("admin").run_command(doc! { "hello": 1 }).await?;
    Ok(hello.contains_key("setName"))
}

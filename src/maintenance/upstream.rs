//! The upstream through the driver: clients, existing shaped namespaces, and their indexes. For
//! `check`, `setup` and readiness, never for a client's commands.

mod targets;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Bson, Document, doc};
use futures_util::TryStreamExt;
use mongodb::error::{Error, ErrorKind};
use mongodb::options::{ClientOptions, ServerAddress, Tls};
use mongodb::{Client, Database};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::command::document::{get, put, single};
use crate::command::error::is_retryable;
use crate::command::namespace::Namespace;
use crate::config::UpstreamConfig;
use crate::pattern::bucket::compact::VALIDATOR;
use crate::pattern::bucket::index;
use crate::pattern::shapes::{BucketShape, Mode, OutlierShape, Shape, StoredLayout};
use crate::server::tls;
use crate::server::topology::Dialing;

pub(crate) use self::targets::{listed_targets, named_shadows, named_targets, observed, plain_targets, targets};

/// Timeout of the server selection.
const SELECTION_TIMEOUT: Duration = Duration::from_secs(5);

/// The server's code for a missing privilege.
const UNAUTHORIZED: i32 = 13;
/// The server's code for a missing collection.
const NAMESPACE_NOT_FOUND: i32 = 26;

/// The driver's options for the upstream.
pub(crate) async fn options(upstream: &UpstreamConfig) -> anyhow::Result<ClientOptions> {
    let parsed = ClientOptions::parse(upstream.uri.as_str()).await;
    let mut options = parsed.map_err(|error| anyhow!("`upstream.uri`: {}", explain(&error)))?;
    options.app_name = Some("mongoshape".to_owned());
    options.connect_timeout = Some(upstream.connect_timeout);
    options.server_selection_timeout = Some(SELECTION_TIMEOUT);
    Ok(options)
}

/// The options with which sessions connect, derived from the driver's. Must be called before a
/// client is created: errors about certificates then name the file.
///
/// # Errors
/// If a certificate cannot be used.
pub(crate) fn dialing(options: &ClientOptions, stop: &CancellationToken) -> anyhow::Result<Dialing> {
    let tls = match &options.tls {
        Some(Tls::Enabled(options)) => Some(tls::connector(options)?),
        _ => None,
    };
    let stop = stop.clone();
    Ok(Dialing { tls, stop })
}

/// A client of a listener of the proxy itself, with the credentials of the upstream. `name` begins the
/// application's name, and the secret that the listener requires ends it.
pub(crate) async fn client_of_listener(
    upstream: &UpstreamConfig,
    listener: SocketAddr,
    secret: &str,
    name: &str,
) -> anyhow::Result<Client> {
    let mut options = options(upstream).await?;
    options.hosts = vec![ServerAddress::Tcp {
        host: listener.ip().to_string(),
        port: Some(listener.port()),
    }];
    options.tls = None;
    options.repl_set_name = None;
    options.direct_connection = Some(true);
    // The driver sends the name in the first message of every connection.
    options.app_name = Some(format!("{name} {secret}"));
    Ok(Client::with_options(options)?)
}

/// A client with the configured credentials, if any.
///
/// # Errors
/// If no upstream address accepts connections. This is tested with plain sockets, which fail at
/// once and with a short reason. The driver would try until its timeout.
pub(crate) async fn client(upstream: &UpstreamConfig) -> anyhow::Result<Client> {
    connect(options(upstream).await?).await
}

/// Like [`client`], with an application name that the server lists.
pub(crate) async fn named_client(upstream: &UpstreamConfig, name: &str) -> anyhow::Result<Client> {
    let mut options = options(upstream).await?;
    options.app_name = Some(name.to_owned());
    connect(options).await
}

async fn connect(options: ClientOptions) -> anyhow::Result<Client> {
    dialing(&options, &CancellationToken::new())?;
    any_reachable(&options.hosts).await?;
    Ok(Client::with_options(options)?)
}

/// Connects to all addresses at once, so the timeout elapses only once.
async fn any_reachable(addresses: &[ServerAddress]) -> anyhow::Result<()> {
    let mut attempts = JoinSet::new();
    for address in addresses {
        let address = address.to_string();
        attempts.spawn(async move {
            let connected = timeout(SELECTION_TIMEOUT, TcpStream::connect(&address)).await;
            let connected = connected.unwrap_or_else(|elapsed| Err(elapsed.into()));
            connected
                .map(|_| ())
                .with_context(|| format!("{address} cannot be reached"))
        });
    }
    let mut unreachable = Ok(());
    while let Some(attempt) = attempts.join_next().await {
        unreachable = attempt?;
        if unreachable.is_ok() {
            break;
        }
    }
    unreachable
}

/// Ends a client. Must be called before the runtime ends: a dropped client ends its sessions in the
/// background, and panics if the runtime ends first.
pub(crate) async fn close(client: Client) {
    // A server that does not reply must not delay the end.
    let _ = timeout(SELECTION_TIMEOUT, client.shutdown().immediate(true).into_future()).await;
}

/// A failed command's error for a person: the server's code and message, without the driver's inner
/// state.
pub(crate) fn explain(error: &Error) -> String {
    match error.kind.as_ref() {
        ErrorKind::Command(command) if command.code == UNAUTHORIZED => {
            // The server appends the whole command to the message.
            let denied = command.message.split(" to execute command").next().unwrap_or_default();
            if denied.ends_with("requires authentication") {
                return format!("{denied}; add the credentials of a user to `upstream.uri`");
            }
            format!("{denied}; grant the user of `upstream.uri` the right")
        }
        ErrorKind::Command(command) => format!("{} ({}): {}", command.code_name, command.code, command.message),
        ErrorKind::ServerSelection { message, .. } => {
            let seconds = SELECTION_TIMEOUT.as_secs();
            format!(
                "no writable server was found within {seconds} s; check the hosts and `replicaSet` of `upstream.uri` ({message})"
            )
        }
        ErrorKind::Authentication { .. } => {
            "authentication failed; correct the credentials in `upstream.uri`".to_owned()
        }
        kind => kind.to_string(),
    }
}

/// Whether the configured credentials are missing, wrong, or lack a privilege.
pub(crate) fn is_refused(error: &Error) -> bool {
    match error.kind.as_ref() {
        ErrorKind::Authentication { .. } => true,
        ErrorKind::Command(command) => command.code == UNAUTHORIZED,
        _ => false,
    }
}

/// Whether a command failed because its collection does not exist.
pub(crate) fn is_missing(error: &Error) -> bool {
    matches!(error.kind.as_ref(), ErrorKind::Command(command) if command.code == NAMESPACE_NOT_FOUND)
}

/// Whether no server replied, or one that is no longer the primary. The topology monitor reports that.
pub(crate) fn is_unavailable(error: &Error) -> bool {
    match error.kind.as_ref() {
        ErrorKind::Io(_)
        | ErrorKind::ServerSelection { .. }
        | ErrorKind::ConnectionPoolCleared { .. }
        | ErrorKind::DnsResolve { .. } => true,
        ErrorKind::Command(command) => is_retryable(command.code),
        _ => false,
    }
}

/// A collection that has a shape.
pub(crate) struct ShapedCollection {
    pub(crate) database: Database,
    pub(crate) collection: String,
    shape: Arc<Shape>,
}

impl ShapedCollection {
    /// The shape's collection in this database.
    fn of(client: &Client, database: &str, shape: &Arc<Shape>) -> Self {
        Self {
            database: client.database(database),
            collection: shape.namespace().collection().to_owned(),
            shape: Arc::clone(shape),
        }
    }

    /// A collection with this shape, whatever the configuration contains.
    pub(crate) fn with_shape(database: Database, collection: String, shape: Arc<Shape>) -> Self {
        Self {
            database,
            collection,
            shape,
        }
    }

    /// `database.collection`.
    pub(crate) fn namespace(&self) -> String {
        Namespace::new(self.database.name(), &self.collection).to_string()
    }

    /// A collection with another name in the same database, with the same shape.
    pub(crate) fn named(&self, collection: String) -> Self {
        Self {
            database: self.database.clone(),
            collection,
            shape: Arc::clone(&self.shape),
        }
    }

    /// The same collection through another client.
    pub(crate) fn through(&self, client: &Client) -> Self {
        Self {
            database: client.database(self.database.name()),
            collection: self.collection.clone(),
            shape: Arc::clone(&self.shape),
        }
    }

    /// Whether its shape applies only while it contains pages.
    pub(crate) fn is_automatic(&self) -> bool {
        self.shape.mode() == Mode::Auto
    }

    /// Its bucket shape, if it has one.
    pub(crate) fn bucket(&self) -> Option<&BucketShape> {
        match &*self.shape {
            Shape::Bucket(shape) => Some(shape),
            Shape::Outlier(_) => None,
        }
    }

    /// Its outlier shape, if it has one.
    pub(crate) fn outlier(&self) -> Option<&OutlierShape> {
        match &*self.shape {
            Shape::Outlier(shape) => Some(shape),
            Shape::Bucket(_) => None,
        }
    }
}

/// A collection with an automatic shape, with the shape that its pages record: a conversion may have given it
/// another one than the configured. `None`: it exists and has no page index.
pub(crate) async fn with_recorded_shape(target: &ShapedCollection) -> Result<Option<ShapedCollection>, Error> {
    let configured = || target.named(target.collection.clone());
    if description(&target.database, &target.collection).await?.is_none() {
        return Ok(Some(configured()));
    }
    let indexes = raw_specs(&indexes(target).await?);
    let is_page_index = |spec: &RawDocumentBuf| get(spec, "name").and_then(RawBsonRef::as_str) == Some(index::PAGE);
    if !indexes.iter().any(is_page_index) {
        return Ok(None);
    }
    let layout = StoredLayout::of_pages(indexes.iter().map(|spec| &**spec));
    let shape = target.bucket().and_then(|shape| layout.recorded_shape(shape));
    Ok(Some(shape.map_or_else(configured, |shape| ShapedCollection {
        shape: Arc::new(Shape::Bucket(shape)),
        ..configured()
    })))
}

/// The entry of a collection in `listCollections`. `None` if it does not exist.
pub(crate) async fn description(database: &Database, collection: &str) -> Result<Option<Document>, Error> {
    let command = doc! { "listCollections": 1, "filter": { "name": collection } };
    database.run_cursor_command(command).await?.try_next().await
}

/// The options of a collection in `listCollections`, in mongod's own bytes: a validator may have a field
/// twice. `None` if it does not exist.
pub(crate) async fn listed_options(database: &Database, collection: &str) -> Result<Option<RawDocumentBuf>, Error> {
    let mut list = single("listCollections", 1);
    put(&mut list, "filter", single("name", collection));
    let listed = database.run_raw_cursor_command(list).await?;
    let listed = listed.with_type::<RawDocumentBuf>().try_next().await?;
    Ok(listed.map(|listed| {
        let options = get(&listed, "options").and_then(RawBsonRef::as_document);
        options.map(RawDocument::to_owned).unwrap_or_default()
    }))
}

/// The validator of a listed collection.
pub(crate) fn described_validator(described: &Document) -> Option<RawDocumentBuf> {
    let options = described.get_document("options").ok()?;
    RawDocumentBuf::try_from(options.get_document(VALIDATOR).ok()?).ok()
}

/// The indexes of an existing collection, as `listIndexes` returns them.
pub(crate) async fn indexes(target: &ShapedCollection) -> Result<Vec<Document>, Error> {
    indexes_of(&target.database, &target.collection).await
}

/// Like [`indexes`], without indexes that mongod is building.
pub(crate) async fn ready_indexes(target: &ShapedCollection) -> Result<Vec<Document>, Error> {
    let command = doc! { "listIndexes": &target.collection, "includeBuildUUIDs": true };
    let listed = target.database.run_cursor_command(command).await?;
    let mut indexes: Vec<Document> = listed.try_collect().await?;
    indexes.retain(|index| !index.contains_key("buildUUID"));
    Ok(indexes)
}

/// Like [`indexes`], for any collection.
pub(crate) async fn indexes_of(database: &Database, collection: &str) -> Result<Vec<Document>, Error> {
    let command = doc! { "listIndexes": collection };
    database.run_cursor_command(command).await?.try_collect().await
}

/// The specifications of listed indexes, as raw documents.
pub(crate) fn raw_specs(listed: &[Document]) -> Vec<RawDocumentBuf> {
    let specs = listed.iter();
    specs.filter_map(|spec| RawDocumentBuf::try_from(spec).ok()).collect()
}

/// Whether an existing index equals the wanted one, except for its name.
pub(crate) fn is_same_index(wanted: &Document, found: &Document) -> bool {
    let set = |index: &Document, option| index.get_bool(option).unwrap_or(false);
    is_same_key(wanted, found)
        && ["unique", "sparse"].iter().all(|option| set(wanted, option) == set(found, option))
        && wanted.get("partialFilterExpression") == found.get("partialFilterExpression")
        // Each of these options makes the index contain fewer entries, or compare differently.
        && !["collation", "expireAfterSeconds", "hidden"].iter().any(|option| found.contains_key(option))
}

/// Whether two indexes have the same fields in the same order and direction.
pub(crate) fn is_same_key(one: &Document, other: &Document) -> bool {
    let fields = |index: &Document| -> Vec<(String, Option<i64>)> {
        let key = index.get_document("key").cloned().unwrap_or_default();
        key.into_iter()
            .map(|(field, direction)| (field, as_integer(&direction)))
            .collect()
    };
    fields(one) == fields(other)
}

/// A number of any of MongoDB's types. A shell writes 1 as a double.
pub(crate) fn as_integer(value: &Bson) -> Option<i64> {
    match value {
        Bson::Int32(number) => Some(i64::from(*number)),
        Bson::Int64(number) => Some(*number),
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a direction or a small count; a cast saturates"
        )]
        Bson::Double(number) if number.fract() == 0.0 => Some(*number as i64),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_equal_regardless_of_name_and_number_type() {
        let wanted = doc! { "key": { "a": 1, "control.page": 1 }, "name": "mongoshape_page", "unique": true };
        let check = |found: Document, expected| assert_eq!(is_same_index(&wanted, &found), expected, "{found}");
        check(
            doc! { "v": 2, "key": { "a": 1.0, "control.page": 1_i64 }, "name": "x", "unique": true },
            true,
        );
        check(doc! { "key": { "a": 1, "control.page": 1 } }, false);
        check(doc! { "key": { "a": 1, "control.page": -1 }, "unique": true }, false);
        check(doc! { "key": { "control.page": 1, "a": 1 }, "unique": true }, false);
        check(
            doc! { "key": { "a": 1, "control.page": 1 }, "unique": true, "sparse": true },
            false,
        );
        check(
            doc! { "key": { "a": 1, "control.page": 1 }, "unique": true, "hidden": true },
            false,
        );
        let partial =
            doc! { "key": { "a": 1, "control.page": 1 }, "unique": true, "partialFilterExpression": { "a": 1 } };
        check(partial, false);
    }
}

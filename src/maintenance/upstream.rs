//! The driver's side of the upstream: clients, the shaped namespaces that exist, and the indexes they have.
//! For `check`, `setup` and readiness; never for a client's commands.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use bson::{Bson, Document, doc};
use futures_util::TryStreamExt;
use mongodb::error::{Error, ErrorKind};
use mongodb::options::{ClientOptions, ServerAddress, Tls};
use mongodb::{Client, Database};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::command::namespace::Namespace;
use crate::config::{Config, UpstreamConfig};
use crate::pattern::shapes::{BucketShape, Mode, OutlierShape, Shape, Shapes};
use crate::server::tls;
use crate::server::topology::Dialing;

/// How long the upstream may take to be found.
const SELECTION_TIMEOUT: Duration = Duration::from_secs(5);

/// The server's code where a user has not the right to run a command.
const UNAUTHORIZED: i32 = 13;

/// The driver's options for the upstream.
pub(crate) async fn options(upstream: &UpstreamConfig) -> anyhow::Result<ClientOptions> {
    let parsed = ClientOptions::parse(upstream.uri.as_str()).await;
    let mut options = parsed.map_err(|error| anyhow!("`upstream.uri`: {}", explain(&error)))?;
    options.app_name = Some("mongoshape".to_owned());
    options.connect_timeout = Some(upstream.connect_timeout);
    options.server_selection_timeout = Some(SELECTION_TIMEOUT);
    Ok(options)
}

/// How sessions connect to it: by the same options as the driver. To be called before there is a client: what
/// is wrong with a certificate is said in our words, which name the file.
///
/// # Errors
/// A certificate that cannot be used.
pub(crate) fn dialing(options: &ClientOptions, stop: &CancellationToken) -> anyhow::Result<Dialing> {
    let tls = match &options.tls {
        Some(Tls::Enabled(options)) => Some(tls::connector(options)?),
        _ => None,
    };
    let stop = stop.clone();
    Ok(Dialing { tls, stop })
}

/// A client with the configuration's own credentials, if it has any.
///
/// # Errors
/// When nothing listens at any of the upstream's addresses. A socket of our own says why, in few words and at
/// once; the driver would try until its time is up.
pub(crate) async fn client(upstream: &UpstreamConfig) -> anyhow::Result<Client> {
    connect(options(upstream).await?).await
}

/// The same under a name of its own, by which the server lists its connections.
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

/// Connects to all addresses at once: those that do not answer cost their time once, and not one after the
/// other.
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

/// Ends a client's work. To be called before the runtime ends: the driver ends its sessions in the background
/// when a client is dropped, and panics when the runtime goes away meanwhile.
pub(crate) async fn close(client: Client) {
    // A server that does not answer is no reason to stay.
    let _ = timeout(SELECTION_TIMEOUT, client.shutdown().immediate(true).into_future()).await;
}

/// What a failed command means to a person: the server's code and words, without the driver's inner state.
pub(crate) fn explain(error: &Error) -> String {
    match error.kind.as_ref() {
        ErrorKind::Command(command) if command.code == UNAUTHORIZED => {
            // The server repeats the whole command behind this.
            let denied = command.message.split(" to execute command").next().unwrap_or_default();
            format!("{denied}; grant the user of `upstream.uri` the right")
        }
        ErrorKind::Command(command) => format!("{} ({}): {}", command.code_name, command.code, command.message),
        ErrorKind::ServerSelection { message, .. } => {
            let seconds = SELECTION_TIMEOUT.as_secs();
            format!(
                "no server to write to was found within {seconds} s; check the hosts and `replicaSet` of `upstream.uri` ({message})"
            )
        }
        ErrorKind::Authentication { .. } => {
            "authentication failed; correct the credentials in `upstream.uri`".to_owned()
        }
        kind => kind.to_string(),
    }
}

/// Whether the configuration's credentials are missing, wrong, or without the right to run a command.
pub(crate) fn is_refused(error: &Error) -> bool {
    match error.kind.as_ref() {
        ErrorKind::Authentication { .. } => true,
        ErrorKind::Command(command) => command.code == UNAUTHORIZED,
        _ => false,
    }
}

/// A collection with a shape whose commands are rewritten.
pub(crate) struct ShapedCollection {
    pub(crate) database: Database,
    pub(crate) collection: String,
    shape: Arc<Shape>,
}

impl ShapedCollection {
    /// The shape's collection in the database of that name.
    fn of(client: &Client, database: &str, shape: &Arc<Shape>) -> Self {
        Self {
            database: client.database(database),
            collection: shape.namespace().collection().to_owned(),
            shape: Arc::clone(shape),
        }
    }

    /// `database.collection`.
    pub(crate) fn namespace(&self) -> String {
        Namespace::new(self.database.name(), &self.collection).to_string()
    }

    /// The same, reached through another client.
    pub(crate) fn through(&self, client: &Client) -> Self {
        Self {
            database: client.database(self.database.name()),
            collection: self.collection.clone(),
            shape: Arc::clone(&self.shape),
        }
    }

    /// Its shape; `None` if it is no bucket shape.
    pub(crate) fn bucket(&self) -> Option<&BucketShape> {
        match &*self.shape {
            Shape::Bucket(shape) => Some(shape),
            Shape::Outlier(_) => None,
        }
    }

    /// Its shape; `None` if it is no outlier shape.
    pub(crate) fn outlier(&self) -> Option<&OutlierShape> {
        match &*self.shape {
            Shape::Outlier(shape) => Some(shape),
            Shape::Bucket(_) => None,
        }
    }
}

/// Every namespace that a shape is for: the named ones, whether they exist or not, and for `*.collection`
/// each database that has the collection. Sorted by namespace.
///
/// Those that are only observed are left out: they hold plain documents.
pub(crate) async fn targets(client: &Client, config: &Config) -> anyhow::Result<Vec<ShapedCollection>> {
    let mut targets = Vec::new();
    let is_rewritten = |shape: &&Arc<Shape>| shape.mode() == Mode::Rewrite;
    for shape in config.shapes.iter().filter(is_rewritten) {
        let collection = shape.namespace().collection();
        let databases = match shape.namespace().database() {
            Some(name) => vec![name.to_owned()],
            None => databases_with(client, collection).await?,
        };
        for name in databases {
            // A database's own shape goes before the one for every database.
            let looked_up = config.shapes.lookup(Namespace::new(&name, collection));
            if looked_up.is_some_and(|found| Arc::ptr_eq(found, shape)) {
                targets.push(ShapedCollection::of(client, &name, shape));
            }
        }
    }
    targets.sort_by_key(ShapedCollection::namespace);
    Ok(targets)
}

/// The [targets] whose database the configuration names. Asks the upstream nothing.
pub(crate) fn named_targets(client: &Client, shapes: &Shapes) -> Vec<ShapedCollection> {
    let rewritten = shapes.iter().filter(|shape| shape.mode() == Mode::Rewrite);
    let named = rewritten.filter_map(|shape| Some(ShapedCollection::of(client, shape.namespace().database()?, shape)));
    named.collect()
}

async fn databases_with(client: &Client, collection: &str) -> anyhow::Result<Vec<String>> {
    let unlisted = |error: Error| anyhow::anyhow!("databases cannot be listed: {}", explain(&error));
    let names = client.list_database_names().await.map_err(unlisted)?;
    let mut having = Vec::new();
    for name in names {
        let described = description(&client.database(&name), collection).await;
        if described.map_err(unlisted)?.is_some() {
            having.push(name);
        }
    }
    Ok(having)
}

/// What `listCollections` says of a collection; `None` if there is none.
pub(crate) async fn description(database: &Database, collection: &str) -> Result<Option<Document>, Error> {
    let command = doc! { "listCollections": 1, "filter": { "name": collection } };
    database.run_cursor_command(command).await?.try_next().await
}

/// What `listIndexes` says of a collection that exists, whatever its kind.
pub(crate) async fn indexes(target: &ShapedCollection) -> Result<Vec<Document>, Error> {
    indexes_of(&target.database, &target.collection).await
}

/// The same of any collection.
pub(crate) async fn indexes_of(database: &Database, collection: &str) -> Result<Vec<Document>, Error> {
    let command = doc! { "listIndexes": collection };
    database.run_cursor_command(command).await?.try_collect().await
}

/// Whether an index that is there is the one that is asked for. Its name does not matter.
pub(crate) fn is_same_index(wanted: &Document, found: &Document) -> bool {
    let set = |index: &Document, option| index.get_bool(option).unwrap_or(false);
    is_same_key(wanted, found)
        && ["unique", "sparse"].iter().all(|option| set(wanted, option) == set(found, option))
        && wanted.get("partialFilterExpression") == found.get("partialFilterExpression")
        // Any of these makes it hold less, or compare otherwise.
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

/// A number of any of MongoDB's types: a shell writes 1 as a double.
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
    fn an_index_is_the_same_whatever_its_name_and_number_type() {
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

//! `demo`: runs an application on a shaped collection. Prints its code and result, the stored pages, and the times of
//! reads beside a plain collection.
//!
//! The proxy is a child process, `mongoshape serve`. The demo creates two databases on the user's server, and drops
//! them at the end. It ends with an error if one of them exists. The printed code is this layer's source file.
#![expect(clippy::print_stdout, reason = "the output of a command")]

mod application;
mod pages;
mod print;
mod proxy;

use std::net::SocketAddr;

use anyhow::{Context as _, ensure};
use bson::{Document, doc};
use futures_util::TryStreamExt as _;
use mongodb::Client;

use self::print::{indented, note, section};
use self::proxy::DemoProxy;

const UNREACHABLE: &str = "the server cannot be reached: start mongod, or correct --uri";

/// The options of a demo.
#[derive(Clone, Debug)]
pub(crate) struct DemoOptions {
    /// The connection string of the server. Its user needs the right to create databases.
    pub(crate) uri: String,
    /// The database of the shaped collections. The one of the plain collection has `_plain` appended.
    pub(crate) database: String,
    /// The number of trades of the customer whose pages are read.
    pub(crate) trades: u32,
    /// Whether to keep the databases and the proxy until Ctrl-C.
    pub(crate) keep: bool,
}

/// The two databases of a demo.
#[derive(Clone, Debug)]
struct DemoDatabases {
    shaped: String,
    plain: String,
}

/// Runs the demo, and drops its databases, also after an error or Ctrl-C.
///
/// # Errors
/// If one of the databases exists, the server is unreachable, or a step fails.
pub(crate) async fn run(options: &DemoOptions) -> anyhow::Result<()> {
    let databases = DemoDatabases {
        shaped: options.database.clone(),
        plain: format!("{}_plain", options.database),
    };
    let client = Client::with_uri_str(&options.uri).await.context(UNREACHABLE)?;
    databases.check_are_new(&client).await?;
    let shown = tokio::select! {
        shown = show(options, &databases, &client) => shown,
        interrupted = tokio::signal::ctrl_c() => interrupted.context("Ctrl-C cannot be awaited"),
    };
    databases.drop_both(&client).await?;
    shown?;
    println!("\nThe proxy is stopped, and the databases are dropped.");
    println!("Next: name your collections in a mongoshape.toml, then `mongoshape check` and `mongoshape serve`.");
    Ok(())
}

async fn show(options: &DemoOptions, databases: &DemoDatabases, client: &Client) -> anyhow::Result<()> {
    section("Starting mongoshape");
    let shapes = shapes(&databases.shaped);
    let proxy = DemoProxy::start(&options.uri, &shapes).await?;
    note(&format!("mongoshape at {}, configured with:\n", proxy.address));
    indented(&shapes);
    let proxied = proxy.client(&options.uri).await?;
    application::show(&proxied, &databases.shaped).await?;
    stored(client, &databases.shaped).await?;
    pages::show(&proxied, client, databases, options.trades).await?;
    if options.keep {
        keep(proxy.address, &databases.shaped);
        std::future::pending::<()>().await;
    }
    proxy.stop().await
}

fn shapes(database: &str) -> String {
    format!(
        r#"[[bucket]]
namespace = "{database}.trades"
key = "customerId"
time = "date"
rename = {{ quantity = "qty" }}
item_ids = "dropped"

[[bucket]]
namespace = "{database}.orders"
key = "customerId"
time = "date"
"#
    )
}

/// Shows the stored documents of the application's trades.
async fn stored(client: &Client, database: &str) -> anyhow::Result<()> {
    section(&format!("What mongod stores in {database}.trades: one document a page"));
    note("`control` belongs to mongoshape. These trades have no `_id`: item_ids = \"dropped\" saves its space.\n");
    let trades = client.database(database).collection::<Document>("trades");
    let pages: Vec<Document> = trades.find(doc! {}).await?.try_collect().await?;
    pages.iter().for_each(print::document);
    Ok(())
}

fn keep(address: SocketAddr, database: &str) {
    section("Try it yourself; Ctrl-C ends the proxy and drops the databases");
    note("As the application sees it:\n");
    indented(&format!(
        "mongosh \"mongodb://{address}/{database}?directConnection=true\""
    ));
    println!();
    note("What mongod stores: the same database, by your own connection string");
}

impl DemoDatabases {
    async fn check_are_new(&self, client: &Client) -> anyhow::Result<()> {
        let existing = client.list_database_names().await.context(UNREACHABLE)?;
        for name in [&self.shaped, &self.plain] {
            ensure!(
                !existing.contains(name),
                "the database {name} exists. Choose another with --database; if an earlier demo was killed, drop it"
            );
        }
        Ok(())
    }

    async fn drop_both(&self, client: &Client) -> anyhow::Result<()> {
        for name in [&self.shaped, &self.plain] {
            let dropped = client.database(name).drop().await;
            dropped.with_context(|| format!("the database {name} could not be dropped"))?;
        }
        Ok(())
    }
}

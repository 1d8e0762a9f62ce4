//! The script that every driver runs, on the Rust driver: `drivers <connection string> <database>`.

mod administration;
mod changes;
mod reads;
mod sessions;
mod transactions;
mod transcript;
mod writes;

use anyhow::{Context as _, Result};
use bson::{Bson, Document, doc};
use mongodb::options::ClientOptions;
use mongodb::{Client, Collection, Database};

use transcript::show;

const FACTS: [&str; 6] = [
    "maxWireVersion",
    "maxBsonObjectSize",
    "maxMessageSizeBytes",
    "maxWriteBatchSize",
    "logicalSessionTimeoutMinutes",
    "readOnly",
];

/// What every step needs.
struct Script {
    client: Client,
    database: Database,
    items: Collection<Document>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let uri = arguments.next().context("a connection string")?;
    let name = arguments.next().context("a database's name")?;
    let mut options = ClientOptions::parse(uri).await?;
    options.app_name = Some(name.clone());
    let client = Client::with_options(options)?;
    let database = client.database(&name);
    database.drop().await?;
    let items = database.collection("items");
    let script = Script {
        client,
        database,
        items,
    };
    script.run().await?;
    script.database.drop().await?;
    Ok(())
}

impl Script {
    async fn run(&self) -> Result<()> {
        let hello = self.admin(doc! { "hello": 1 }).await?;
        let build = self.admin(doc! { "buildInfo": 1 }).await?;
        let mut server = doc! { "version": build.get_str("version")? };
        for fact in FACTS {
            server.insert(fact, hello.get(fact).cloned().unwrap_or(Bson::Null));
        }
        show("server", server);
        show("ping", self.admin(doc! { "ping": 1 }).await?.get("ok").cloned());
        self.writes().await?;
        self.bulk_writes().await?;
        self.updates().await?;
        self.reads().await?;
        self.aggregates().await?;
        self.administration().await?;
        self.refusals().await?;
        self.large().await?;
        self.unacknowledged().await?;
        self.sessions().await?;
        if hello.contains_key("setName") || hello.get_str("msg").is_ok_and(|message| message == "isdbgrid") {
            self.transactions().await?;
            self.with_transaction().await?;
            self.conflict().await?;
            self.concerns().await?;
            self.snapshot().await?;
            self.changes().await
        } else {
            self.on_standalone().await
        }
    }

    async fn admin(&self, command: Document) -> Result<Document> {
        Ok(self.client.database("admin").run_command(command).await?)
    }
}

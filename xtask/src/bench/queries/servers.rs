//! The servers of one size of the collection, and the routes to query it.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use bson::{Document, doc};
use proto_tests::{ItemIds, Mongod, Proxy, ProxyOptions, Shape, mongod};

use super::messages::{KEY, Message, Messages, TIME};
use super::shapes::CONVERSATIONS;
use crate::bench::client::{Client, Retries};
use crate::bench::haproxy::HaProxy;
use crate::bench::model::Write;
use crate::bench::place::checkpoint;
use crate::bench::process::cpu_time;

/// The database of all collections.
pub(super) const DATABASE: &str = "queries";
const PLAIN: &str = "plain";
const SHAPED: &str = "shaped";
/// Messages in a command, about 1 MB.
const BATCH: usize = 5000;

/// A measured variant: a collection and a route to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Variant {
    /// The plain collection in mongod itself.
    Plain,
    /// The plain collection through `HAProxy`.
    HaProxy,
    /// The shaped collection through mongoshape.
    Shaped,
}

impl Variant {
    /// The name of the collection.
    pub(super) fn collection(self) -> &'static str {
        match self {
            Self::Plain | Self::HaProxy => PLAIN,
            Self::Shaped => SHAPED,
        }
    }
}

/// How servers are started.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setup<'a> {
    pub(super) cache_gb: f32,
    pub(super) item_ids: ItemIds,
    /// The binary of mongoshape.
    pub(super) binary: &'a Path,
}

/// Running servers. They end when dropped, a proxy before mongod.
#[derive(Debug)]
pub(super) struct Servers {
    proxy: Proxy,
    haproxy: Option<HaProxy>,
    mongod: Mongod,
}

impl Servers {
    /// Starts mongod, mongoshape and, where it is installed, `HAProxy`.
    pub(super) fn start(setup: Setup<'_>) -> Result<Self> {
        let options = mongod::Options::for_measurements(setup.cache_gb);
        let mongod = options.standalone()?;
        let shape = Shape {
            time: Some(TIME.to_owned()),
            item_ids: setup.item_ids,
            ..Shape::new(&[KEY])
        };
        let proxy = ProxyOptions::new(&mongod.uri()).config(&shape.toml(&format!("{DATABASE}.{SHAPED}")));
        Ok(Self {
            proxy: Proxy::start(&proxy.binary(setup.binary))?,
            haproxy: HaProxy::start(mongod.address())?,
            mongod,
        })
    }

    /// All variants, without HAProxy's if it is not installed.
    pub(super) fn variants(&self) -> Vec<Variant> {
        let mut variants = vec![Variant::Plain, Variant::HaProxy, Variant::Shaped];
        variants.retain(|variant| *variant != Variant::HaProxy || self.haproxy.is_some());
        variants
    }

    /// The address to which an application sends its commands.
    pub(super) fn address(&self, variant: Variant) -> SocketAddr {
        match (variant, &self.haproxy) {
            (Variant::HaProxy, Some(haproxy)) => haproxy.address,
            (Variant::Shaped, _) => self.proxy.address(),
            _ => self.mongod.address(),
        }
    }

    /// The CPU time that mongod and the proxy of the variant have used.
    pub(super) fn cpu_times(&self, variant: Variant) -> Result<CpuTimes> {
        let proxy = match variant {
            Variant::Plain => None,
            Variant::HaProxy => self.haproxy.as_ref().map(HaProxy::id),
            Variant::Shaped => Some(self.proxy.id()),
        };
        Ok(CpuTimes {
            mongod: self.mongod.ids().into_iter().map(cpu_time).sum::<Result<_>>()?,
            proxy: proxy.map(cpu_time).transpose()?.unwrap_or_default(),
        })
    }

    /// Makes the collections and their indexes, and stores the messages in the order of their times.
    pub(super) fn fill(&self, messages: &Messages) -> Result<()> {
        for variant in [Variant::Plain, Variant::Shaped] {
            let collection = variant.collection();
            let mut client = Client::open(self.address(variant), DATABASE, Retries::None)?;
            client.command(doc! { "create": collection })?;
            client.command(doc! { "createIndexes": collection, "indexes": indexes() })?;
            for messages in messages.all.chunks(BATCH) {
                let documents = messages.iter().map(Message::document).collect();
                insert(&mut client, collection, documents)?;
            }
        }
        let mut client = Client::open(self.address(Variant::Plain), DATABASE, Retries::None)?;
        let conversations: Vec<_> = (0..messages.keys()).map(conversation).collect();
        for conversations in conversations.chunks(BATCH) {
            insert(&mut client, CONVERSATIONS, conversations.to_vec())?;
        }
        checkpoint(self.address(Variant::Plain))
    }
}

/// CPU time used so far.
#[derive(Debug, Clone, Copy)]
pub(super) struct CpuTimes {
    pub(super) mongod: Duration,
    pub(super) proxy: Duration,
}

/// What an application creates for the queries that are measured.
fn indexes() -> Vec<Document> {
    vec![
        doc! { "key": { KEY: 1, TIME: 1 }, "name": "key_time" },
        doc! { "key": { TIME: -1 }, "name": "newest" },
        doc! { "key": { "from": 1, TIME: -1 }, "name": "sender_newest" },
        doc! { "key": { "status": 1, TIME: 1 }, "name": "status_time" },
    ]
}

fn conversation(key: usize) -> Document {
    let key = i32::try_from(key).unwrap_or(i32::MAX);
    doc! { "_id": key, "title": format!("conversation {key}") }
}

fn insert(client: &mut Client, collection: &str, documents: Vec<Document>) -> Result<()> {
    let request = client.request(&Write::insert(collection, documents))?;
    client.exchange_all(&[request])?;
    Ok(())
}

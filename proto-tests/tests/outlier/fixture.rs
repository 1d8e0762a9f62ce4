//! A proxy with the collection of books, on a standalone or a replica set.

use anyhow::{Result, ensure};
use bson::{Bson, Document, doc};
use proto_tests::raw::Connection;
use proto_tests::{Mongod, Outlier, Proxy, ProxyOptions, Reads, database_name, invariants, mongod};

pub(crate) const BOOKS: &str = "sales";
pub(crate) const EXTRAS: &str = "extra_sales";

/// A database of its own behind one proxy.
pub(crate) struct Fixture {
    pub(crate) database: String,
    shape: Outlier,
    pub(crate) proxy: Proxy,
    uri: String,
    /// Through the proxy.
    pub(crate) application: Connection,
    /// On mongod.
    pub(crate) direct: Connection,
}

/// Does the same on a standalone and on a replica set.
pub(crate) fn on_each(check: impl Fn(&mut Fixture) -> Result<()>) -> Result<()> {
    for mongod in [mongod::shared(), mongod::shared_replica_set()] {
        let mut fixture = Fixture::on(mongod)?;
        check(&mut fixture)?;
        fixture.rest()?;
    }
    Ok(())
}

impl Fixture {
    pub(crate) fn on(mongod: &Mongod) -> Result<Self> {
        let database = database_name();
        let shape = Outlier {
            collection: Some(EXTRAS.to_owned()),
            reference: "book_id".to_owned(),
            ..Outlier::new("customers_purchased", (50, 1000))
        };
        let uri = mongod.uri();
        let proxy = Proxy::start(&ProxyOptions::new(&uri).config(&shape.toml(&format!("{database}.{BOOKS}"))))?;
        Ok(Self {
            application: Connection::open(proxy.address())?,
            direct: Connection::open(mongod.address())?,
            database,
            shape,
            proxy,
            uri,
        })
    }

    /// Another connection of the application's.
    pub(crate) fn another(&self) -> Result<Connection> {
        Connection::open(self.proxy.address())
    }

    /// Another proxy before the same books.
    pub(crate) fn another_proxy(&self) -> Result<Proxy> {
        self.proxy_of(&self.shape)
    }

    fn proxy_of(&self, shape: &Outlier) -> Result<Proxy> {
        let toml = shape.toml(&format!("{}.{BOOKS}", self.database));
        Proxy::start(&ProxyOptions::new(&self.uri).config(&toml))
    }

    /// Another proxy on the same books, with `reads = "base"`.
    pub(crate) fn of_bases(&self) -> Result<(Proxy, Connection)> {
        let shape = Outlier {
            reads: Reads::Base,
            ..self.shape.clone()
        };
        let proxy = self.proxy_of(&shape)?;
        let connection = Connection::open(proxy.address())?;
        Ok((proxy, connection))
    }

    /// The application's command, which must succeed in all of it.
    pub(crate) fn run(&mut self, mut command: Document) -> Result<Document> {
        command.insert("$db", self.database.as_str());
        let reply = self.application.command_ok(&command)?;
        ensure!(!reply.contains_key("writeErrors"), "{command}: {reply}");
        Ok(reply)
    }

    /// The application's command, which must be refused, with nothing changed.
    pub(crate) fn refused(&mut self, mut command: Document) -> Result<String> {
        let stored = |fixture: &mut Self| -> Result<_> { Ok([fixture.stored(BOOKS)?, fixture.stored(EXTRAS)?]) };
        let before = stored(self)?;
        command.insert("$db", self.database.as_str());
        let reply = self.application.command(&command)?;
        let error = reply
            .get_array("writeErrors")
            .ok()
            .and_then(|errors| errors.first()?.as_document().cloned());
        let error = error.unwrap_or(reply);
        ensure!(error.get_i32("code")? == 115, "{command}: {error}");
        ensure!(stored(self)? == before, "{command} has changed something");
        Ok(error.get_str("errmsg")?.to_owned())
    }

    /// Waits until no tail is left; fails where one stays.
    pub(crate) fn rest(&mut self) -> Result<()> {
        let Self {
            direct,
            database,
            shape,
            ..
        } = self;
        invariants::outlier::check(direct, database, BOOKS, shape)
    }

    /// What the application finds.
    pub(crate) fn find(&mut self, filter: Document) -> Result<Vec<Document>> {
        self.application.find(&self.database, BOOKS, filter)
    }

    /// What mongod holds, in its natural order.
    pub(crate) fn stored(&mut self, collection: &str) -> Result<Vec<Document>> {
        self.direct.find(&self.database, collection, doc! {})
    }
}

/// The first buyers' names.
pub(crate) fn buyers(range: std::ops::Range<usize>) -> Vec<Bson> {
    range.map(|number| format!("user{number:02}").into()).collect()
}

/// A typical book.
pub(crate) fn typical() -> Document {
    doc! {
        "_id": 1, "title": "Invisible Cities", "year": 1972, "author": "Italo Calvino",
        "customers_purchased": ["user00", "user01", "user02"],
    }
}

/// A book with so many buyers.
pub(crate) fn wooden_amulet(count: usize) -> Document {
    doc! {
        "_id": 2, "title": "The Wooden Amulet", "year": 2023, "author": "Lesley Moreno",
        "customers_purchased": buyers(0..count),
    }
}

//! A naive collection and a shaped one beside each other, on one replica set: the same commands on both, compared.

use anyhow::{Result, ensure};
use bson::{Document, doc};

use crate::raw::Connection;
use crate::{ItemIds, Proxy, ProxyOptions, Shape, database_name, invariants, mongod, replies};

/// The collections' name.
pub const COLLECTION: &str = "items";
/// What a reply says of what was done.
const SAID: [&str; 10] = [
    "n",
    "nModified",
    "value",
    "lastErrorObject",
    "writeErrors",
    "ok",
    "errmsg",
    "code",
    "codeName",
    "upserted",
];

/// The two sides.
#[derive(Debug)]
pub struct Sides {
    /// Of the shaped one.
    pub shape: Shape,
    /// What both databases' names begin with.
    database: String,
    /// A connection to mongod.
    pub naive: Connection,
    /// One to the proxy.
    pub shaped: Connection,
    /// The proxy.
    pub proxy: Proxy,
}

impl Sides {
    /// Two empty collections.
    pub fn open(shape: Shape) -> Result<Self> {
        let set = mongod::shared_replica_set();
        let database = database_name();
        let toml = shape.toml(&format!("{database}_s.{COLLECTION}"));
        let proxy = Proxy::start(&ProxyOptions::new(&set.uri()).config(&toml))?;
        Ok(Self {
            shape,
            naive: Connection::open(set.address())?,
            shaped: Connection::open(proxy.address())?,
            database,
            proxy,
        })
    }

    /// Another proxy before the shaped collection.
    pub fn another_proxy(&self) -> Result<Proxy> {
        let toml = self.shape.toml(&format!("{}.{COLLECTION}", self.shaped_database()));
        Proxy::start(&ProxyOptions::new(&mongod::shared_replica_set().uri()).config(&toml))
    }

    /// The shaped collection's database.
    #[must_use]
    pub fn shaped_database(&self) -> String {
        format!("{}_s", self.database)
    }

    /// The naive collection's database.
    #[must_use]
    pub fn naive_database(&self) -> String {
        format!("{}_n", self.database)
    }

    /// Runs a command on both, and gives what each says of what was done.
    pub fn run(&mut self, command: &Document) -> Result<[Document; 2]> {
        let databases = [self.naive_database(), self.shaped_database()];
        let mut said = Vec::new();
        for (connection, database) in [&mut self.naive, &mut self.shaped].into_iter().zip(databases) {
            let mut command = command.clone();
            command.insert("$db", &database);
            said.push(replies::said(&connection.command(&command)?, &SAID, &database));
        }
        let [shaped, naive] = [said.pop(), said.pop()].map(Option::unwrap_or_default);
        Ok([naive, shaped])
    }

    /// A command that both sides answer alike, words included.
    pub fn alike(&mut self, command: &Document) -> Result<Document> {
        let [naive, shaped] = self.run(command)?;
        ensure!(naive == shaped, "{command}\n  naive:  {naive}\n  shaped: {shaped}");
        Ok(naive)
    }

    /// A command on the shaped collection, which must succeed.
    pub fn on_shaped(&mut self, mut command: Document) -> Result<Document> {
        command.insert("$db", self.shaped_database());
        self.shaped.command_ok(&command)
    }

    /// The items of a side, in the order of a field; without `_id` where the shape keeps none.
    pub fn items(&mut self, is_shaped: bool, sort: &str) -> Result<Vec<Document>> {
        let database = if is_shaped {
            self.shaped_database()
        } else {
            self.naive_database()
        };
        let find = doc! { "find": COLLECTION, "sort": { sort: 1 }, "$db": database };
        let connection = if is_shaped { &mut self.shaped } else { &mut self.naive };
        let mut items = connection.all(&find)?;
        if self.shape.item_ids == ItemIds::Dropped {
            for item in &mut items {
                item.remove("_id");
            }
        }
        Ok(items)
    }

    /// The stored buckets, as mongod has them.
    pub fn buckets(&mut self) -> Result<Vec<Document>> {
        let find = doc! { "find": COLLECTION, "$db": self.shaped_database() };
        self.naive.all(&find)
    }

    /// Fails where the two sides differ, in the order of a field that no two items share, or the layout is broken.
    pub fn check(&mut self, sort: &str) -> Result<()> {
        let (naive, shaped) = (self.items(false, sort)?, self.items(true, sort)?);
        for (naive, shaped) in naive.iter().zip(&shaped) {
            ensure!(naive == shaped, "\n  naive:  {naive:?}\n  shaped: {shaped:?}");
        }
        let lengths = (naive.len(), shaped.len());
        ensure!(lengths.0 == lengths.1, "{lengths:?} items");
        let database = self.shaped_database();
        invariants::check(&mut self.naive, &database, COLLECTION, &self.shape)
    }
}

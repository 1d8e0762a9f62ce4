//! Updates of the same items by several clients, through two proxies.

use std::thread;

use anyhow::{Result, anyhow, ensure};
use bson::{Document, doc};
use proto_tests::raw::Connection;
use proto_tests::{ItemIds, Proxy, ProxyOptions, mongod};

use crate::sides::{self, ALL_IDS, COLLECTION};

const WRITERS: i32 = 4;
const UPDATES: i32 = 25;

/// The update number `number` of a writer: each adds 1 to `n` of the item that it is about.
fn command(number: i32, ids: ItemIds) -> Document {
    let stages = vec![doc! { "$set": { "n": { "$add": ["$n", 1] } } }];
    match number % 4 {
        0 => doc! { "update": COLLECTION, "updates": [{ "q": { "u": 5 }, "u": { "$inc": { "n": 1 } } }] },
        1 => doc! { "update": COLLECTION, "updates": [{ "q": { "u": 5 }, "u": stages }] },
        2 => doc! { "findAndModify": COLLECTION, "query": { "u": 5 }, "update": { "$inc": { "n": 1 } } },
        // Without an `_id` an item that others have changed cannot be told from others.
        _ if ids == ItemIds::Dropped => doc! { "findAndModify": COLLECTION, "query": { "u": 5 }, "update": stages },
        _ => {
            doc! { "update": COLLECTION, "updates": [{ "q": { "u": 5 }, "u": { "$inc": { "n": 1 } }, "multi": true }] }
        }
    }
}

#[test]
fn sums_add_up() -> Result<()> {
    for ids in ALL_IDS {
        let sides = sides::of(ids)?;
        let toml = sides.shape.toml(&format!("{}_s.{COLLECTION}", sides.database));
        let second = Proxy::start(&ProxyOptions::new(&mongod::shared_replica_set().uri()).config(&toml))?;
        let addresses = [sides.proxy.address(), second.address()];
        let database = format!("{}_s", sides.database);
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let address = addresses[usize::try_from(writer).unwrap_or(0) % 2];
                let database = database.clone();
                thread::spawn(move || -> Result<()> {
                    let mut connection = Connection::open(address)?;
                    for number in 0..UPDATES {
                        let mut command = command(writer + number, ids);
                        command.insert("$db", &database);
                        let reply = connection.command_ok(&command)?;
                        ensure!(reply.get("writeErrors").is_none(), "{command}: {reply}");
                    }
                    Ok(())
                })
            })
            .collect();
        for writer in writers {
            writer.join().map_err(|_| anyhow!("a writer panicked"))??;
        }
        let mut sides = sides;
        let found = sides.items(true)?;
        let item = found.iter().find(|item| item.get_i32("u").ok() == Some(5));
        let sum = item.and_then(|item| item.get_i32("n").ok());
        ensure!(sum == Some(5 + WRITERS * UPDATES), "{ids:?}: {item:?}");
    }
    Ok(())
}

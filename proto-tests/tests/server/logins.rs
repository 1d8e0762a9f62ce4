//! The proxy asks for the users of a connection again after each command that may change them, in whichever
//! kind of message the command comes.

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::frame;
use proto_tests::raw::Connection;
use proto_tests::shaped::{COLLECTION, Shaped};
use proto_tests::stopping_relay::StoppingRelay;
use proto_tests::{ProxyOptions, mongod};

/// Names the command that asks for the users.
fn is_question(command: &Document) -> Option<String> {
    let name = "connectionStatus";
    command.contains_key(name).then(|| name.to_owned())
}

/// How often the proxy asks for the users, if a client sends this message and then reads from its cursor.
fn questions(
    application: &mut Connection,
    relay: &StoppingRelay,
    message: Option<Vec<u8>>,
    more: &Document,
) -> Result<usize> {
    relay.arm(None);
    if let Some(message) = message {
        application.send(&message)?;
        application.receive()?;
    }
    application.command_ok(more)?;
    Ok(relay.commands().len())
}

#[test]
fn users_are_asked_for_again_after_every_login() -> Result<()> {
    let relay = StoppingRelay::to(mongod::shared().address(), is_question)?;
    let shaped = Shaped::with("", &ProxyOptions::new(&relay.uri()))?;
    let mut application = shaped.application()?;
    let items: Vec<_> = (0..8).map(|number| doc! { "_id": number, "k": 1 }).collect();
    application.command_ok(&shaped.insert(&items))?;
    // All that is left of the key waits in the proxy, which compares the users at every `getMore`.
    let find = doc! { "find": COLLECTION, "filter": { "k": 1 }, "batchSize": 1, "$db": &shaped.database };
    let opened = application.command_ok(&find)?;
    let id = opened.get_document("cursor")?.get_i64("id")?;
    let more = doc! { "getMore": id, "collection": COLLECTION, "batchSize": 1, "$db": &shaped.database };
    ensure!(questions(&mut application, &relay, None, &more)? == 0, "not cached");
    let login = doc! { "saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": "" };
    let mut speculative = login.clone();
    speculative.insert("db", "admin");
    let handshake = doc! { "isMaster": 1, "speculativeAuthenticate": speculative };
    for command in [login, handshake] {
        let mut message = command.clone();
        message.insert("$db", "admin");
        for sent in [frame::command(7, 0, &message)?, frame::query(8, "admin", &command)?] {
            let kind = frame::header_field(&sent, 3);
            let asked = questions(&mut application, &relay, Some(sent), &more)?;
            ensure!(asked == 1, "{command} as a message of kind {kind}: asked {asked} times");
        }
    }
    Ok(())
}

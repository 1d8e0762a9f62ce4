use bson::raw::RawDocumentBuf;
use bson::{Document, doc};

use super::*;

fn primary() -> Document {
    doc! {
        "helloOk": true,
        "topologyVersion": { "processId": 1, "counter": 6_i64 },
        "hosts": ["a:1", "b:2"], "passives": ["c:3"], "arbiters": ["d:4"],
        "setName": "rs0", "setVersion": 1, "isWritablePrimary": true, "secondary": false, "primary": "a:1", "me": "A:1",
        "electionId": 7, "lastWrite": { "opTime": 1 },
        "maxWireVersion": 17, "compression": ["zlib"], "saslSupportedMechs": ["SCRAM-SHA-1"], "ok": 1.0,
        "$clusterTime": { "clusterTime": 1 }, "operationTime": 1,
    }
}

fn secondary() -> Document {
    let mut hello = primary();
    hello.insert("isWritablePrimary", false);
    hello.insert("secondary", true);
    hello.insert("me", "b:2");
    hello
}

fn raw(document: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).unwrap()
}

fn check(presentation: &Presentation, hello: &Document, expected: &Document) {
    match presentation.of(&raw(hello)) {
        Hello::Edited(shown) => assert_eq!(Document::try_from(&*shown).unwrap(), *expected),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_mongos_names_no_member() {
    let expected = doc! {
        "helloOk": true,
        "topologyVersion": { "processId": 1, "counter": 6_i64 },
        "isWritablePrimary": true, "msg": "isdbgrid",
        "maxWireVersion": 17, "compression": ["zlib"], "saslSupportedMechs": ["SCRAM-SHA-1"], "ok": 1.0,
        "$clusterTime": { "clusterTime": 1 }, "operationTime": 1,
    };
    check(&Presentation::Mongos, &primary(), &expected);
}

#[test]
fn a_set_of_one_has_the_listeners_address_alone() {
    let mut expected = primary();
    expected.insert("hosts", vec!["p:9"]);
    expected.insert("primary", "p:9");
    expected.insert("me", "p:9");
    expected.remove("passives");
    expected.remove("arbiters");
    check(&Presentation::ReplicaSet("p:9".into()), &primary(), &expected);
}

#[test]
fn a_member_is_itself_at_its_listeners_address() {
    let pairs = [("a:1", "p:1"), ("B:2", "p:2"), ("d:4", "p:4")].map(|(one, other)| (one.to_owned(), other.to_owned()));
    let presentation = Presentation::Member(Arc::new(AddressMap::new(pairs)));
    let mut expected = primary();
    expected.insert("hosts", vec!["p:1", "p:2"]);
    // A member without a listener.
    expected.insert("passives", Vec::<String>::new());
    expected.insert("arbiters", vec!["p:4"]);
    expected.insert("primary", "p:1");
    expected.insert("me", "p:1");
    check(&presentation, &primary(), &expected);
    expected.insert("isWritablePrimary", false);
    expected.insert("secondary", true);
    expected.insert("me", "p:2");
    check(&presentation, &secondary(), &expected);
}

#[test]
fn only_a_primary_is_shown_as_the_one_server() {
    let uninitiated = doc! { "isWritablePrimary": false, "secondary": false, "isreplicaset": true, "ok": 1 };
    for presentation in [Presentation::Mongos, Presentation::ReplicaSet("p:9".into())] {
        for hello in [secondary(), uninitiated.clone()] {
            assert!(matches!(presentation.of(&raw(&hello)), Hello::NotPrimary), "{hello}");
        }
    }
}

#[test]
fn hello_of_a_non_member_is_unchanged() {
    let standalone = doc! { "isWritablePrimary": true, "maxWireVersion": 17, "ok": 1.0 };
    let mongos = doc! { "isWritablePrimary": true, "msg": "isdbgrid", "ok": 1.0 };
    let error = doc! { "ok": 0.0, "code": 186, "setName": "rs0" };
    for hello in [standalone, mongos, error] {
        assert!(matches!(Presentation::Mongos.of(&raw(&hello)), Hello::AsIs), "{hello}");
    }
}

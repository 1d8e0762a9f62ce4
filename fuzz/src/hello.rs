//! Handshakes and their answers, whatever they hold, are edited into messages that show nothing they should not.

use bson::raw::RawBsonRef;
use mongoshape::{
    session::handshake::{self, AddressMap, HandshakeReply, Presentation},
    wire::{Frame, OpCode, OpMsg, OpQuery, OpReply},
};

use crate::message::message;

/// Two listeners, for members that the corpus names.
const MEMBERS: [(&str, &str); 2] = [("127.0.0.1:27017", "proxy:1"), ("localhost:27017", "proxy:2")];

/// The first byte chooses the presentation, the others are what follows the header: of a request and of a reply, as
/// OP_MSG and as the legacy messages.
pub fn hello(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else {
        return;
    };
    let presentation = match choice % 3 {
        0 => Presentation::Mongos,
        1 => Presentation::ReplicaSet("proxy:0".into()),
        _ => {
            let pairs = MEMBERS.map(|(member, listener)| (member.to_owned(), listener.to_owned()));
            Presentation::Member(AddressMap::new(pairs).into())
        }
    };
    request(data);
    for op_code in [OpCode::Msg, OpCode::Reply] {
        reply(&message(op_code, data), &presentation);
    }
}

fn request(data: &[u8]) {
    let frame = message(OpCode::Msg, data);
    if let Ok(read) = OpMsg::parse_unverified(&frame)
        && let Ok(Some(edited)) = handshake::edit_message(&frame, &read)
    {
        OpMsg::parse(&edited).expect("an edited OP_MSG is one");
    }
    let frame = message(OpCode::Query, data);
    if let Ok(read) = OpQuery::parse(&frame)
        && let Ok(Some(edited)) = handshake::edit_query(&frame, &read)
    {
        OpQuery::parse(&edited).expect("an edited OP_QUERY is one");
    }
}

fn reply(frame: &Frame, presentation: &Presentation) {
    let Ok((HandshakeReply::Edited(edited), _)) = handshake::show(frame, presentation) else {
        return;
    };
    assert_eq!(edited.header().response_to, frame.header().response_to);
    let shown = match edited.header().op_code {
        OpCode::Reply => OpReply::parse(&edited).expect("an edited OP_REPLY is one").documents[0],
        _ => OpMsg::parse(&edited).expect("an edited OP_MSG is one").body,
    };
    let has = |name: &str| shown.iter().flatten().any(|(field, _)| field.as_str() == name);
    match presentation {
        Presentation::Mongos => {
            assert!(
                !has("setName") && !has("hosts") && !has("me") && !has("primary"),
                "{shown:?}"
            );
        }
        Presentation::ReplicaSet(_) => assert_eq!(shown.get_str("me").ok(), Some("proxy:0").filter(|_| has("me"))),
        Presentation::Member(_) => {
            let hosts = shown.get("hosts").ok().flatten().and_then(RawBsonRef::as_array);
            for host in hosts.into_iter().flatten().flatten() {
                assert!(
                    host.as_str().is_some_and(|host| host.starts_with("proxy:")),
                    "{shown:?}"
                );
            }
        }
    }
}

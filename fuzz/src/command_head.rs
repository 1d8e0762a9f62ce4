//! A command's head and the namespaces that it mentions are found, or an error, in any message.

use mongoshape::{
    command::{header::CommandHeader, referenced_namespaces},
    wire::{OpCode, OpMsg, OpMsgHead},
};

use crate::message::message;

/// The input is a message without its header.
pub fn command_head(data: &[u8]) {
    let frame = message(OpCode::Msg, data);
    let Ok(read) = OpMsg::parse(&frame) else { return };
    let head = CommandHeader::of(read);
    let of_beginning = OpMsgHead::of_beginning(data).map(|beginning| CommandHeader::of(beginning.without_sequences()));
    if let Some(of_beginning) = of_beginning {
        let name = |head: &CommandHeader<'_>| (head.name.to_owned(), head.namespace().map(|found| found.to_string()));
        assert_eq!(of_beginning.ok().as_ref().map(name), head.as_ref().ok().map(name));
    }
    let Ok(head) = head else { return };
    let _ = head.in_transaction();
    let _ = head.validate();
    // Before the session validates a command, too: it asks which ones to relay.
    referenced_namespaces::for_each(&head, &mut |namespace| drop(namespace.to_string()));
}

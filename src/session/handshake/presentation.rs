//! How a member of a replica set is presented.
//!
//! Drivers classify a server by the fields of its `hello`, each in another order, so no reply may carry the
//! markers of two kinds: `msg` marks a mongos, `setName` a member (Server Discovery and Monitoring, "type").

use std::collections::HashMap;
use std::sync::Arc;

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use crate::command::arguments::with_replaced;
use crate::command::document::{as_flag, get};

/// Fields that only a member of a replica set returns, about itself and other members.
const MEMBER_FIELDS: &[&str] = &[
    "arbiterOnly",
    "arbiters",
    "electionId",
    "hidden",
    "hosts",
    "isreplicaset",
    "lastWrite",
    "me",
    "passive",
    "passives",
    "primary",
    "secondary",
    "secondaryDelaySecs",
    "setName",
    "setVersion",
    "slaveDelay",
    "tags",
];

/// The lists of members in a `hello`.
const MEMBER_LISTS: [&str; 3] = ["hosts", "passives", "arbiters"];

/// The form in which a listener presents a member of a replica set.
#[derive(Clone, Debug)]
pub enum Presentation {
    /// As a mongos, which returns no hosts, so clients can use any address of the proxy.
    Mongos,
    /// As a replica set with one member at this `host:port`, for connection strings with
    /// `replicaSet`.
    ReplicaSet(Arc<str>),
    /// As a member, with the addresses of all members replaced by those of their listeners.
    Member(Arc<AddressMap>),
}

/// The listeners' addresses by the members' addresses.
#[derive(Clone, Debug, Default)]
pub struct AddressMap {
    listeners: HashMap<String, String>,
}

impl AddressMap {
    /// Pairs of `host:port`: a member's, as in the replica set's configuration, and its listener's.
    #[must_use]
    pub fn new(pairs: impl IntoIterator<Item = (String, String)>) -> Self {
        let pairs = pairs.into_iter();
        Self {
            listeners: pairs
                .map(|(member, listener)| (member.to_lowercase(), listener))
                .collect(),
        }
    }

    /// The listener of a member. `None` if it has none.
    #[must_use]
    pub fn listener(&self, member: &str) -> Option<&str> {
        self.listeners.get(&member.to_lowercase()).map(String::as_str)
    }
}

/// The handling of a `hello` reply.
#[derive(Debug)]
pub(super) enum Hello {
    /// It is unchanged.
    AsIs,
    /// This document replaces it.
    Edited(RawDocumentBuf),
    /// The server is not the primary that was promised to the client.
    NotPrimary,
}

impl Presentation {
    /// Whether clients see a single server that is always the primary. If so, the connection must
    /// end when the server is not.
    #[must_use]
    pub fn promises_primary(&self) -> bool {
        !matches!(self, Self::Member(_))
    }

    pub(super) fn of(&self, hello: &RawDocument) -> Hello {
        let failed = get(hello, "ok").and_then(as_flag) != Some(true);
        // `isreplicaset` marks a member that is not initiated or was removed from its set.
        let is_member = get(hello, "setName").is_some() || get(hello, "isreplicaset").is_some();
        if failed || !is_member {
            return Hello::AsIs;
        }
        if self.promises_primary() && !is_writable(hello) {
            return Hello::NotPrimary;
        }
        Hello::Edited(match self {
            Self::Mongos => as_mongos(hello),
            Self::ReplicaSet(address) => as_only_member(hello, address),
            Self::Member(map) => with_addresses(hello, map),
        })
    }
}

/// Whether the server reports that it accepts writes.
pub(in crate::session) fn is_writable(hello: &RawDocument) -> bool {
    ["isWritablePrimary", "ismaster"]
        .iter()
        .any(|field| get(hello, field).and_then(as_flag) == Some(true))
}

fn as_mongos(hello: &RawDocument) -> RawDocumentBuf {
    let mut shown = RawDocumentBuf::new();
    for (name, value) in hello.iter().flatten() {
        let field = name.as_str();
        if MEMBER_FIELDS.contains(&field) {
            continue;
        }
        shown.append(name, value);
        if matches!(field, "isWritablePrimary" | "ismaster") {
            shown.append(cstr!("msg"), "isdbgrid");
        }
    }
    shown
}

fn as_only_member(hello: &RawDocument, address: &str) -> RawDocumentBuf {
    let hosts: RawArrayBuf = [address].into_iter().collect();
    let address = RawBsonRef::String(address);
    let replaced = [
        ("hosts", Some(RawBsonRef::Array(&hosts))),
        ("passives", None),
        ("arbiters", None),
        ("primary", Some(address)),
        ("me", Some(address)),
    ];
    with_replaced(hello, &replaced)
}

fn with_addresses(hello: &RawDocument, map: &AddressMap) -> RawDocumentBuf {
    let listeners = |name: &str| -> Option<RawArrayBuf> {
        let members = get(hello, name)?.as_array()?.into_iter().flatten();
        // A member without a listener is hidden, because clients would connect to it directly.
        Some(members.filter_map(|member| map.listener(member.as_str()?)).collect())
    };
    let lists = MEMBER_LISTS.map(|name| (name, listeners(name)));
    let addresses = ["primary", "me"].map(|name| {
        let member = get(hello, name).and_then(RawBsonRef::as_str);
        (name, member.and_then(|member| map.listener(member)))
    });
    let lists = lists
        .iter()
        .map(|(name, list)| (*name, list.as_deref().map(RawBsonRef::Array)));
    let addresses = addresses
        .iter()
        .map(|(name, address)| (*name, address.map(RawBsonRef::String)));
    with_replaced(hello, &lists.chain(addresses).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests;

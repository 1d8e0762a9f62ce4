//! The section `upstream`.

use super::{ConfigOption, ConfigTable, Holds, Number, Occurrence, RequiredText};
use crate::config::limits::LONGEST_WAIT_MS;

pub(in crate::config) const TABLE: ConfigTable = ConfigTable {
    name: "upstream",
    times: Occurrence::Once,
    meaning: "The MongoDB server behind the proxy.",
    options: &[&URI, &CONNECT_TIMEOUT_MS, &EXPIRE_INTERVAL_MS],
    tables: &[],
};

pub(in crate::config) const URI: ConfigOption<RequiredText> = ConfigOption {
    name: "uri",
    value: RequiredText {
        what: "a connection string",
        example: "\"mongodb://127.0.0.1:27017\"",
    },
    holds: Holds::FromStart,
    meaning: "A standalone, or a replica set with its seeds as in `mongodb://db1,db2,db3/?replicaSet=rs0`, with the TLS options of any \
              connection string. The subcommands that query mongod use its user and password; applications send their own.",
};

pub(in crate::config) const CONNECT_TIMEOUT_MS: ConfigOption<Number> = ConfigOption {
    name: "connect_timeout_ms",
    value: Number {
        least: 1,
        most: LONGEST_WAIT_MS,
        default: 10_000,
    },
    holds: Holds::FromReload,
    meaning: "Milliseconds to find a server (in a replica set, the primary), and to open a connection to it.",
};

pub(in crate::config) const EXPIRE_INTERVAL_MS: ConfigOption<Number> = ConfigOption {
    name: "expire_interval_ms",
    value: Number {
        least: 100,
        most: LONGEST_WAIT_MS,
        default: 20_000,
    },
    holds: Holds::FromStart,
    meaning: "Milliseconds between two deletions of expired items of bucket collections with a TTL index. One proxy at a time deletes, with \
              the user and password of `uri`, which needs to read and write these collections and the database `mongoshape`.",
};

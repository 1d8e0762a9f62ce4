//! The section `listen`.

use super::{ConfigOption, ConfigTable, Holds, Number, Occurrence, OptionalText, RequiredText, Words, tls};
use crate::config::limits::LONGEST_WAIT_MS;
use crate::config::model::PresentAs;
use crate::session::memory;
use crate::wire::limits::MAX_MESSAGE_BYTES;

pub(in crate::config) const TABLE: ConfigTable = ConfigTable {
    name: "listen",
    times: Occurrence::Once,
    meaning: "Addresses for applications, and limits of clients.",
    options: &[
        &ADDRESS,
        &MAX_CONNECTIONS,
        &PRESENT_AS,
        &ADVERTISE,
        &MAX_MESSAGE_BYTES_OF_CLIENTS,
        &MEMORY_MIB,
        &WORKERS,
        &HANDSHAKE_TIMEOUT_MS,
        &FRAME_TIMEOUT_MS,
        &SEND_TIMEOUT_MS,
        &IDLE_TIMEOUT_MS,
        &DRAIN_TIMEOUT_MS,
    ],
    tables: &[&TLS, &member::TABLE],
};

pub(in crate::config) const TLS: ConfigTable = ConfigTable {
    name: "tls",
    times: Occurrence::Once,
    meaning: "TLS for clients; none by default.",
    options: tls::OPTIONS,
    tables: &[],
};

pub(in crate::config) const ADDRESS: ConfigOption<RequiredText> = ConfigOption {
    name: "address",
    value: RequiredText {
        what: "an IP address and a port",
        example: "\"127.0.0.1:27018\"",
    },
    holds: Holds::FromStart,
    meaning: "Address for applications. With `[[listen.member]]` tables, leave it out: each table has its own address.",
};

pub(in crate::config) const MAX_CONNECTIONS: ConfigOption<Number> = ConfigOption {
    name: "max_connections",
    value: Number {
        least: 1,
        most: 1_000_000,
        default: 10_000,
    },
    holds: Holds::FromReload,
    meaning: "Maximum number of clients. Further connections are closed at once, and counted.",
};

pub(in crate::config) const PRESENT_AS: ConfigOption<Words<PresentAs>> = ConfigOption {
    name: "present_as",
    value: Words {
        choices: &[
            ("auto", PresentAs::Mongos),
            ("mongos", PresentAs::Mongos),
            ("replica-set", PresentAs::ReplicaSet),
        ],
    },
    holds: Holds::FromStart,
    meaning: "How a replica set is [presented](presentations.md). `mongos` suits connection strings without `replicaSet`; \
              `replica-set`, a set of one, suits those with it; `auto` is `mongos`. A standalone and a mongos are presented unchanged.",
};

pub(in crate::config) const ADVERTISE: ConfigOption<OptionalText> = ConfigOption {
    name: "advertise",
    value: OptionalText {
        what: "a host and a port",
        otherwise: "the address to which the application has connected",
    },
    holds: Holds::FromStart,
    meaning: "With `replica-set`: the address at which applications reach the proxy. Set it if a network device translates addresses, \
              or if TLS certificates contain a host name.",
};

pub(in crate::config) const MAX_MESSAGE_BYTES_OF_CLIENTS: ConfigOption<Number> = ConfigOption {
    name: "max_message_bytes",
    value: Number {
        // A smaller limit would not allow a driver's handshake.
        least: 64 * 1024,
        most: MAX_MESSAGE_BYTES,
        default: MAX_MESSAGE_BYTES,
    },
    holds: Holds::FromReload,
    meaning: "Maximum length of a client's message, in bytes, uncompressed. The upper limit is mongod's own.",
};

pub(in crate::config) const MEMORY_MIB: ConfigOption<Number> = ConfigOption {
    name: "memory_mib",
    value: Number {
        least: memory::LEAST_MIB,
        // A terabyte.
        most: 1 << 20,
        default: memory::DEFAULT_MIB,
    },
    holds: Holds::FromStart,
    meaning: "Memory budget of all clients together, in MiB: long messages to shaped collections, outliers that are merged, and cursors \
              that the proxy keeps. A command that needs more than the free memory waits up to 30 s in a queue, and then fails with \
              error 146. [Memory beyond the budget](operations.md#resources).",
};

pub(in crate::config) const WORKERS: ConfigOption<Number> = ConfigOption {
    name: "workers",
    value: Number {
        least: 0,
        most: 1024,
        default: 0,
    },
    holds: Holds::FromStart,
    meaning: "Threads that serve clients; 0 is one for each processor.",
};

pub(in crate::config) const HANDSHAKE_TIMEOUT_MS: ConfigOption<Number> = ConfigOption {
    name: "handshake_timeout_ms",
    value: wait(30_000),
    holds: Holds::FromReload,
    meaning: "Milliseconds that a client has until its first byte and for the TLS handshake.",
};

pub(in crate::config) const FRAME_TIMEOUT_MS: ConfigOption<Number> = ConfigOption {
    name: "frame_timeout_ms",
    value: wait(30_000),
    holds: Holds::FromReload,
    meaning: "Milliseconds that a client has to send a message that it has begun, for each MiB of the message.",
};

pub(in crate::config) const SEND_TIMEOUT_MS: ConfigOption<Number> = ConfigOption {
    name: "send_timeout_ms",
    value: wait(600_000),
    holds: Holds::FromReload,
    meaning: "Milliseconds that a client may leave sent data unread.",
};

pub(in crate::config) const IDLE_TIMEOUT_MS: ConfigOption<Number> = ConfigOption {
    name: "idle_timeout_ms",
    value: Number {
        least: 0,
        // A week.
        most: 7 * 24 * 3_600_000,
        default: 0,
    },
    holds: Holds::FromReload,
    meaning: "Milliseconds that a client may be idle between two commands. 0 is unlimited: drivers keep idle connections.",
};

pub(in crate::config) const DRAIN_TIMEOUT_MS: ConfigOption<Number> = ConfigOption {
    name: "drain_timeout_ms",
    value: wait(10_000),
    holds: Holds::FromStart,
    meaning: "Milliseconds that running commands have to finish after SIGTERM.",
};

const fn wait(default: usize) -> Number {
    Number {
        least: 1,
        most: LONGEST_WAIT_MS,
        default,
    }
}

pub(in crate::config) mod member {
    //! The tables `listen.member`.

    use super::{ConfigOption, ConfigTable, Holds, Occurrence, OptionalText, RequiredText};

    pub(in crate::config) const TABLE: ConfigTable = ConfigTable {
        name: "member",
        times: Occurrence::Often,
        meaning: "Instead of `listen.address`, `present_as` and `advertise`: one listener for each member of a replica set. \
                  Applications then see [the members](presentations.md), and can read from secondaries.",
        options: &[&ADDRESS, &UPSTREAM, &ADVERTISE],
        tables: &[],
    };

    pub(in crate::config) const ADDRESS: ConfigOption<RequiredText> = ConfigOption {
        name: "address",
        value: RequiredText {
            what: "an IP address and a port",
            example: "\"127.0.0.1:27018\"",
        },
        holds: Holds::FromStart,
        meaning: "Address of this listener.",
    };

    pub(in crate::config) const UPSTREAM: ConfigOption<RequiredText> = ConfigOption {
        name: "upstream",
        value: RequiredText {
            what: "a host and a port",
            example: "\"db1:27017\"",
        },
        holds: Holds::FromStart,
        meaning: "The member's address in `rs.conf()`.",
    };

    pub(in crate::config) const ADVERTISE: ConfigOption<OptionalText> = ConfigOption {
        name: "advertise",
        value: OptionalText {
            what: "a host and a port",
            otherwise: "`address`; required if that is a wildcard such as `0.0.0.0`",
        },
        holds: Holds::FromStart,
        meaning: "The address at which applications reach this listener.",
    };
}

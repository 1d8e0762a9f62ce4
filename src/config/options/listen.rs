//! The section `listen`.

use super::{ConfigOption, ConfigTable, Holds, Number, Occurrence, OptionalText, RequiredText, Words, tls};
use crate::config::limits::LONGEST_WAIT_MS;
use crate::config::model::PresentAs;
use crate::session::memory;
use crate::wire::limits::MAX_MESSAGE_BYTES;

pub(in crate::config) const TABLE: ConfigTable = ConfigTable {
    name: "listen",
    times: Occurrence::Once,
    meaning: "Where applications connect to, and what they may hold.",
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
    meaning: "TLS towards clients; by default none.",
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
    meaning: "Where applications connect to. With `[[listen.member]]` tables each of them has one, and this one is left out.",
};

pub(in crate::config) const MAX_CONNECTIONS: ConfigOption<Number> = ConfigOption {
    name: "max_connections",
    value: Number {
        least: 1,
        most: 1_000_000,
        default: 10_000,
    },
    holds: Holds::FromReload,
    meaning: "Clients at a time. One more is closed at once, and counted.",
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
    meaning: "What a replica set is [shown as](presentations.md). `mongos` is for connection strings without `replicaSet`, `replica-set`, a \
              set of one, for those with it; `auto` is `mongos`. A standalone and a mongos are shown as they are.",
};

pub(in crate::config) const ADVERTISE: ConfigOption<OptionalText> = ConfigOption {
    name: "advertise",
    value: OptionalText {
        what: "a host and a port",
        otherwise: "the address that the application has connected to",
    },
    holds: Holds::FromStart,
    meaning: "With `replica-set`: where applications find the proxy, if something between rewrites addresses, or TLS certificates name a \
              host.",
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
    meaning: "The longest message that a client may send, in bytes, measured without compression. The most is mongod's own limit.",
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
    meaning: "The memory budget of all clients together, in MiB: long messages to shaped collections, outliers that are put together, and \
              cursors that the proxy keeps. A command that needs more than is free waits up to 30 s in turn, and then fails with error 146. \
              [What comes on top](operations.md#resources).",
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
    meaning: "Milliseconds that a client may take until its first byte and for the TLS handshake.",
};

pub(in crate::config) const FRAME_TIMEOUT_MS: ConfigOption<Number> = ConfigOption {
    name: "frame_timeout_ms",
    value: wait(30_000),
    holds: Holds::FromReload,
    meaning: "Milliseconds that a client may take over a message that it has begun, for each MiB of it.",
};

pub(in crate::config) const SEND_TIMEOUT_MS: ConfigOption<Number> = ConfigOption {
    name: "send_timeout_ms",
    value: wait(600_000),
    holds: Holds::FromReload,
    meaning: "Milliseconds that a client may leave unread what is sent to it.",
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
    meaning: "Milliseconds that a client may send nothing between two commands; 0 is for ever: drivers keep connections for later.",
};

pub(in crate::config) const DRAIN_TIMEOUT_MS: ConfigOption<Number> = ConfigOption {
    name: "drain_timeout_ms",
    value: wait(10_000),
    holds: Holds::FromStart,
    meaning: "Milliseconds that running commands may take to finish after SIGTERM.",
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
        meaning: "Instead of `listen.address`, `present_as` and `advertise`: one listener for each member of a replica set, so that applications \
                  see the set [as it is](presentations.md) and may read from its secondaries.",
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
        meaning: "Where this listener listens.",
    };

    pub(in crate::config) const UPSTREAM: ConfigOption<RequiredText> = ConfigOption {
        name: "upstream",
        value: RequiredText {
            what: "a host and a port",
            example: "\"db1:27017\"",
        },
        holds: Holds::FromStart,
        meaning: "The member, as `rs.conf()` has it.",
    };

    pub(in crate::config) const ADVERTISE: ConfigOption<OptionalText> = ConfigOption {
        name: "advertise",
        value: OptionalText {
            what: "a host and a port",
            otherwise: "`address`, which must then not be one such as `0.0.0.0`",
        },
        holds: Holds::FromStart,
        meaning: "Where applications find this listener.",
    };
}

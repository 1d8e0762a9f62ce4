//! The section `admin`.

use super::{ConfigOption, ConfigTable, Holds, Occurrence, OptionalText, Secret, TextOption, tls};
use crate::telemetry::admin::Token;

pub(in crate::config) const TABLE: ConfigTable = ConfigTable {
    name: "admin",
    times: Occurrence::Once,
    meaning: "Metrics, health and the operator's page.",
    options: &[&ADDRESS, &TOKEN_FILE, &TOKEN],
    tables: &[&TLS],
};

pub(in crate::config) const TLS: ConfigTable = ConfigTable {
    name: "tls",
    times: Occurrence::Once,
    meaning: "TLS at the admin address; by default none. With `client_ca`, probes must have a certificate as well.",
    options: tls::OPTIONS,
    tables: &[],
};

pub(in crate::config) const ADDRESS: ConfigOption<TextOption> = ConfigOption {
    name: "address",
    value: TextOption {
        what: "an IP address and a port",
        default: "127.0.0.1:9216",
    },
    holds: Holds::FromStart,
    meaning: "Where `/metrics`, `/livez`, `/readyz` and the page answer. On another address than this machine's own, keep strangers out by \
              the network, or by `tls` and a token; `check` says what is left open.",
};

pub(in crate::config) const TOKEN_FILE: ConfigOption<OptionalText> = ConfigOption {
    name: "token_file",
    value: OptionalText {
        what: "a file with one line, such as `openssl rand -hex 32` writes",
        otherwise: "whoever asks is answered",
    },
    holds: Holds::FromReload,
    meaning: "What whoever asks must know, for all but `/livez` and `/readyz`: sent as `Authorization: Bearer TOKEN`, or by a browser as \
              the password of any user. A relative path begins where those of `tls` do.",
};

pub(in crate::config) const TOKEN: ConfigOption<Secret> = ConfigOption {
    name: "token",
    value: Secret {
        least: Token::SHORTEST,
        most: Token::LONGEST,
        otherwise: "whoever asks is answered",
    },
    holds: Holds::FromReload,
    meaning: "The token itself in place of `token_file`, better given in the environment than in a file that others read.",
};

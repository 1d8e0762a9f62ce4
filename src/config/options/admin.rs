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
    meaning: "TLS at the admin address; none by default. With `client_ca`, probes must have a certificate as well.",
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
    meaning: "Address of `/metrics`, `/livez`, `/readyz` and the operator's page. If it is not an address of this machine alone, \
              restrict access in the network, or by `tls` and a token. `check` reports an unprotected address.",
};

pub(in crate::config) const TOKEN_FILE: ConfigOption<OptionalText> = ConfigOption {
    name: "token_file",
    value: OptionalText {
        what: "a file with one line, such as `openssl rand -hex 32` writes",
        otherwise: "no token is required",
    },
    holds: Holds::FromReload,
    meaning: "File with the token that all requests except `/livez` and `/readyz` must have: as `Authorization: Bearer TOKEN`, or from \
              a browser as the password of any user. A relative path is resolved like those of `tls`.",
};

pub(in crate::config) const TOKEN: ConfigOption<Secret> = ConfigOption {
    name: "token",
    value: Secret {
        least: Token::SHORTEST,
        most: Token::LONGEST,
        otherwise: "no token is required",
    },
    holds: Holds::FromReload,
    meaning: "The token itself, instead of `token_file`. Set it in the environment rather than in a file that others can read.",
};

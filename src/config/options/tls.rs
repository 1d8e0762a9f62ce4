//! The table `tls` of the sections `listen` and `admin`.

use super::reference::Described;
use super::{ConfigOption, Holds, OptionalText, RequiredText};

pub(in crate::config) const OPTIONS: &[&dyn Described] = &[&CERT, &KEY, &CLIENT_CA];

pub(in crate::config) const CERT: ConfigOption<RequiredText> = ConfigOption {
    name: "cert",
    value: RequiredText {
        what: "a PEM file",
        example: "\"proxy.pem\"",
    },
    holds: Holds::FromReload,
    meaning: "The proxy's certificate, followed by the intermediate certificates. A relative path is relative to the folder of the \
              configuration file; in the environment, to the working directory.",
};

pub(in crate::config) const KEY: ConfigOption<OptionalText> = ConfigOption {
    name: "key",
    value: OptionalText {
        what: "a PEM file",
        otherwise: "the file of `cert`",
    },
    holds: Holds::FromReload,
    meaning: "Its private key, unencrypted.",
};

pub(in crate::config) const CLIENT_CA: ConfigOption<OptionalText> = ConfigOption {
    name: "client_ca",
    value: OptionalText {
        what: "a PEM file",
        otherwise: "clients need no certificate",
    },
    holds: Holds::FromReload,
    meaning: "Authorities: clients must have a certificate from one of them.",
};

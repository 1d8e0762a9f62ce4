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
    meaning: "The proxy's certificate, followed by those between it and its authority. A relative path begins at the folder of the \
              configuration file, or, where it is in the environment, where the program was started.",
};

pub(in crate::config) const KEY: ConfigOption<OptionalText> = ConfigOption {
    name: "key",
    value: OptionalText {
        what: "a PEM file",
        otherwise: "the file of `cert`",
    },
    holds: Holds::FromReload,
    meaning: "Its private key, not encrypted.",
};

pub(in crate::config) const CLIENT_CA: ConfigOption<OptionalText> = ConfigOption {
    name: "client_ca",
    value: OptionalText {
        what: "a PEM file",
        otherwise: "no certificate is asked for",
    },
    holds: Holds::FromReload,
    meaning: "Authorities: whoever connects must have a certificate of one of them.",
};

//! The table `tls` of `listen` and of `admin`: the names of files. Does not read the files:
//! `server::tls` does, at the start and when they are renewed. Also errors for TLS options that a
//! connection string does not support.

use std::path::{Path, PathBuf};

use super::error::MistakeLocation;
use super::options::tls::{CERT, CLIENT_CA, KEY};
use super::options::{ConfigOption, ConfigTable, OptionalText};
use super::section::Section;
use crate::server::tls::{TlsFiles, TlsTable};

/// `None` without such a table, and if a mistake was recorded.
pub(super) fn resolve(listener: &mut Section<'_>, described: &ConfigTable, table: TlsTable) -> Option<TlsFiles> {
    let mut section = listener.optional_table(described)?;
    let cert = section.required_string(&CERT);
    let cert = cert.and_then(|text| path(&mut section, CERT.name, CERT.value.what, &text));
    let key = optional_path(&mut section, &KEY);
    let client_ca = optional_path(&mut section, &CLIENT_CA);
    section.finish();
    let cert = cert?;
    Some(TlsFiles {
        table,
        key: key.unwrap_or_else(|| cert.clone()),
        cert,
        client_ca,
    })
}

fn optional_path(section: &mut Section<'_>, option: &ConfigOption<OptionalText>) -> Option<PathBuf> {
    let text = section.string(option)?;
    path(section, option.name, option.value.what, &text)
}

/// A path in the file is relative to the file's folder, so that the program may be started from
/// anywhere. A path in a variable is relative to the working directory, as in a shell. `what`
/// describes the field's value.
pub(super) fn path(section: &mut Section<'_>, name: &'static str, what: &str, text: &str) -> Option<PathBuf> {
    if text.is_empty() {
        return section.refuse(name, "it is empty", &format!("name {what}"));
    }
    match section.place_of(name) {
        MistakeLocation::Line { file, .. } => {
            let folder = Path::new(&file).parent().unwrap_or(Path::new(""));
            Some(folder.join(text))
        }
        MistakeLocation::File(_) | MistakeLocation::Variable(_) => Some(PathBuf::from(text)),
    }
}

/// The problem and the remedy for a TLS option that other drivers support, but for which this
/// driver rejects the whole connection string. Contains no part of the string.
pub(super) fn unknown_option(uri: &str) -> Option<(&'static str, &'static str)> {
    let (_, options) = uri.split_once('?')?;
    options.split('&').find_map(|option| {
        let name = option.split('=').next().unwrap_or_default();
        match name.to_lowercase().as_str() {
            "tlsallowinvalidhostnames" => Some((
                "tlsAllowInvalidHostnames is not supported",
                "use a certificate that contains the server's name; use tlsInsecure=true only in tests",
            )),
            "tlsdisableocspendpointcheck" | "tlsdisablecertificaterevocationcheck" => Some((
                "tlsDisableOCSPEndpointCheck and tlsDisableCertificateRevocationCheck are not supported",
                "remove them; mongoshape does not check revocation",
            )),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_other_drivers_are_known_by_name() {
        let check = |options: &str, expected: Option<&str>| {
            let said = unknown_option(&format!("mongodb://u:p%3F@a,b/db{options}"));
            assert_eq!(
                said.map(|(problem, _)| problem.split(' ').next().unwrap()),
                expected,
                "{options}"
            );
        };
        check("", None);
        check("?tls=true&tlsInsecure=true&tlsCAFile=tlsAllowInvalidHostnames", None);
        check(
            "?tls=true&tlsAllowInvalidHostnames=true",
            Some("tlsAllowInvalidHostnames"),
        );
        check("?TLSALLOWINVALIDHOSTNAMES", Some("tlsAllowInvalidHostnames"));
        check(
            "?tlsDisableCertificateRevocationCheck=false",
            Some("tlsDisableOCSPEndpointCheck"),
        );
    }
}

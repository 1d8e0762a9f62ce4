//! What the table `tls` of a listener means: which files. Reads none of them: `server::tls` does, when it is started
//! and whenever they are renewed.

use std::path::{Path, PathBuf};

use super::error::Place;
use super::section::Section;
use crate::server::tls::TlsFiles;

/// `None` without such a table, and after a mistake was noted.
pub(super) fn resolve(listener: &mut Section<'_>) -> Option<TlsFiles> {
    let mut section = listener.optional_table("tls", &["cert", "key", "client_ca"])?;
    let cert = section.required_string("cert", "\"proxy.pem\"");
    let cert = cert.and_then(|text| path(&mut section, "cert", &text));
    let key = optional_path(&mut section, "key");
    let client_ca = optional_path(&mut section, "client_ca");
    section.finish();
    let cert = cert?;
    Some(TlsFiles {
        key: key.unwrap_or_else(|| cert.clone()),
        cert,
        client_ca,
    })
}

fn optional_path(section: &mut Section<'_>, name: &'static str) -> Option<PathBuf> {
    let text = section.string(name)?;
    path(section, name, &text)
}

/// A path in the file begins at the file's folder, so that the program may be started from anywhere; one in a variable
/// at the folder that the program was started in, as paths in a shell do.
fn path(section: &mut Section<'_>, name: &'static str, text: &str) -> Option<PathBuf> {
    if text.is_empty() {
        return section.refuse(name, "it is empty", "name a PEM file");
    }
    match section.place_of(name) {
        Place::Line { file, .. } => {
            let folder = Path::new(&file).parent().unwrap_or(Path::new(""));
            Some(folder.join(text))
        }
        Place::File(_) | Place::Variable(_) => Some(PathBuf::from(text)),
    }
}

//! TLS for clients and for the upstream: from files and options to configurations of rustls. rustls uses
//! ring, as in the driver. TLS 1.2 and 1.3, no ALPN. Must not depend on listeners, or on the data on a
//! connection.
//!
//! Files are not cached: to use a renewed certificate, [`acceptor`] is called again and its result
//! replaces the old one. Open connections keep their certificate.

mod certificate;
mod connector;
mod error;
mod first_bytes;
mod pem;

use std::path::PathBuf;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{Ticketer, default_provider};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::SingleCertAndKey;

use self::certificate::{certified_key, check_server_certificate};
pub use self::connector::{connector, own_connector, server_name};
pub use self::error::{FileOption, FileProblem, TlsError, TlsTable};
pub use self::first_bytes::{SniffedProtocol, first_bytes};
use self::pem::PemFile;

/// The PEM files of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The table of the configuration.
    pub table: TlsTable,
    /// The proxy's certificate, followed by its intermediates.
    pub cert: PathBuf,
    /// Its private key, not encrypted. May be in the same file, as for mongod.
    pub key: PathBuf,
    /// Authorities for clients' certificates, which are then required, as with mongod's
    /// `tlsCAFile`. `None`: clients need no certificate.
    pub client_ca: Option<PathBuf>,
}

/// TLS for a listener. Reads the files, and blocks meanwhile.
///
/// Sessions are resumed by encrypted tickets, so no state is kept for a client. Tickets are disabled if
/// clients need certificates: a ticket would admit a client whose certificate has expired, or whose
/// authority was removed.
///
/// # Errors
/// The file and its problem. A certificate that no client would accept is an error, too,
/// because mongod does not start with one either.
pub fn acceptor(files: &TlsFiles) -> Result<Arc<ServerConfig>, TlsError> {
    let cert_file = PemFile::read(FileOption::Cert(files.table), &files.cert)?;
    let chain = cert_file.certificates()?;
    check_server_certificate(&cert_file, &chain)?;
    let key_file = PemFile::read(FileOption::Key(files.table), &files.key)?;
    let key = key_file.private_key()?;
    let provider = Arc::new(default_provider());
    let certified = certified_key(&provider, &cert_file, chain, &key_file, key)?;

    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let file = PemFile::read(FileOption::ClientCa(files.table), path)?;
            builder.with_client_cert_verifier(client_verifier(&file, provider)?)
        }
    };
    let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
    config.session_storage = Arc::new(NoServerSessionStorage {});
    if files.client_ca.is_none() {
        config.ticketer = Ticketer::new()?;
    } else {
        config.send_tls13_tickets = 0;
    }
    Ok(Arc::new(config))
}

fn client_verifier(file: &PemFile, provider: Arc<CryptoProvider>) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let authorities = Arc::new(file.authorities()?);
    let verifier = WebPkiClientVerifier::builder_with_provider(authorities, provider).build();
    verifier.map_err(|_| file.error(FileProblem::NoCertificate))
}

#[cfg(test)]
mod tests;

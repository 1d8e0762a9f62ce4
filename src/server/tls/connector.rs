//! TLS for the upstream, from the options of a connection string. Sessions can connect with exactly
//! the options with which the driver can. Also TLS for a listener of the proxy itself.

use std::sync::Arc;

use mongodb::options::TlsOptions;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::TlsFiles;
use super::certificate::certified_key;
use super::error::{FileOption, TlsError};
use super::pem::PemFile;

/// TLS for the upstream. Reads the files of the options, and blocks meanwhile.
///
/// - Without `tlsCAFile`, the built-in authorities of Mozilla are used, not those of the system.
/// - `tlsInsecure` and `tlsAllowInvalidCertificates` disable all checks of the server's
///   certificate, including its host name.
/// - Revocation is not checked.
///
/// # Errors
/// The file and its problem. Stricter than the driver in one case, in which no connection could
/// succeed: a `tlsCAFile` without any usable authority.
pub fn connector(options: &TlsOptions) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let builder = builder.with_root_certificates(authorities(options)?);
    let mut config = match &options.cert_key_file_path {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let file = PemFile::read(FileOption::CertificateKeyFile, path)?;
            let chain = file.certificates()?;
            let key = match &options.tls_certificate_key_file_password {
                None => file.private_key(),
                Some(password) => file.encrypted_private_key(password),
            }?;
            let certified = certified_key(&provider, &file, chain, &file, key)?;
            builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(certified)))
        }
    };
    if options.allow_invalid_certificates == Some(true) {
        let verifier = AnyCertificate::of(&provider);
        config.dangerous().set_certificate_verifier(Arc::new(verifier));
    }
    Ok(Arc::new(config))
}

/// TLS for a listener of the proxy on the same machine, for requests without secrets. The
/// listener's certificate is not checked, as by a kubelet. If the listener requires a client
/// certificate, its own is sent. Reads the files, and blocks meanwhile.
///
/// # Errors
/// The file and its problem.
pub fn own_connector(files: &TlsFiles) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let cert = PemFile::read(FileOption::Cert(files.table), &files.cert)?;
    let key = PemFile::read(FileOption::Key(files.table), &files.key)?;
    let (chain, private) = (cert.certificates()?, key.private_key()?);
    let certified = certified_key(&provider, &cert, chain, &key, private)?;
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let verifier = Arc::new(AnyCertificate::of(&provider));
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    Ok(Arc::new(builder.with_client_cert_resolver(Arc::new(
        SingleCertAndKey::from(certified),
    ))))
}

/// The name that the upstream's certificate must contain: the host of the connection string, which
/// is a DNS name or an IP address. An IPv6 address may have brackets.
///
/// # Errors
/// If the host is neither.
pub fn server_name(host: &str) -> Result<ServerName<'static>, TlsError> {
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let name = ServerName::try_from(bare.unwrap_or(host).to_owned());
    name.map_err(|_| TlsError::ServerName { host: host.to_owned() })
}

fn authorities(options: &TlsOptions) -> Result<RootCertStore, TlsError> {
    match &options.ca_file_path {
        Some(path) => PemFile::read(FileOption::CaFile, path)?.usable_authorities(),
        None => Ok(webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect()),
    }
}

/// Accepts any certificate if the server has the matching key.
#[derive(Debug)]
struct AnyCertificate(WebPkiSupportedAlgorithms);

impl AnyCertificate {
    fn of(provider: &CryptoProvider) -> Self {
        Self(provider.signature_verification_algorithms)
    }
}

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

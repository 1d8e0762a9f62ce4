//! Generates certificates for servers on 127.0.0.1 and their clients.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};
use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tempfile::TempDir;

/// A folder of PEM files: an authority, its certificates for a server and for a client, and a certificate of
/// another authority. The folder is removed with the last clone.
#[derive(Debug, Clone)]
pub struct Certificates {
    folder: Arc<TempDir>,
}

/// The identity of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// It shows no certificate.
    Nobody,
    /// It shows the certificate that the authority signed.
    Client,
    /// It shows one that another authority signed.
    Stranger,
}

impl Certificates {
    /// Makes a new authority and all that it signs.
    pub fn new() -> Result<Self> {
        let folder = Arc::new(TempDir::with_prefix("mongoshape-certificates-")?);
        let made = Self { folder };
        let authority = authority("mongoshape tests")?;
        fs::write(made.ca(), pem("CERTIFICATE", authority.der()))?;
        let [server, client] = [signed(&authority, "server")?, signed(&authority, "client")?];
        fs::write(made.server(), &server.certificate)?;
        fs::write(made.server_key(), &server.key)?;
        fs::write(made.server_and_key(), server.both())?;
        fs::write(made.client(), client.both())?;
        let other = self::authority("somebody else")?;
        fs::write(made.other_ca(), pem("CERTIFICATE", other.der()))?;
        fs::write(made.stranger(), signed(&other, "client")?.both())?;
        Ok(made)
    }

    /// The folder of all files.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The authority's own certificate.
    #[must_use]
    pub fn ca(&self) -> PathBuf {
        self.folder().join("ca.pem")
    }

    /// A server's certificate, for 127.0.0.1 and localhost.
    #[must_use]
    pub fn server(&self) -> PathBuf {
        self.folder().join("server.pem")
    }

    /// The server's key.
    #[must_use]
    pub fn server_key(&self) -> PathBuf {
        self.folder().join("server.key")
    }

    /// The server's certificate and key in one file, as mongod wants them.
    #[must_use]
    pub fn server_and_key(&self) -> PathBuf {
        self.folder().join("server-and-key.pem")
    }

    /// A client's certificate and key in one file, as drivers want them. Its subject is
    /// `CN=client,O=mongoshape tests`.
    #[must_use]
    pub fn client(&self) -> PathBuf {
        self.folder().join("client.pem")
    }

    /// The certificate of another authority, which signed none of the others.
    #[must_use]
    pub fn other_ca(&self) -> PathBuf {
        self.folder().join("other-ca.pem")
    }

    /// A client's certificate and key that the other authority signed.
    #[must_use]
    pub fn stranger(&self) -> PathBuf {
        self.folder().join("stranger.pem")
    }

    /// What a TLS client needs that trusts the authority and is this one.
    pub fn client_config(&self, identity: Identity) -> Result<Arc<ClientConfig>> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.ca())?)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots);
        let shown = match identity {
            Identity::Nobody => return Ok(Arc::new(config.with_no_client_auth())),
            Identity::Client => self.client(),
            Identity::Stranger => self.stranger(),
        };
        let chain = vec![CertificateDer::from_pem_file(&shown)?];
        let config = config.with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(&shown)?)?;
        Ok(Arc::new(config))
    }
}

/// A server's requirements on its clients' certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clients {
    /// They may show none.
    Any,
    /// They must show one of the authority.
    Certified,
}

/// A server's TLS.
#[derive(Debug, Clone)]
pub(crate) struct Tls {
    pub(crate) certificates: Certificates,
    pub(crate) clients: Clients,
}

impl Tls {
    /// The TLS options of a connection string to this server.
    pub(crate) fn uri_options(&self) -> Vec<(&'static str, String)> {
        let text = |path: PathBuf| path.display().to_string();
        let mut options = vec![("tls", "true".to_owned()), ("tlsCAFile", text(self.certificates.ca()))];
        if self.clients == Clients::Certified {
            options.push(("tlsCertificateKeyFile", text(self.certificates.client())));
        }
        options
    }
}

/// A certificate and its key, in PEM.
struct Signed {
    certificate: String,
    key: String,
}

impl Signed {
    fn both(&self) -> String {
        format!("{}{}", self.certificate, self.key)
    }
}

fn authority(organization: &str) -> Result<CertifiedIssuer<'static, KeyPair>> {
    let mut params = params(organization, "authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?)
}

/// Members of a set are each other's clients, so a server's certificate is also good for a client.
fn signed(authority: &CertifiedIssuer<'static, KeyPair>, name: &str) -> Result<Signed> {
    let mut params = params("mongoshape tests", name);
    params.subject_alt_names =
        CertificateParams::new(["127.0.0.1".to_owned(), "localhost".to_owned()])?.subject_alt_names;
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate()?;
    Ok(Signed {
        certificate: pem("CERTIFICATE", params.signed_by(&key, authority)?.der()),
        key: pem("PRIVATE KEY", key.serialized_der()),
    })
}

fn pem(label: &str, der: &[u8]) -> String {
    pem::encode(&pem::Pem::new(label, der))
}

fn params(organization: &str, name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, organization);
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2049, 12, 31);
    params
}

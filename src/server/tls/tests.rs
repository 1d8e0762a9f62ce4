//! Certificates and files for the tests. Generated for each test, so that nothing in the repository
//! expires.

mod driver;
mod files;
mod handshake;

use std::path::PathBuf;
use std::sync::Arc;

use mongodb::options::{ConnectionString, Tls, TlsOptions};
use pkcs8::der::asn1::OctetStringRef;
use pkcs8::der::{Decode, Encode};
use pkcs8::pkcs5::pbes2::Parameters;
use pkcs8::{EncryptedPrivateKeyInfoRef, PrivateKeyInfoRef};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, date_time_ymd,
};
use rustls::ClientConfig;

use super::*;

/// An RSA key as PKCS#8, because rcgen cannot generate one with ring. It protects nothing.
const RSA_KEY: &str = include_str!("tests/rsa.pem");

/// A temporary folder of PEM files.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes the concatenated texts.
    fn write(&self, name: &str, texts: &[&str]) -> PathBuf {
        std::fs::write(self.path(name), texts.concat()).unwrap();
        self.path(name)
    }

    /// A listener's files, with certificate and key in one file.
    fn listener(&self, name: &str, identity: &Identity, client_ca: Option<&Authority>) -> TlsFiles {
        let cert = self.write(name, &[&identity.chain, &identity.key]);
        TlsFiles {
            table: TlsTable::Listen,
            key: cert.clone(),
            cert,
            client_ca: client_ca.map(|authority| self.write("client-ca.pem", &[&authority.pem])),
        }
    }

    /// The driver's TLS options of a connection string. `{}` stands for the folder.
    fn options(&self, options: &str) -> TlsOptions {
        let options = options.replace("{}", self.0.path().to_str().unwrap());
        match ConnectionString::parse(format!("mongodb://db/?{options}")).unwrap().tls {
            Some(Tls::Enabled(options)) => options,
            other => panic!("{other:?}"),
        }
    }

    fn connector(&self, options: &str) -> Arc<ClientConfig> {
        connector(&self.options(options)).unwrap_or_else(|error| panic!("{error}"))
    }

    /// An error without the folder's path, which differs in each run.
    fn report(&self, error: &TlsError) -> String {
        error.to_string().replace(self.0.path().to_str().unwrap(), "DIR")
    }
}

/// A certificate with its intermediates, and its key, as PEM.
struct Identity {
    chain: String,
    key: String,
}

struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// The name is the issuer in issued certificates, by which an authority is searched.
    fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let params = Self::params(name);
        let pem = pem_of("CERTIFICATE", params.self_signed(&key).unwrap().der());
        let issuer = Issuer::new(params, key);
        Self { pem, issuer }
    }

    fn params(name: &str) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
    }

    /// An intermediate authority. Its `pem` must follow the certificates that it issues.
    fn intermediate(&self) -> Self {
        let key = KeyPair::generate().unwrap();
        let params = Self::params("an intermediate authority");
        let pem = pem_of("CERTIFICATE", params.signed_by(&key, &self.issuer).unwrap().der());
        let issuer = Issuer::new(params, key);
        Self { pem, issuer }
    }

    fn issue(&self, params: &CertificateParams) -> Identity {
        self.issue_for(params, &KeyPair::generate().unwrap())
    }

    fn issue_for(&self, params: &CertificateParams, key: &KeyPair) -> Identity {
        Identity {
            chain: pem_of("CERTIFICATE", params.signed_by(key, &self.issuer).unwrap().der()),
            key: pem_of("PRIVATE KEY", key.serialized_der()),
        }
    }
}

fn pem_of(label: &str, der: &[u8]) -> String {
    ::pem::encode(&::pem::Pem::new(label, der))
}

fn params(names: &[&str]) -> CertificateParams {
    CertificateParams::new(names.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap()
}

fn server() -> CertificateParams {
    params(&["db.example.com", "127.0.0.1", "::1"])
}

fn client() -> CertificateParams {
    let mut params = params(&[]);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

fn expired(mut params: CertificateParams) -> CertificateParams {
    params.not_after = date_time_ymd(2020, 2, 29);
    params
}

/// The key without its PKCS#8 wrapper, under the label of its own format: PKCS#1 for RSA, SEC1 for
/// ECDSA.
fn traditional(key: &str, label: &str) -> String {
    let section = ::pem::parse(key).unwrap();
    let info = PrivateKeyInfoRef::from_der(section.contents()).unwrap();
    pem_of(label, info.private_key.as_bytes())
}

/// The key encrypted as by `openssl pkcs8 -topk8 -v2 aes-256-cbc`, with fewer rounds.
fn encrypted(key: &str, password: &str) -> String {
    let section = ::pem::parse(key).unwrap();
    let parameters = Parameters::generate_pbkdf2_sha256_aes256cbc(1000, b"salty salt", [7; 16]).unwrap();
    let data = parameters.encrypt(password, section.contents()).unwrap();
    let info = EncryptedPrivateKeyInfoRef {
        encryption_algorithm: parameters.into(),
        encrypted_data: OctetStringRef::new(&data).unwrap(),
    };
    pem_of("ENCRYPTED PRIVATE KEY", &info.to_der().unwrap())
}

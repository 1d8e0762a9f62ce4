//! Reads PEM files: certificates, authorities and private keys. The option that names a file is only used in
//! errors.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use pkcs8::EncryptedPrivateKeyInfoRef;
use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use super::error::{FileOption, FileProblem, TlsError};

/// Maximum bytes of a file. A bundle with all public authorities has a fortieth of it.
const LONGEST_FILE_BYTES: u64 = 8 << 20;

/// The label of a section with an encrypted key (RFC 7468, section 11).
const ENCRYPTED_KEY: &str = "ENCRYPTED PRIVATE KEY";

/// The header with which OpenSSL's older formats mark an encrypted key (RFC 1421, section 4.6.1.1).
const LEGACY_ENCRYPTION: &str = "Proc-Type: 4,ENCRYPTED";

/// The content of a file, and the option that names it.
pub(super) struct PemFile {
    option: FileOption,
    path: PathBuf,
    bytes: Vec<u8>,
}

impl PemFile {
    /// Reads the file once, for all of its sections.
    pub(super) fn read(option: FileOption, path: &Path) -> Result<Self, TlsError> {
        let mut file = Self {
            option,
            path: path.to_owned(),
            bytes: Vec::new(),
        };
        match bounded(path) {
            Ok(Some(bytes)) => file.bytes = bytes,
            Ok(None) => {
                let limit = LONGEST_FILE_BYTES;
                return Err(file.error(FileProblem::TooLong { limit }));
            }
            Err(error) => return Err(file.error(FileProblem::Unreadable(error))),
        }
        Ok(file)
    }

    /// An error about this file.
    pub(super) fn error(&self, problem: FileProblem) -> TlsError {
        TlsError::File {
            option: self.option,
            path: self.path.clone(),
            problem,
        }
    }

    /// The file's path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// All certificates in order, at least one.
    pub(super) fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let certificates = CertificateDer::pem_slice_iter(&self.bytes).collect::<Result<Vec<_>, _>>();
        let certificates = certificates.map_err(|error| self.syntax(&error))?;
        if certificates.is_empty() {
            return Err(self.error(FileProblem::NoCertificate));
        }
        Ok(certificates)
    }

    /// All certificates as authorities. Each must be usable.
    pub(super) fn authorities(&self) -> Result<RootCertStore, TlsError> {
        let mut store = RootCertStore::empty();
        for (position, certificate) in self.certificates()?.into_iter().enumerate() {
            let unusable = |error: rustls::Error| self.bad_certificate(position + 1, &error);
            store.add(certificate).map_err(unusable)?;
        }
        Ok(store)
    }

    /// The certificates that are usable as authorities, at least one. Others are skipped, as by the
    /// driver.
    pub(super) fn usable_authorities(&self) -> Result<RootCertStore, TlsError> {
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(CertificateDer::pem_slice_iter(&self.bytes).flatten());
        if store.is_empty() {
            // The strict reader reports the problem of the first certificate.
            return self.authorities();
        }
        Ok(store)
    }

    /// The first private key: PKCS#8, PKCS#1 or SEC1, not encrypted.
    pub(super) fn private_key(&self) -> Result<PrivateKeyDer<'static>, TlsError> {
        PrivateKeyDer::from_pem_slice(&self.bytes).map_err(|error| match error {
            pem::Error::NoItemsFound if self.contains(ENCRYPTED_KEY) => self.error(FileProblem::EncryptedKey),
            pem::Error::NoItemsFound => self.error(FileProblem::NoKey),
            other => self.syntax(&other),
        })
    }

    /// The first encrypted private key: PKCS#8 with PBES2 (RFC 8018). A key that is not encrypted
    /// is an error, as in the driver.
    pub(super) fn encrypted_private_key(&self, password: &[u8]) -> Result<PrivateKeyDer<'static>, TlsError> {
        let sections = ::pem::parse_many(&self.bytes);
        let sections = sections.map_err(|error| self.error(FileProblem::Syntax(error.to_string())))?;
        let section = sections.iter().find(|section| section.tag() == ENCRYPTED_KEY);
        let encrypted = section.ok_or_else(|| self.error(FileProblem::NotEncrypted))?.contents();
        let key = EncryptedPrivateKeyInfoRef::try_from(encrypted);
        let key = key.and_then(|key| key.decrypt(password));
        let key = key.map_err(|error| self.error(FileProblem::Undecryptable(error.to_string())))?;
        Ok(PrivatePkcs8KeyDer::from(key.as_bytes().to_vec()).into())
    }

    /// An error about a certificate, by its number from 1.
    pub(super) fn bad_certificate(&self, number: usize, error: &rustls::Error) -> TlsError {
        let reason = match error {
            // The inner message does not mention a peer.
            rustls::Error::InvalidCertificate(reason) => reason.to_string(),
            other => other.to_string(),
        };
        self.error(FileProblem::BadCertificate { number, reason })
    }

    /// An error about a malformed section.
    fn syntax(&self, error: &pem::Error) -> TlsError {
        // The headers of a key in the older format are not base64.
        if self.contains(LEGACY_ENCRYPTION) {
            return self.error(FileProblem::LegacyEncryptedKey);
        }
        self.error(FileProblem::Syntax(match error {
            // The library would print the lines as lists of bytes.
            pem::Error::MissingSectionEnd { end_marker } => {
                format!("the end of {} is missing", String::from_utf8_lossy(end_marker))
            }
            pem::Error::IllegalSectionStart { line } => {
                let line = String::from_utf8_lossy(line);
                format!("\"{}\" is not the begin line of a section", line.trim())
            }
            pem::Error::Base64Decode(_) => "a section is not base64".to_owned(),
            other => other.to_string(),
        }))
    }

    fn contains(&self, text: &str) -> bool {
        self.bytes.windows(text.len()).any(|window| window == text.as_bytes())
    }
}

/// Reads the file. `None`: it is too long.
fn bounded(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    let file = File::open(path)?;
    file.take(LONGEST_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    let fits = u64::try_from(bytes.len()).is_ok_and(|length| length <= LONGEST_FILE_BYTES);
    Ok(fits.then_some(bytes))
}

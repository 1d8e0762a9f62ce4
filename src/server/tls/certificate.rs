//! Checks the proxy's certificates: whether the key belongs to the certificate, and whether clients
//! could accept it.

use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, Error, InconsistentKeys, RootCertStore};

use super::error::{FileProblem, TlsError};
use super::pem::PemFile;

/// A certificate with its intermediates and its key, after a check that they belong together.
pub(super) fn certified_key(
    provider: &CryptoProvider,
    chain_file: &PemFile,
    chain: Vec<CertificateDer<'static>>,
    key_file: &PemFile,
    key: PrivateKeyDer<'static>,
) -> Result<CertifiedKey, TlsError> {
    let key = provider.key_provider.load_private_key(key);
    let key = key.map_err(|error| {
        key_file.error(FileProblem::BadKey(match error {
            Error::General(reason) => reason,
            other => other.to_string(),
        }))
    })?;
    let certified = CertifiedKey::new(chain, key);
    match certified.keys_match() {
        // The result is unknown for keys in hardware.
        Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(certified),
        Err(Error::InconsistentKeys(_)) => {
            let certificate = chain_file.path().to_owned();
            Err(key_file.error(FileProblem::KeyMismatch { certificate }))
        }
        Err(error) => Err(chain_file.bad_certificate(1, &error)),
    }
}

/// Refuses a server certificate that every client would refuse, as mongod does at its start.
pub(super) fn check_server_certificate(file: &PemFile, chain: &[CertificateDer<'static>]) -> Result<(), TlsError> {
    let Some(certificate) = chain.first() else {
        return Err(file.error(FileProblem::NoCertificate));
    };
    let parsed = ParsedCertificate::try_from(certificate).map_err(|error| file.bad_certificate(1, &error))?;
    // Without an authority, the search for the issuer fails. Validity and purpose are checked
    // before that search.
    let nobody = RootCertStore::empty();
    let verified = verify_server_cert_signed_by_trust_anchor(&parsed, &nobody, &[], UnixTime::now(), &[]);
    let Err(Error::InvalidCertificate(error)) = verified else {
        return Ok(());
    };
    let problem = match error {
        CertificateError::ExpiredContext { not_after, .. } => FileProblem::Expired { at: utc(not_after) },
        CertificateError::NotValidYetContext { not_before, .. } => FileProblem::NotYetValid { at: utc(not_before) },
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => FileProblem::NotForServers,
        // The issuer and the algorithm are checked by clients.
        _ => return Ok(()),
    };
    Err(file.error(problem))
}

fn utc(time: UnixTime) -> String {
    let milliseconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX).saturating_mul(1000);
    let formatted = bson::DateTime::from_millis(milliseconds).try_to_rfc3339_string();
    formatted.unwrap_or_else(|_| format!("{} s after 1970", time.as_secs()))
}

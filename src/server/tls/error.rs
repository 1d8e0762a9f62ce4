//! Errors of a TLS configuration: the file, its option, and the remedy. Contains no secret.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// The table of the configuration that names the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsTable {
    /// `[listen] tls`, for applications.
    Listen,
    /// `[admin] tls`, for clients of the admin endpoints.
    Admin,
}

/// An option that names a PEM file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileOption {
    /// The proxy's own certificate.
    Cert(TlsTable),
    /// The key of that certificate.
    Key(TlsTable),
    /// The authorities for clients' certificates.
    ClientCa(TlsTable),
    /// `tlsCAFile` of the upstream's connection string.
    CaFile,
    /// `tlsCertificateKeyFile` of the upstream's connection string.
    CertificateKeyFile,
}

impl fmt::Display for FileOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cert(TlsTable::Listen) => "`listen.tls.cert`",
            Self::Cert(TlsTable::Admin) => "`admin.tls.cert`",
            Self::Key(TlsTable::Listen) => "`listen.tls.key`",
            Self::Key(TlsTable::Admin) => "`admin.tls.key`",
            Self::ClientCa(TlsTable::Listen) => "`listen.tls.client_ca`",
            Self::ClientCa(TlsTable::Admin) => "`admin.tls.client_ca`",
            Self::CaFile => "`upstream.uri`, tlsCAFile",
            Self::CertificateKeyFile => "`upstream.uri`, tlsCertificateKeyFile",
        })
    }
}

/// The reason why TLS cannot be configured. The text includes the remedy.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file is not usable.
    #[error("{option}: {} {problem}; {}", path.display(), problem.remedy(*option))]
    File {
        /// The option that names the file.
        option: FileOption,
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: FileProblem,
    },
    /// No certificate can be issued for the host.
    #[error(
        "\"{host}\" is neither a host name nor an IP address that a certificate can contain; write the server's name as in its \
         certificate"
    )]
    ServerName {
        /// The host as it was given.
        host: String,
    },
    /// The TLS library refuses its own defaults, or the system has no randomness. Not the user's
    /// fault.
    #[error("TLS cannot be set up: {0}")]
    Setup(#[from] rustls::Error),
}

/// The problem of a file. The text follows the file's name.
#[derive(Debug, thiserror::Error)]
pub enum FileProblem {
    /// It cannot be opened or read.
    #[error("cannot be read: {0}")]
    Unreadable(io::Error),
    /// It is too long for its purpose.
    #[error("is longer than {limit} bytes")]
    TooLong {
        /// The maximum length in bytes.
        limit: u64,
    },
    /// A section is malformed.
    #[error("is not valid PEM: {0}")]
    Syntax(String),
    /// It has no certificate.
    #[error("contains no certificate")]
    NoCertificate,
    /// A certificate cannot be parsed.
    #[error("contains a certificate (number {number}) that cannot be used: {reason}")]
    BadCertificate {
        /// The certificate's number, from 1.
        number: usize,
        /// The TLS library's message.
        reason: String,
    },
    /// The certificate has expired.
    #[error("contains a certificate that expired at {at}")]
    Expired {
        /// The end of its validity, in UTC.
        at: String,
    },
    /// The certificate is not valid yet.
    #[error("contains a certificate that is not valid before {at}")]
    NotYetValid {
        /// The beginning of its validity, in UTC.
        at: String,
    },
    /// The certificate's extended key usage excludes servers.
    #[error("contains a certificate that is not meant for servers")]
    NotForServers,
    /// It has no private key.
    #[error("contains no private key")]
    NoKey,
    /// The key is encrypted, and no password is given.
    #[error("contains an encrypted private key")]
    EncryptedKey,
    /// The key is encrypted in a format that neither the TLS library nor the driver supports.
    #[error("contains a private key encrypted in OpenSSL's older format")]
    LegacyEncryptedKey,
    /// The key is not encrypted, or not in PKCS#8, although a password is given.
    #[error(
        "contains no key in a section BEGIN ENCRYPTED PRIVATE KEY, although tlsCertificateKeyFilePassword is given"
    )]
    NotEncrypted,
    /// The key cannot be decrypted with the password.
    #[error("contains a private key that cannot be decrypted: {0}")]
    Undecryptable(String),
    /// The key is malformed, or of an unsupported kind.
    #[error("contains a private key that cannot be used: {0}")]
    BadKey(String),
    /// The key does not belong to the certificate.
    #[error("contains a private key that does not belong to the certificate in {}", certificate.display())]
    KeyMismatch {
        /// The file with the certificate.
        certificate: PathBuf,
    },
}

impl FileProblem {
    fn remedy(&self, option: FileOption) -> &'static str {
        match self {
            Self::Unreadable(_) | Self::TooLong { .. } => "name a PEM file that is readable for this user",
            Self::Syntax(_) => "write it again, with the BEGIN and END lines of every section",
            Self::NoCertificate => "name a PEM file with a section BEGIN CERTIFICATE",
            Self::BadCertificate { .. } => "replace the certificate",
            Self::Expired { .. } => "renew the certificate",
            Self::NotYetValid { .. } => "check this host's clock, or wait",
            Self::NotForServers => "issue it with the extended key usage serverAuth, or with none",
            Self::NoKey if option == FileOption::Key(TlsTable::Listen) => {
                "name the key's file in `listen.tls.key`, or put the key into the file of `listen.tls.cert`"
            }
            Self::NoKey if option == FileOption::Key(TlsTable::Admin) => {
                "name the key's file in `admin.tls.key`, or put the key into the file of `admin.tls.cert`"
            }
            Self::NoKey => "put the key into the same file as the certificate",
            Self::EncryptedKey if option == FileOption::CertificateKeyFile => {
                "give tlsCertificateKeyFilePassword in `upstream.uri`"
            }
            Self::LegacyEncryptedKey if option == FileOption::CertificateKeyFile => {
                "encrypt it as PKCS#8 (openssl pkcs8 -topk8 -v2 aes-256-cbc -in FILE)"
            }
            Self::EncryptedKey | Self::LegacyEncryptedKey => {
                "decrypt it (openssl pkey -in FILE -out NEW_FILE), and make it readable for this user only"
            }
            Self::NotEncrypted => {
                "remove the password, or encrypt the key (openssl pkcs8 -topk8 -v2 aes-256-cbc -in FILE)"
            }
            Self::Undecryptable(_) => {
                "correct tlsCertificateKeyFilePassword, or encrypt the key again (openssl pkcs8 -topk8 -v2 aes-256-cbc)"
            }
            Self::BadKey(_) => {
                "use an RSA key of 2048 bits or more, an ECDSA key on P-256 or P-384, or an Ed25519 key, as PEM"
            }
            Self::KeyMismatch { .. } => {
                "name the key for which the certificate was issued, and put that certificate first in its file"
            }
        }
    }
}

//! Access to the admin endpoints: TLS and the token. Independent of paths.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;
use rustls::ServerConfig;
use subtle::ConstantTimeEq;

/// The requirements for connections and requests. Can be exchanged at any time.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// The certificate. `None`: without TLS.
    pub tls: Option<Arc<ServerConfig>>,
    /// The token that requests must contain. `None`: none is required.
    pub token: Option<Token>,
}

impl Access {
    /// Whether nothing is required. TLS counts as a requirement, because a browser checks the
    /// certificate's name.
    pub(super) fn is_open(&self) -> bool {
        self.tls.is_none() && self.token.is_none()
    }

    /// Whether a request may read protected content.
    pub(super) fn is_granted(&self, headers: &HeaderMap) -> bool {
        self.token.as_ref().is_none_or(|token| token.is_known_by(headers))
    }
}

/// A secret that requests must contain. Not included in `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

/// The reason why a text is not a valid token. The text is not included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Too short, so that it could be guessed, or too long, so that it is probably another file.
    #[error("it must have {} to {} characters", Token::SHORTEST, Token::LONGEST)]
    Length,
    /// Characters that a header cannot contain (RFC 6750, section 2.1).
    #[error("it contains characters other than letters, digits and -._~+/=")]
    Characters,
}

impl TokenError {
    /// The remedy for a user.
    #[must_use]
    pub fn remedy(self) -> &'static str {
        "write one such as `openssl rand -hex 32` gives"
    }
}

/// The reason why a file has no valid token.
#[derive(Debug, thiserror::Error)]
pub enum TokenFileError {
    /// It cannot be opened or read.
    #[error("`admin.token_file`: {}: cannot be read: {error}; name a file that is readable for this user", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: std::io::Error,
    },
    /// Its content is not a valid token.
    #[error("`admin.token_file`: {}: {error}; {}", path.display(), error.remedy())]
    NoToken {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: TokenError,
    },
}

impl Token {
    /// Minimum number of characters. A shorter token could be guessed.
    pub const SHORTEST: usize = 16;
    /// Maximum bytes of a token file. A longer header is not sent by browsers either.
    pub const LONGEST: usize = 1024;

    /// A token with this text.
    ///
    /// # Errors
    /// If it could be guessed, or a header cannot contain it.
    pub fn new(text: &str) -> Result<Self, TokenError> {
        if !(Self::SHORTEST..=Self::LONGEST).contains(&text.len()) {
            return Err(TokenError::Length);
        }
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
        text.bytes()
            .all(allowed)
            .then(|| Self(text.to_owned()))
            .ok_or(TokenError::Characters)
    }

    /// Reads a token from a file, without surrounding white space. Blocks meanwhile.
    ///
    /// # Errors
    /// If the file cannot be read, or has no valid token.
    pub fn read(path: &Path) -> Result<Self, TokenFileError> {
        let mut text = String::new();
        let longest = u64::try_from(Self::LONGEST).unwrap_or(u64::MAX);
        let read = std::fs::File::open(path).and_then(|file| file.take(longest + 3).read_to_string(&mut text));
        let path = path.to_owned();
        match read {
            Err(error) => Err(TokenFileError::Unreadable { path, error }),
            Ok(_) => Self::new(text.trim()).map_err(|error| TokenFileError::NoToken { path, error }),
        }
    }

    /// Whether a request contains the token: as a bearer token, or as the password of Basic authentication
    /// with any user name, because browsers prompt only for these. Takes the same time for all wrong tokens
    /// of one length.
    pub(super) fn is_known_by(&self, headers: &HeaderMap) -> bool {
        let Some((scheme, credentials)) = headers
            .get(AUTHORIZATION)
            .and_then(|value| value.to_str().ok()?.split_once(' '))
        else {
            return false;
        };
        let credentials = credentials.trim();
        if scheme.eq_ignore_ascii_case("bearer") {
            return self.is(credentials.as_bytes());
        }
        let pair = BASE64_STANDARD.decode(credentials).unwrap_or_default();
        let colon = pair.iter().position(|byte| *byte == b':');
        let password = colon.and_then(|colon| pair.get(colon + 1..));
        scheme.eq_ignore_ascii_case("basic") && password.is_some_and(|password| self.is(password))
    }

    fn is(&self, other: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(other).into()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(<redacted>)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    #[test]
    fn a_token_is_long_enough_and_fits_into_a_header() {
        assert_eq!(format!("{:?}", Token::new(TOKEN).unwrap()), "Token(<redacted>)");
        assert_eq!(Token::new(&TOKEN[1..]), Err(TokenError::Length));
        assert_eq!(Token::new(&TOKEN.repeat(65)), Err(TokenError::Length));
        assert_eq!(Token::new("0123456789 abcdef"), Err(TokenError::Characters));
        assert_eq!(Token::new("0123456789\u{e9}abcdef"), Err(TokenError::Characters));
    }

    #[test]
    fn token_file_may_end_with_a_newline() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            Token::read(&path)
        };
        assert_eq!(read(&format!("{TOKEN}\r\n")).unwrap(), Token::new(TOKEN).unwrap());
        let report = |error: &TokenFileError| error.to_string().replace(folder.path().to_str().unwrap(), "DIR");
        let short = read("hush\n").unwrap_err();
        assert!(report(&short).starts_with("`admin.token_file`: DIR/token: it must have 16"));
        assert!(!short.to_string().contains("hush"));
        let missing = Token::read(&folder.path().join("none")).unwrap_err();
        assert!(report(&missing).starts_with("`admin.token_file`: DIR/none: cannot be read"));
    }

    #[test]
    fn token_is_accepted_as_bearer_and_as_basic_password() {
        let check = |value: &str, expected: bool| {
            let headers = HeaderMap::from_iter([(AUTHORIZATION, value.parse().unwrap())]);
            assert_eq!(Token::new(TOKEN).unwrap().is_known_by(&headers), expected, "{value}");
        };
        let basic = |pair: String| format!("Basic {}", BASE64_STANDARD.encode(pair));
        check(&format!("Bearer {TOKEN}"), true);
        check(&format!("bearer  {TOKEN}"), true);
        check(&basic(format!("anybody:{TOKEN}")), true);
        check(&basic(format!(":{TOKEN}")), true);
        check(&basic(TOKEN.to_owned()), false);
        check(&basic(format!("{TOKEN}:")), false);
        check(&basic(format!("a:b:{TOKEN}")), false);
        check("Basic !", false);
        check(TOKEN, false);
        check(&format!("Digest {TOKEN}"), false);
        check(&format!("Bearer {TOKEN}0"), false);
        check("Bearer ", false);
        assert!(!Token::new(TOKEN).unwrap().is_known_by(&HeaderMap::new()));
    }
}

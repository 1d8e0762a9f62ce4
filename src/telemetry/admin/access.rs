//! Who may ask: TLS and the token. Knows no path.

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

/// What a connection and its request must come with; may be exchanged at any time.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// The certificate that is shown; `None`: without TLS.
    pub tls: Option<Arc<ServerConfig>>,
    /// What a request must know; `None`: nothing.
    pub token: Option<Token>,
}

impl Access {
    /// Whether nothing is demanded. TLS is something: a browser wants a certificate of the name that it asks
    /// for.
    pub(super) fn is_open(&self) -> bool {
        self.tls.is_none() && self.token.is_none()
    }

    /// Whether a request may see what not everyone may.
    pub(super) fn is_granted(&self, headers: &HeaderMap) -> bool {
        self.token.as_ref().is_none_or(|token| token.is_known_by(headers))
    }
}

/// A secret that whoever asks must know. Its `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

/// Why a text is no token. Displays without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It could be found by trying, or is no secret but a file of something else.
    #[error("it does not have {} to {} characters", Token::SHORTEST, Token::LONGEST)]
    Length,
    /// It could not stand in a header (RFC 6750, section 2.1).
    #[error("it has other characters than letters, digits and -._~+/=")]
    Characters,
}

impl TokenError {
    /// What to do about it.
    #[must_use]
    pub fn remedy(self) -> &'static str {
        "write one such as `openssl rand -hex 32` gives"
    }
}

/// Why a file has no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenFileError {
    /// It cannot be opened or read.
    #[error("`admin.token_file`: {}: cannot be read: {error}; name a file that this user may read", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: std::io::Error,
    },
    /// What it holds is none.
    #[error("`admin.token_file`: {}: {error}; {}", path.display(), error.remedy())]
    NoToken {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: TokenError,
    },
}

impl Token {
    /// The fewest characters of one: a shorter one could be found by trying.
    pub const SHORTEST: usize = 16;
    /// The longest file that is read for one, in bytes; and a longer header than a browser sends.
    pub const LONGEST: usize = 1024;

    /// A token of this text.
    ///
    /// # Errors
    /// When it could be found by trying, or cannot stand in a header.
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

    /// The token that a file holds; spaces and the end of its line are none of it. Blocks while it reads.
    ///
    /// # Errors
    /// When the file cannot be read, or holds no token.
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

    /// Whether a request knows it: as a bearer token, or, since a browser asks its user for nothing else, as
    /// the password of Basic authentication, whoever the user is. Takes as long for one wrong token as for
    /// another of the same length.
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
    fn a_file_may_end_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            Token::read(&path)
        };
        assert_eq!(read(&format!("{TOKEN}\r\n")).unwrap(), Token::new(TOKEN).unwrap());
        let report = |error: &TokenFileError| error.to_string().replace(folder.path().to_str().unwrap(), "DIR");
        let short = read("hush\n").unwrap_err();
        assert!(report(&short).starts_with("`admin.token_file`: DIR/token: it does not have 16"));
        assert!(!short.to_string().contains("hush"));
        let missing = Token::read(&folder.path().join("none")).unwrap_err();
        assert!(report(&missing).starts_with("`admin.token_file`: DIR/none: cannot be read"));
    }

    #[test]
    fn it_is_known_as_bearer_and_as_password() {
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

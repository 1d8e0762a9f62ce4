//! The section `admin`, and a warning about an address that others can reach.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::options::admin as options;
use super::section::Section;
use super::tls;
use super::values::socket_address;
use crate::server::tls::{TlsFiles, TlsTable, acceptor};
use crate::telemetry::admin::{Access, Token};

/// Configuration of metrics, health and the operator's page.
#[derive(Clone, Debug)]
pub struct AdminConfig {
    /// The address to listen on.
    pub address: SocketAddr,
    /// The files for TLS. `None`: no TLS. The files are not read yet.
    pub tls: Option<TlsFiles>,
    /// The token that requests must have. `None`: requests need no token.
    pub token: Option<AdminToken>,
}

/// The source of the token.
#[derive(Clone, Debug)]
pub enum AdminToken {
    /// The configuration or the environment.
    Given(Token),
    /// This file, which is not read yet.
    File(PathBuf),
}

/// `None` only if a mistake was recorded.
pub(super) fn resolve(section: &mut Section<'_>) -> Option<AdminConfig> {
    let tls = tls::resolve(section, &options::TLS, TlsTable::Admin);
    let token = token(section);
    let text = section.text(&options::ADDRESS);
    if section.is_faulty("address") {
        return None;
    }
    let address = socket_address(section, &text)?;
    Some(AdminConfig { address, tls, token })
}

fn token(section: &mut Section<'_>) -> Option<AdminToken> {
    let given = section.secret(&options::TOKEN);
    let file = section.string(&options::TOKEN_FILE);
    if given.is_some() && file.is_some() {
        return section.refuse("token", "`token_file` is set as well", "remove one of them");
    }
    if let Some(text) = given {
        return match Token::new(&text) {
            Ok(token) => Some(AdminToken::Given(token)),
            // The value itself is not shown.
            Err(problem) => section.refuse("token", &problem.to_string(), problem.remedy()),
        };
    }
    let path = tls::path(section, "token_file", "a file that contains the token", &file?)?;
    Some(AdminToken::File(path))
}

impl AdminConfig {
    /// The certificate and the token that clients of the admin endpoints need.
    ///
    /// # Errors
    /// A certificate or a token file that cannot be used.
    pub fn access(&self) -> anyhow::Result<Access> {
        let token = match &self.token {
            None => None,
            Some(AdminToken::Given(token)) => Some(token.clone()),
            Some(AdminToken::File(path)) => Some(Token::read(path)?),
        };
        Ok(Access {
            tls: self.tls.as_ref().map(acceptor).transpose()?,
            token,
        })
    }

    /// The risk if strangers can reach the address, and the remedy. `None` on loopback, with client
    /// certificates, and with TLS and a token.
    #[must_use]
    pub fn exposure(&self) -> Option<&'static str> {
        let certificates = self.tls.as_ref().is_some_and(|files| files.client_ca.is_some());
        if self.address.ip().is_loopback() || certificates {
            return None;
        }
        match (&self.token, &self.tls) {
            (None, _) => Some(
                "every client that reaches this address can read metrics, namespaces and recent warnings; restrict access in the \
                 network, or set `admin.token_file` and `admin.tls`",
            ),
            (Some(_), None) => Some("the token is sent unencrypted; set `admin.tls`"),
            (Some(_), Some(_)) => None,
        }
    }
}

#[cfg(test)]
mod tests;

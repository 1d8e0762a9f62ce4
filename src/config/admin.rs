//! What the section `admin` means, and what is to be said of an address that others can reach.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::options::admin as options;
use super::section::Section;
use super::tls;
use super::values::socket_address;
use crate::server::tls::{TlsFiles, TlsTable, acceptor};
use crate::telemetry::admin::{Access, Token};

/// Metrics, health and the operator's page.
#[derive(Clone, Debug)]
pub struct AdminConfig {
    /// The address to answer on.
    pub address: SocketAddr,
    /// With which files it speaks TLS; `None`: it speaks without. The files are not looked at yet.
    pub tls: Option<TlsFiles>,
    /// What whoever asks must know; `None`: nothing.
    pub token: Option<AdminToken>,
}

/// Where the token is.
#[derive(Clone, Debug)]
pub enum AdminToken {
    /// In the configuration, or in the environment.
    Given(Token),
    /// In this file, which is not looked at yet.
    File(PathBuf),
}

/// `None` only after a mistake was noted.
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
        return section.refuse("token", "there is a `token_file` as well", "remove one of the two");
    }
    if let Some(text) = given {
        return match Token::new(&text) {
            Ok(token) => Some(AdminToken::Given(token)),
            // The value itself is not shown.
            Err(problem) => section.refuse("token", &problem.to_string(), problem.remedy()),
        };
    }
    let path = tls::path(section, "token_file", "a file with the token", &file?)?;
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

    /// What whoever reaches the address from elsewhere may do that they should not, and what keeps them from
    /// it. `None` on loopback, and where TLS and a secret of the asker's keep strangers out.
    #[must_use]
    pub fn exposure(&self) -> Option<&'static str> {
        let certificates = self.tls.as_ref().is_some_and(|files| files.client_ca.is_some());
        if self.address.ip().is_loopback() || certificates {
            return None;
        }
        match (&self.token, &self.tls) {
            (None, _) => Some(
                "whoever reaches this address reads metrics, namespaces and recent warnings; \
                 keep others away from it by the network, or set `admin.token_file` and `admin.tls`",
            ),
            (Some(_), None) => Some("the token goes over the network unencrypted; set `admin.tls`"),
            (Some(_), Some(_)) => None,
        }
    }
}

#[cfg(test)]
mod tests;

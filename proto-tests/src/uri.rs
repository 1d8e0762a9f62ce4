//! Connection strings.

use std::fmt;
use std::net::SocketAddr;

/// One connection string, put together from its parts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Uri {
    hosts: Vec<SocketAddr>,
    user: Option<(String, String)>,
    options: Vec<(&'static str, String)>,
}

impl Uri {
    /// For these servers.
    pub(crate) fn of(hosts: &[SocketAddr]) -> Self {
        Self {
            hosts: hosts.to_vec(),
            ..Self::default()
        }
    }

    /// Adds an option.
    pub(crate) fn option(mut self, name: &'static str, value: &str) -> Self {
        self.options.push((name, value.to_owned()));
        self
    }

    /// Adds some options.
    pub(crate) fn options(mut self, options: Vec<(&'static str, String)>) -> Self {
        self.options.extend(options);
        self
    }

    /// Adds a user of the database `admin`.
    pub(crate) fn user(self, user: &str, password: &str) -> Self {
        let user = Some((user.to_owned(), password.to_owned()));
        Self { user, ..self }.option("authSource", "admin")
    }
}

impl fmt::Display for Uri {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "mongodb://")?;
        if let Some((user, password)) = &self.user {
            write!(formatter, "{}:{}@", escaped(user), escaped(password))?;
        }
        let hosts: Vec<_> = self.hosts.iter().map(ToString::to_string).collect();
        write!(formatter, "{}/", hosts.join(","))?;
        for (number, (name, value)) in self.options.iter().enumerate() {
            let before = if number == 0 { '?' } else { '&' };
            write!(formatter, "{before}{name}={}", escaped(value))?;
        }
        Ok(())
    }
}

/// With everything in percent notation that could mean something to a parser.
fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let escape = |byte: u8| {
        if plain(byte) {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    };
    text.bytes().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_characters_in_uri_parts_are_escaped() {
        let hosts = [([127, 0, 0, 1], 1), ([127, 0, 0, 1], 2)].map(SocketAddr::from);
        let uri = Uri::of(&hosts).option("tlsCAFile", "/tmp/a b.pem").user("me@", "p:/?");
        let expected =
            "mongodb://me%40:p%3A%2F%3F@127.0.0.1:1,127.0.0.1:2/?tlsCAFile=%2Ftmp%2Fa%20b.pem&authSource=admin";
        assert_eq!(uri.to_string(), expected);
        assert_eq!(Uri::of(&hosts[..1]).to_string(), "mongodb://127.0.0.1:1/");
    }
}

//! From a TOML file and the environment to checked values, or to all mistakes at once.
//!
//! `source` parses the text, `section` reads one table of it field by field, and `options`
//! describes every field. `resolve`, `listen`, `upstream`, `admin` and `shapes` turn fields into
//! values. Every scalar can also be set by an environment variable, which overrides the file:
//! `MONGOSHAPE_LISTEN_ADDRESS`, or `MONGOSHAPE_BUCKET_0_MAX_ITEMS` for the first `[[bucket]]`. A
//! `[[bucket]]` or `[[outlier]]` that is not in the file is added by the namespace with the next
//! number.
//!
//! Must not depend on sockets. Does not read the environment itself: the lookup is passed in.

mod admin;
mod error;
mod limits;
mod listen;
mod model;
mod options;
mod resolve;
mod section;
mod shapes;
mod source;
pub(crate) mod suggest;
mod tls;
mod traces;
mod upstream;
mod values;

use std::path::Path;

pub use self::admin::{AdminConfig, AdminToken};
pub use self::error::{ConfigError, ConfigErrors, MistakeLocation};
pub use self::model::{Config, ListenConfig, Listeners, LogConfig, MemberConfig, PresentAs, UpstreamConfig};
pub use self::options::{DefaultValue, Holds, OptionReference, TableReference, reference};
use self::source::ConfigSource;

impl Config {
    /// Reads a file. Environment variables override its options.
    ///
    /// # Errors
    /// The file cannot be read, or every mistake in the file and in the variables.
    pub fn load(path: &Path, environment: &impl Fn(&str) -> Option<String>) -> Result<Self, ConfigErrors> {
        let file_name = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| ConfigError {
            place: MistakeLocation::File(file_name.clone()),
            problem: format!("cannot be read: {error}"),
            remedy: "name a configuration file that is readable for this user".to_owned(),
        })?;
        Self::parse(&text, &file_name, environment)
    }

    /// Parses a text. `file_name` is the file's name in mistakes.
    ///
    /// # Errors
    /// Every mistake in the text and in the variables.
    pub fn parse(
        text: &str,
        file_name: &str,
        environment: &impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigErrors> {
        let (source, table) = ConfigSource::parse(file_name, text, environment);
        let config = resolve::config(&source, table);
        match (source.into_errors(), config) {
            (None, Some(config)) => Ok(config),
            (Some(errors), _) => Err(errors),
            (None, None) => unreachable!("a part is only missing where a mistake was noted"),
        }
    }
}

#[cfg(test)]
mod tests;

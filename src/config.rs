//! From a TOML file and the environment to checked values, or to all mistakes at once.
//!
//! `source` parses the text, `section` reads one table field by field, `options` describes every field,
//! and `resolve`, `listen`, `upstream`, `admin` and `shapes` interpret the fields. Every scalar can
//! also be set by an environment variable, which takes precedence over the file:
//! `MONGOSHAPE_LISTEN_ADDRESS`, or `MONGOSHAPE_BUCKET_0_MAX_ITEMS` for the first `[[bucket]]`. A
//! further `[[bucket]]` or `[[outlier]]` is added by setting the namespace of the next number.
//!
//! Must not know sockets, and does not read the environment itself: the lookup is passed in.

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
mod upstream;
mod values;

use std::path::Path;

pub use self::admin::{AdminConfig, AdminToken};
pub use self::error::{ConfigError, ConfigErrors, MistakeLocation};
pub use self::model::{Config, ListenConfig, Listeners, LogConfig, MemberConfig, PresentAs, UpstreamConfig};
pub use self::options::{DefaultValue, Holds, OptionReference, TableReference, reference};
use self::source::ConfigSource;

impl Config {
    /// Reads a file. Environment variables take precedence over it.
    ///
    /// # Errors
    /// If the file cannot be read, or all mistakes in it and in the variables.
    pub fn load(path: &Path, environment: &impl Fn(&str) -> Option<String>) -> Result<Self, ConfigErrors> {
        let file_name = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| ConfigError {
            place: MistakeLocation::File(file_name.clone()),
            problem: format!("cannot be read: {error}"),
            remedy: "name a configuration file that this user may read".to_owned(),
        })?;
        Self::parse(&text, &file_name, environment)
    }

    /// Reads a text. `file_name`: the name in error messages.
    ///
    /// # Errors
    /// All mistakes in it and in the variables.
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

//! The version of a server, for behaviour that differs between servers of one wire version.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};

use super::document::{as_whole_number, get, put, single};
use super::error::CommandError;

/// The version of a MongoDB server. Versions are in the order of their release numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerVersion {
    /// 0: the server does not report its version.
    pub major: u16,
    /// 0 for each major version since 5.0, except for rapid releases.
    pub minor: u16,
    /// The number of the patch release.
    pub patch: u16,
}

impl ServerVersion {
    /// A released version.
    #[must_use]
    pub const fn new(major: u16, minor: u16, patch: u16) -> Self {
        Self { major, minor, patch }
    }

    /// The command whose reply contains the version.
    #[must_use]
    pub fn request() -> RawDocumentBuf {
        let mut command = single("buildInfo", 1);
        put(&mut command, "$db", "admin");
        // A server may require `apiVersion`.
        put(&mut command, "apiVersion", "1");
        command
    }

    /// The version in a reply to [the command](Self::request). Unknown if the reply contains none.
    #[must_use]
    pub fn of_reply(reply: &RawDocument) -> Self {
        let numbers = get(reply, "versionArray").and_then(RawBsonRef::as_array);
        let numbers = numbers.into_iter().flatten().flatten();
        let mut numbers = numbers.map(|number| as_whole_number(number).and_then(|number| u16::try_from(number).ok()));
        let mut next = || numbers.next().flatten();
        match (next(), next(), next()) {
            (Some(major), Some(minor), Some(patch)) => Self { major, minor, patch },
            _ => Self::default(),
        }
    }
}

/// A field that commands have since a version.
#[derive(Clone, Copy, Debug)]
pub struct FieldSince {
    /// The command, or the place of its statements.
    pub command: &'static str,
    /// The field.
    pub field: &'static str,
    /// The first version that knows the field.
    pub version: ServerVersion,
}

impl FieldSince {
    /// Checks that a server knows the field.
    ///
    /// # Errors
    /// That of an unknown field.
    pub fn check(self, server: ServerVersion) -> Result<(), CommandError> {
        if server >= self.version {
            return Ok(());
        }
        Err(CommandError::unknown_field(self.command, self.field))
    }
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    #[test]
    fn build_info_contains_the_version() {
        let of = |reply: RawDocumentBuf| ServerVersion::of_reply(&reply);
        let reply = rawdoc! { "version": "6.0.27", "versionArray": [6, 0, 27, 0], "ok": 1.0 };
        assert_eq!(of(reply), ServerVersion::new(6, 0, 27));
        for unknown in [
            rawdoc! { "ok": 0.0, "code": 13 },
            rawdoc! { "versionArray": [6, 0] },
            rawdoc! { "versionArray": [-6, 0, 1] },
            rawdoc! { "versionArray": ["6", 0, 1] },
            rawdoc! { "versionArray": 6 },
        ] {
            assert_eq!(of(unknown), ServerVersion::default());
        }
    }
}

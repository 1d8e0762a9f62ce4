//! The cells of the matrix: a driver, an upstream, a presentation, and connection options.

use std::fmt;

use super::program::Driver;

/// What the proxy stands before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Upstream {
    Standalone,
    /// Of three members.
    Set,
}

/// As what applications see the upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Face {
    /// A standalone as the standalone that it is.
    Standalone,
    Mongos,
    /// A set of one: the proxy.
    ReplicaSet,
    /// A listener for each member.
    Members,
}

/// How it is connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Variant {
    Plain,
    Snappy,
    Zlib,
    Zstd,
    /// To the proxy, and from there to mongod.
    Tls,
    ScramSha1,
    ScramSha256,
}

/// The security that the servers of a variant require.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Security {
    None,
    Tls,
    Login,
}

/// One comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) driver: Driver,
    pub(super) upstream: Upstream,
    pub(super) face: Face,
    pub(super) variant: Variant,
}

impl Upstream {
    pub(super) const ALL: [Self; 2] = [Self::Standalone, Self::Set];

    const fn faces(self) -> &'static [Face] {
        match self {
            Self::Standalone => &[Face::Standalone],
            Self::Set => &[Face::Mongos, Face::ReplicaSet, Face::Members],
        }
    }
}

impl Security {
    pub(super) const ALL: [Self; 3] = [Self::None, Self::Tls, Self::Login];
}

impl Face {
    const fn name(self) -> &'static str {
        match self {
            Self::Standalone => "standalone",
            Self::Mongos => "mongos",
            Self::ReplicaSet => "replica-set",
            Self::Members => "members",
        }
    }
}

impl Variant {
    const ALL: [Self; 7] = [
        Self::Plain,
        Self::Snappy,
        Self::Zlib,
        Self::Zstd,
        Self::Tls,
        Self::ScramSha1,
        Self::ScramSha256,
    ];

    pub(super) const fn security(self) -> Security {
        match self {
            Self::Plain | Self::Snappy | Self::Zlib | Self::Zstd => Security::None,
            Self::Tls => Security::Tls,
            Self::ScramSha1 | Self::ScramSha256 => Security::Login,
        }
    }

    /// The option of the connection string beside those that the servers require.
    pub(super) const fn option(self) -> Option<&'static str> {
        match self {
            Self::Plain | Self::Tls => None,
            Self::Snappy => Some("compressors=snappy"),
            Self::Zlib => Some("compressors=zlib"),
            Self::Zstd => Some("compressors=zstd"),
            Self::ScramSha1 => Some("authMechanism=SCRAM-SHA-1"),
            Self::ScramSha256 => Some("authMechanism=SCRAM-SHA-256"),
        }
    }

    /// As the server names it in its statistics.
    pub(super) const fn compressor(self) -> Option<&'static str> {
        match self {
            Self::Snappy | Self::Zlib | Self::Zstd => Some(self.name()),
            _ => None,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Snappy => "snappy",
            Self::Zlib => "zlib",
            Self::Zstd => "zstd",
            Self::Tls => "tls",
            Self::ScramSha1 => "scram-sha-1",
            Self::ScramSha256 => "scram-sha-256",
        }
    }
}

impl Cell {
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let faces = Upstream::ALL
            .into_iter()
            .flat_map(|upstream| upstream.faces().iter().map(move |&face| (upstream, face)));
        let ways = faces.flat_map(|(upstream, face)| Variant::ALL.map(|variant| (upstream, face, variant)));
        ways.flat_map(|(upstream, face, variant)| {
            Driver::ALL.map(|driver| Self {
                driver,
                upstream,
                face,
                variant,
            })
        })
    }

    /// Whether it is called by all of these words.
    pub(super) fn has(self, words: &[&str]) -> bool {
        let names = [self.driver.name(), self.face.name(), self.variant.name()];
        words.iter().all(|word| names.contains(word))
    }
}

/// All but the driver.
impl fmt::Display for Cell {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}, {}", self.face.name(), self.variant.name())
    }
}

//! The arguments of `convert` and `verify`.

use std::time::Duration;

use clap::{Args, ValueEnum, value_parser};

use super::ConfigFile;
use crate::maintenance::convert::{ConvertOptions, ConvertTask, MissingFields, PaceLimits};

#[derive(Debug, Args)]
#[group(id = "task", multiple = false)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "options of a command, of which one may be given"
)]
struct ConvertDirection {
    /// The layout to convert to. Default: the shape in the configuration.
    #[arg(long, value_name = "LAYOUT", value_enum)]
    to: Option<TargetLayout>,
    /// Fills a copy in the shape of the configuration, and keeps it up to date until the command is stopped.
    /// Proxies with `mode = "shadow"` compare a share of the reads with it.
    #[arg(long)]
    shadow: bool,
    /// Returns to the layout before the last conversion, with all later writes. Given again, it continues a
    /// run that was stopped. Ends a conversion that has not swapped the collections yet.
    #[arg(long)]
    back: bool,
    /// Keeps the collection in its former layout up to date after a conversion, until the command is stopped:
    /// `--back` then takes less time.
    #[arg(long)]
    follow: bool,
    /// Drops the collection in its former layout, also after a run of `--back` that was stopped. After that,
    /// `--back` is not possible.
    #[arg(long)]
    finish: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum TargetLayout {
    /// Plain documents.
    Plain,
}

#[derive(Debug, Args)]
pub(super) struct Convert {
    #[command(flatten)]
    pub(super) file: ConfigFile,
    /// The collection, as `database.collection`.
    #[arg(long, value_name = "NAMESPACE")]
    namespace: String,
    #[command(flatten)]
    direction: ConvertDirection,
    /// Accepts a key, time or renamed field of the shape that no document has.
    #[arg(long)]
    allow_missing_key: bool,
    /// Requires that all programs that write are stopped. A standalone server requires this, because it has
    /// no change streams.
    #[arg(long, conflicts_with_all = ["follow", "shadow"])]
    offline: bool,
    /// Reads all documents and reports what would be refused, and what time and room the copy needs. Writes
    /// nothing.
    #[arg(long, conflicts_with_all = ["back", "follow", "finish", "shadow"])]
    dry_run: bool,
    #[command(flatten)]
    pace: Pace,
}

#[derive(Debug, Args)]
struct Pace {
    /// The most documents that are copied or compared in a second. Default: no limit. Changes of applications
    /// are applied without a limit.
    #[arg(long = "max-rate", value_name = "DOCUMENTS_PER_SECOND", allow_negative_numbers = true, value_parser = value_parser!(u32).range(1..=1_000_000))]
    rate: Option<u32>,
    /// The part of the time, in percent, in which documents are copied or compared. In between applications
    /// go on. Without writers there are no pauses.
    #[arg(long = "max-share", value_name = "PERCENT", allow_negative_numbers = true, default_value_t = 20, value_parser = value_parser!(u32).range(1..=100))]
    share: u32,
    /// Copying pauses while a secondary of the replica set is more seconds behind the primary. Requires the
    /// right `replSetGetStatus`; without it there is no limit.
    #[arg(long = "max-lag", value_name = "SECONDS", allow_negative_numbers = true, default_value_t = 10, value_parser = value_parser!(u32).range(1..=86_400))]
    lag: u32,
    /// Copying pauses while the median of the last five small reads takes more milliseconds.
    #[arg(long = "max-latency", value_name = "MILLISECONDS", allow_negative_numbers = true, default_value_t = 100, value_parser = value_parser!(u32).range(1..=60_000))]
    latency: u32,
}

impl Pace {
    fn limits(&self) -> PaceLimits {
        PaceLimits {
            rate: self.rate,
            share: Some(self.share),
            lag: Some(Duration::from_secs(self.lag.into())),
            latency: Some(Duration::from_millis(self.latency.into())),
        }
    }
}

impl Convert {
    pub(super) fn options(&self) -> ConvertOptions<'_> {
        ConvertOptions {
            namespace: &self.namespace,
            task: self.task(),
            is_offline: self.offline,
            is_dry_run: self.dry_run,
            missing: if self.allow_missing_key {
                MissingFields::Allowed
            } else {
                MissingFields::Refused
            },
            pace: self.pace.limits(),
        }
    }

    fn task(&self) -> ConvertTask {
        match self.direction {
            ConvertDirection { shadow: true, .. } => ConvertTask::Shadow,
            ConvertDirection { back: true, .. } => ConvertTask::Back,
            ConvertDirection { follow: true, .. } => ConvertTask::Follow,
            ConvertDirection { finish: true, .. } => ConvertTask::Finish,
            ConvertDirection {
                to: Some(TargetLayout::Plain),
                ..
            } => ConvertTask::ToPlain,
            ConvertDirection { .. } => ConvertTask::ToShape,
        }
    }
}

#[derive(Debug, Args)]
pub(super) struct Verify {
    #[command(flatten)]
    pub(super) file: ConfigFile,
    /// The collection, as `database.collection`.
    #[arg(long, value_name = "NAMESPACE")]
    namespace: String,
}

impl Verify {
    pub(super) fn options(&self) -> ConvertOptions<'_> {
        ConvertOptions {
            namespace: &self.namespace,
            task: ConvertTask::Verify,
            is_offline: false,
            is_dry_run: false,
            missing: MissingFields::Refused,
            pace: PaceLimits::default(),
        }
    }
}

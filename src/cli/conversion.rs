//! The arguments of `convert` and `verify`.

use clap::{Args, ValueEnum};

use super::ConfigFile;
use crate::maintenance::convert::{ConvertOptions, ConvertTask, MissingFields};

#[derive(Debug, Args)]
#[group(id = "task", multiple = false)]
struct ConvertDirection {
    /// The layout to convert to. Default: the shape in the configuration.
    #[arg(long, value_name = "LAYOUT", value_enum)]
    to: Option<TargetLayout>,
    /// Returns to the layout before the last conversion, with all later writes. Ends a conversion that has
    /// not swapped the collections yet.
    #[arg(long)]
    back: bool,
    /// Keeps the collection in its former layout up to date after a conversion, until the command is stopped:
    /// `--back` then takes less time.
    #[arg(long)]
    follow: bool,
    /// Drops the collection in its former layout. After that, `--back` is not possible.
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
    #[arg(long, conflicts_with = "follow")]
    offline: bool,
    /// Reads all documents and reports what would be refused. Writes nothing.
    #[arg(long, conflicts_with_all = ["back", "follow", "finish"])]
    dry_run: bool,
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
        }
    }

    fn task(&self) -> ConvertTask {
        match self.direction {
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
        }
    }
}

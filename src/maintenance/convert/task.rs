//! The work that an operator requests.

/// The work of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConvertTask {
    /// To the shape in the configuration.
    ToShape,
    /// Keeps a copy in the shape of the configuration up to date, and does not swap.
    Shadow,
    /// To plain documents.
    ToPlain,
    /// Back to the layout before the last conversion, also after a run that was stopped. Or ends a conversion
    /// that has not swapped yet.
    Back,
    /// Keeps the collection in its former layout up to date.
    Follow,
    /// Drops the collection in its former layout, also if a run of the way back was stopped.
    Finish,
    /// Compares a collection with its copy, or with the one that is kept.
    Verify,
}

impl ConvertTask {
    /// Its command line, without the options that name the collection.
    pub(super) fn command(self) -> &'static str {
        match self {
            Self::ToShape => "mongoshape convert",
            Self::Shadow => "mongoshape convert --shadow",
            Self::ToPlain => "mongoshape convert --to plain",
            Self::Back => "mongoshape convert --back",
            Self::Follow => "mongoshape convert --follow",
            Self::Finish => "mongoshape convert --finish",
            Self::Verify => "mongoshape verify",
        }
    }
}

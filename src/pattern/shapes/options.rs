//! Values and checks that the options of both patterns share.

/// A contradiction in one shape: the option, the problem, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{option}: {problem}; {remedy}")]
pub struct ShapeError {
    /// The option's name in the configuration, such as `max_items` or `extras.ref`.
    pub option: &'static str,
    /// The problem.
    pub problem: String,
    /// The remedy.
    pub remedy: String,
}

impl ShapeError {
    pub(super) fn new(option: &'static str, problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            option,
            problem: problem.into(),
            remedy: remedy.into(),
        }
    }
}

/// How the proxy handles commands on a shaped namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Mode {
    /// Rewrites them.
    #[default]
    Rewrite,
    /// Relays them, and counts those that would have been rewritten.
    Observe,
    /// Relays them while the collection contains plain documents, and rewrites them while it contains pages.
    Auto,
    /// Relays them.
    Off,
}

/// Checks the name of a stored field: not empty, no dot, no leading `$`.
pub(super) fn check_field_name(option: &'static str, name: &str, errors: &mut Vec<ShapeError>) {
    if name.is_empty() || name.starts_with('$') || name.contains(['.', '\0']) {
        errors.push(ShapeError::new(
            option,
            format!("`{name}` is not a top-level field name"),
            "write a name without dots and without a leading `$`",
        ));
    }
}

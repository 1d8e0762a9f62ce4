//! Values and checks that the options of both patterns share.

/// A contradiction in one shape: which option, what is wrong, what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{option}: {problem}; {remedy}")]
pub struct ShapeError {
    /// The option's name as configuration spells it, such as `max_items` or `extras.ref`.
    pub option: &'static str,
    /// What is wrong with it.
    pub problem: String,
    /// What to write instead.
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

/// What the proxy does with commands on a shaped namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Mode {
    /// Rewrite them.
    #[default]
    Rewrite,
    /// Relay them, and count what would have been rewritten.
    Observe,
    /// Relay them.
    Off,
}

/// What a name of a stored field must be: not empty, no dot, no leading `$`.
pub(super) fn check_field_name(option: &'static str, name: &str, errors: &mut Vec<ShapeError>) {
    if name.is_empty() || name.starts_with('$') || name.contains(['.', '\0']) {
        errors.push(ShapeError::new(
            option,
            format!("`{name}` is not a top-level field name"),
            "write a name without dots and without a leading `$`",
        ));
    }
}

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
    /// Relays them. A share of the reads is afterwards compared with a copy in pages.
    Shadow,
    /// Relays them.
    Off,
}

impl Mode {
    /// Whether commands are always relayed, as without a shape.
    #[must_use]
    pub fn only_relays(self) -> bool {
        matches!(self, Self::Shadow | Self::Off)
    }
}

/// The share of the reads that are compared in the mode `shadow`, in hundredths of a percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShadowShare(u16);

impl ShadowShare {
    const ALL: u16 = 10_000;

    /// `None`: less than 0.01 % or more than 100 %. Rounded to hundredths.
    #[must_use]
    pub fn of_percent(percent: f64) -> Option<Self> {
        let hundredths = (percent * 100.0).round();
        let is_valid = (1.0..=f64::from(Self::ALL)).contains(&hundredths);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the range was checked"
        )]
        is_valid.then_some(Self(hundredths as u16))
    }

    /// Whether a read is among the share. `random`: evenly distributed.
    #[must_use]
    pub fn includes(self, random: u32) -> bool {
        random
            .checked_rem(u32::from(Self::ALL))
            .is_some_and(|random| random < u32::from(self.0))
    }
}

impl Default for ShadowShare {
    fn default() -> Self {
        Self(100)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_between_a_hundredth_and_100_percent() {
        for percent in [0.0, 0.004, -1.0, 100.01, f64::NAN] {
            assert_eq!(ShadowShare::of_percent(percent), None, "{percent}");
        }
        let included = |percent| {
            let share = ShadowShare::of_percent(percent).unwrap();
            (0..10_000).filter(|random| share.includes(*random)).count()
        };
        assert_eq!([0.01, 1.0, 2.5, 100.0].map(included), [1, 100, 250, 10_000]);
        assert_eq!(ShadowShare::of_percent(1.0), Some(ShadowShare::default()));
    }
}

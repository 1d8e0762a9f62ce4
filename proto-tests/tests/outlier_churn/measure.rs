//! How much happens, and by which seed.

use std::time::Duration;

/// How much happens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measure {
    /// Buyers, of all books.
    pub(crate) buyers: usize,
    /// For how long changes of other kinds are made.
    pub(crate) time: Duration,
}

impl Measure {
    pub(crate) fn chosen() -> Self {
        let (buyers, seconds) = match std::env::var("MONGOSHAPE_CHURN").as_deref() {
            Ok("full") => (50_000, 60),
            _ => (2_000, 6),
        };
        Self {
            buyers,
            time: Duration::from_secs(seconds),
        }
    }
}

/// The seed of a run, which says how to see it again, as far as threads allow.
pub(crate) fn seed() -> u64 {
    let given = std::env::var("MONGOSHAPE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| rand::random_range(1..1_000_000));
    show(&format!("MONGOSHAPE_SEED={seed}"));
    seed
}

/// One line for who runs this by hand; the test runner hides it otherwise.
#[expect(
    clippy::print_stdout,
    reason = "the test's own output, which the test runner captures"
)]
pub(crate) fn show(text: &str) {
    println!("{text}");
}

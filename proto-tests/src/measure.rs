//! The size and the seed of a test, from the environment.

/// Whether the environment variable of this name selects the full size.
#[must_use]
pub fn is_full(variable: &str) -> bool {
    std::env::var(variable).as_deref() == Ok("full")
}

/// The rows of a table that an ordinary run takes: every `parts`th, from row `first` on.
/// `MONGOSHAPE_TABLES=full` takes all.
pub fn rows<T>(table: impl IntoIterator<Item = T>, parts: usize, first: usize) -> impl Iterator<Item = T> {
    let takes_all = is_full("MONGOSHAPE_TABLES");
    let numbered = table.into_iter().enumerate();
    let taken = numbered.filter(move |(number, _)| takes_all || number % parts == first % parts);
    taken.map(|(_, row)| row)
}

/// The seed of a run: that of `MONGOSHAPE_SEED`, or any. It is shown, so that the run can be seen again, as
/// far as threads allow.
#[must_use]
pub fn seed() -> u64 {
    let given = std::env::var("MONGOSHAPE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| rand::random_range(1..1_000_000));
    show(&format!("MONGOSHAPE_SEED={seed}"));
    seed
}

/// The seed of `MONGOSHAPE_SEED`, or always the same one: a comparison with mongod that fails depends on the
/// change under test, not on chance.
#[must_use]
pub fn fixed_seed() -> u64 {
    let given = std::env::var("MONGOSHAPE_SEED").ok().and_then(|seed| seed.parse().ok());
    given.unwrap_or(1)
}

/// Prints one line for a manual run. The test runner hides it otherwise.
#[expect(
    clippy::print_stdout,
    reason = "the test's own output, which the test runner captures"
)]
pub fn show(text: &str) {
    println!("{text}");
}

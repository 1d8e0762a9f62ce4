//! Conversions between counts, which are integers, and estimates, which are real numbers.

/// A count for calculations.
#[expect(clippy::cast_precision_loss, reason = "no estimate is as exact as the cast")]
pub(super) fn real(count: u64) -> f64 {
    count as f64
}

/// An estimate, rounded to a count.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast saturates, and what is below 0 is none"
)]
pub(super) fn whole(estimate: f64) -> u64 {
    estimate.round() as u64
}

/// A length, as a count.
pub(super) fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// The fraction of `all`. 0 if `all` is 0.
pub(super) fn share(part: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { real(part) / real(all) }
}

/// The smallest of 10, 20, 50, 100, 200, 500, 1000, ... that is not less than `number`.
pub(super) fn round_up(number: u64) -> u64 {
    let mut power: u64 = 10;
    loop {
        for factor in [1, 2, 5] {
            let round = power.saturating_mul(factor);
            if round >= number {
                return round;
            }
        }
        power = power.saturating_mul(10);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_numbers_are_not_less() {
        let check = |number, expected| assert_eq!(round_up(number), expected);
        check(0, 10);
        check(10, 10);
        check(11, 20);
        check(50, 50);
        check(51, 100);
        check(501, 1000);
        check(u64::MAX, u64::MAX);
    }
}

//! Statistics for a noisy machine: medians, and ratios of figures that were measured in the same round.

/// The one in the middle, of which there must be one.
pub(super) fn median(figures: impl IntoIterator<Item = f64>) -> f64 {
    let mut figures: Vec<_> = figures.into_iter().collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// How many times as much `one` is as `other`: the median of the rounds' ratios, since what is slow for one
/// in a round is slow for the other.
pub(super) fn ratio<'a>(one: impl IntoIterator<Item = &'a f64>, other: impl IntoIterator<Item = &'a f64>) -> f64 {
    median(one.into_iter().zip(other).map(|(one, other)| one / other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_a_figure_in_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0]).to_string(), "2");
    }

    #[test]
    fn a_ratio_is_of_rounds_and_not_of_medians() {
        assert_eq!(ratio(&[3.0, 1.0, 2.0], &[6.0, 2.0, 1.0]).to_string(), "0.5");
    }
}

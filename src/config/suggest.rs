//! "Did you mean": the known word that a misspelt one is nearest to. Pure.

/// The nearest of the known words, if the distance is small enough for a misspelling.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase().replace('-', "_");
    // One edit in three letters is a misspelling; with more it is another word.
    let most = word.chars().count().div_ceil(3).max(1);
    known
        .into_iter()
        .map(|candidate| (distance(&word, candidate), candidate))
        .filter(|(distance, _)| *distance <= most)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Letters to insert, delete or replace to get from one word to the other (Levenshtein).
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (position, letter) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = position + 1;
        for (column, other) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_slips_and_leaves_other_words() {
        let check = |word, expected| assert_eq!(nearest(word, ["max_items", "max_bytes", "mode"]), expected, "{word}");
        check("max_item", Some("max_items"));
        check("max-items", Some("max_items"));
        check("MaxBytes", Some("max_bytes"));
        check("moed", Some("mode"));
        check("compression", None);
        check("", None);
    }
}

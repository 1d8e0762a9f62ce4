//! "Did you mean": the known words that a misspelt one is nearest to. Pure.

/// The most names in a suggestion.
const MAX_NEAR_MISSES: usize = 3;

/// The nearest of the known words, if the distance is small enough for a misspelling.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase().replace('-', "_");
    let most = most_slips(&word);
    known
        .into_iter()
        .map(|candidate| (distance(&word, candidate), candidate))
        .filter(|(distance, _)| *distance <= most)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// The nearest of the known names, if the distance is small enough for a misspelling. Upper case, `_` and `-`
/// do not count. Empty if there is none, several if they are equally near.
pub(crate) fn near_misses<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    near_misses_within(most_slips(name), name, known)
}

/// Like [`near_misses`], with at most `most` letters that differ.
pub(crate) fn near_misses_within<'a>(
    most: usize,
    name: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Vec<&'a str> {
    let name = plain_letters(name);
    let mut near: Vec<(usize, &str)> = known
        .into_iter()
        .map(|candidate| (distance(&name, &plain_letters(candidate)), candidate))
        .filter(|(distance, _)| *distance <= most)
        .collect();
    near.sort_unstable();
    let least = near.first().map_or(0, |(distance, _)| *distance);
    let nearest = near.into_iter().take_while(|(distance, _)| *distance == least);
    nearest.map(|(_, candidate)| candidate).take(MAX_NEAR_MISSES).collect()
}

/// One edit in three letters is a misspelling; with more it is another word.
fn most_slips(word: &str) -> usize {
    word.chars().count().div_ceil(3).max(1)
}

fn plain_letters(name: &str) -> String {
    name.to_lowercase().replace(['-', '_'], "")
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

    #[test]
    fn names_are_compared_without_case_and_underscores() {
        let known = ["at", "conversationId", "sentAt", "text", "test"];
        let check = |name, expected: &[&str]| assert_eq!(near_misses(name, known), expected, "{name}");
        check("conversationID", &["conversationId"]);
        check("CONVERSATION_ID", &["conversationId"]);
        check("conversatonid", &["conversationId"]);
        check("sent_at", &["sentAt"]);
        check("tet", &["test", "text"]);
        check("customer", &[]);
        assert_eq!(near_misses_within(0, "conversatonid", known), [""; 0]);
    }
}

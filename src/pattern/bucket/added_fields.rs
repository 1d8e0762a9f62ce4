//! The order of fields that an update adds.

/// Whether mongod adds the fields in the same order under their stored names: the application's name and the
/// stored name of each field. mongod orders names by their bytes, and numbers by value. Beside a number, only
/// fields that are not renamed keep their order.
pub(super) fn keep_order<'a>(fields: impl IntoIterator<Item = (&'a str, &'a str)>) -> bool {
    let mut fields: Vec<(&str, &str)> = fields.into_iter().collect();
    if fields.iter().all(|(name, stored)| name == stored) {
        return true;
    }
    fields.sort_unstable();
    fields.dedup();
    let mut names = fields.iter().flat_map(|(name, stored)| [name, stored]);
    let has_number = names.any(|name| is_number(name));
    fields.len() == 1 || (!has_number && fields.is_sorted_by_key(|(_, stored)| *stored))
}

fn is_number(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(fields: &[(&str, &str)], kept: bool) {
        assert_eq!(keep_order(fields.iter().copied()), kept, "{fields:?}");
    }

    #[test]
    fn renamed_fields_keep_the_order_of_their_names() {
        check(&[("b", "b"), ("a", "a")], true);
        check(&[("10", "10"), ("2", "2")], true);
        check(&[("quantity", "qty"), ("a", "a"), ("quantity", "qty")], true);
        check(&[("createdBy", "by"), ("count", "count")], false);
        check(&[("createdBy", "by")], true);
        check(&[("9", "qty")], true);
        check(&[("quantity", "qty"), ("10", "10")], false);
    }
}

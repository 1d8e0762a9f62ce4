//! A database and a collection.

use std::fmt;

/// The collection of a database in which mongod stores the definitions of its views. It is created with the
/// first view.
pub const VIEWS: &str = "system.views";

/// A namespace borrowed from a command. A database name contains no `.`; a collection name may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Namespace<'a> {
    /// The database, as in the command's `$db`.
    pub database: &'a str,
    /// The collection, as in the command's first value.
    pub collection: &'a str,
}

impl<'a> Namespace<'a> {
    /// Joins a database and a collection.
    #[must_use]
    pub const fn new(database: &'a str, collection: &'a str) -> Self {
        Self { database, collection }
    }

    /// Splits `database.collection` at the first dot. `None` if a part is empty.
    #[must_use]
    pub fn parse(full: &'a str) -> Option<Self> {
        let (database, collection) = full.split_once('.')?;
        (!database.is_empty() && !collection.is_empty()).then_some(Self { database, collection })
    }
}

impl fmt::Display for Namespace<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.database, self.collection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_at_the_first_dot() {
        assert_eq!(Namespace::parse("a.b.c"), Some(Namespace::new("a", "b.c")));
        assert_eq!(Namespace::parse("a."), None);
        assert_eq!(Namespace::parse(".b"), None);
        assert_eq!(Namespace::parse("ab"), None);
    }
}

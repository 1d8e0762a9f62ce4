//! The namespaces of a shape.

use std::fmt;

use crate::command::namespace::Namespace;

/// A configured namespace: one collection, or (`*.name`) that collection in every database.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NamespacePattern {
    /// `None`: every database.
    database: Option<String>,
    collection: String,
}

impl NamespacePattern {
    /// Parses `database.collection` or `*.collection`. `None` if a part is empty, if MongoDB does
    /// not allow the name, or if the collection is a system collection.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let namespace = Namespace::parse(text)?;
        let database = match namespace.database {
            "*" => None,
            name if name.contains(['/', '\\', ' ', '"', '$', '*', '\0']) => return None,
            name => Some(name.to_owned()),
        };
        let collection = namespace.collection;
        (!collection.contains(['$', '\0']) && !collection.starts_with("system.")).then(|| Self {
            database,
            collection: collection.to_owned(),
        })
    }

    pub(super) fn matches(&self, namespace: Namespace<'_>) -> bool {
        self.collection == namespace.collection
            && self.database.as_deref().is_none_or(|name| name == namespace.database)
    }

    /// The database. `None`: every database.
    #[must_use]
    pub fn database(&self) -> Option<&str> {
        self.database.as_deref()
    }

    /// The collection.
    #[must_use]
    pub fn collection(&self) -> &str {
        &self.collection
    }
}

impl fmt::Display for NamespacePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.database.as_deref().unwrap_or("*"), self.collection)
    }
}

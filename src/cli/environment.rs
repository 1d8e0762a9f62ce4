//! The process's environment for the configuration. Records which variables were read, so that a
//! misspelt one can be reported.

use std::cell::RefCell;
use std::collections::BTreeSet;

const PREFIX: &str = "MONGOSHAPE_";
/// Variables that Kubernetes sets in every pod if there is a service named `mongoshape`.
const OF_KUBERNETES: [&str; 2] = ["MONGOSHAPE_PORT", "MONGOSHAPE_SERVICE_"];

/// Records the variables that were read.
#[derive(Debug, Default)]
pub(super) struct RecordedEnvironment {
    read: RefCell<BTreeSet<String>>,
}

impl RecordedEnvironment {
    /// The value of a variable. Bytes that are not UTF-8 are replaced, so that the value is
    /// reported as a mistake and not ignored.
    pub(super) fn variable(&self, name: &str) -> Option<String> {
        self.read.borrow_mut().insert(name.to_owned());
        std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
    }

    /// Variables with the program's prefix that no option uses.
    pub(super) fn unknown(&self) -> Vec<String> {
        let names = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
        self.unknown_among(names)
    }

    fn unknown_among(&self, names: impl Iterator<Item = String>) -> Vec<String> {
        let read = self.read.borrow();
        let is_unknown = |name: &String| {
            name.starts_with(PREFIX)
                && !OF_KUBERNETES.iter().any(|theirs| name.starts_with(theirs))
                && !read.contains(name)
        };
        names.filter(is_unknown).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unread_environment_variable_is_unknown() {
        let environment = RecordedEnvironment::default();
        assert_eq!(environment.variable("MONGOSHAPE_NOT_SET_ANYWHERE"), None);
        let names = [
            "PATH",
            "MONGOSHAPE_NOT_SET_ANYWHERE",
            "MONGOSHAPE_UPSTREAM_URL",
            "MONGOSHAPE_PORT_27018_TCP",
            "MONGOSHAPE_SERVICE_HOST",
        ];
        let unknown = environment.unknown_among(names.map(str::to_owned).into_iter());
        assert_eq!(unknown, ["MONGOSHAPE_UPSTREAM_URL"]);
    }
}

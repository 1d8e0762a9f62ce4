//! The privileges of the user of `upstream.uri`, as the server reports them. A command compares them with
//! those that it will need before its first write. Otherwise it could end halfway, with an error of the
//! server.

use bson::{Bson, Document, doc};
use mongodb::Client;
use mongodb::error::Error;

use super::finding::Finding;

/// The action that a role for all actions has.
const ANY: &str = "anyAction";
/// An action that `create` requires, or `insert`.
const CREATE: &str = "createCollection";
const INSERT: &str = "insert";

/// Actions that a command needs on one resource.
#[derive(Clone, Debug)]
pub(crate) struct Need<'a> {
    pub(crate) database: &'a str,
    /// `None`: the database itself.
    pub(crate) collection: Option<String>,
    pub(crate) actions: &'static [&'static str],
}

/// The privileges of a user.
#[derive(Debug)]
pub(crate) struct Privileges {
    /// `None`: the server has not authenticated a user, so it has no privileges to compare. If it requires
    /// authentication, it refuses the first read.
    granted: Option<Vec<Document>>,
}

impl Privileges {
    /// Asks the server.
    pub(crate) async fn of(client: &Client) -> Result<Self, Error> {
        let command = doc! { "connectionStatus": 1, "showPrivileges": true };
        let status = client.database("admin").run_command(command).await?;
        Ok(Self::parse(&status))
    }

    fn parse(status: &Document) -> Self {
        let info = status.get_document("authInfo").cloned().unwrap_or_default();
        let list = |name: &str| info.get_array(name).cloned().unwrap_or_default();
        let is_authenticated = !list("authenticatedUsers").is_empty();
        let privileges = list("authenticatedUserPrivileges");
        let documents = privileges.iter().filter_map(Bson::as_document).cloned();
        Self {
            granted: is_authenticated.then(|| documents.collect()),
        }
    }

    /// An error for each resource on which the user lacks a needed action.
    pub(crate) fn lacking(&self, needs: &[Need<'_>]) -> Vec<Finding> {
        needs.iter().filter_map(|need| self.finding(need)).collect()
    }

    fn finding(&self, need: &Need<'_>) -> Option<Finding> {
        let missing: Vec<&str> = need
            .actions
            .iter()
            .copied()
            .filter(|action| !self.has(need, action))
            .collect();
        if missing.is_empty() {
            return None;
        }
        let (subject, kind) = match &need.collection {
            Some(collection) => (format!("{}.{collection}", need.database), "this collection"),
            None => (need.database.to_owned(), "this database"),
        };
        let text = format!(
            "the user of `upstream.uri` lacks rights on {kind}: {}; grant them, for example by the roles readWrite and dbAdmin on the \
             database {}; nothing was changed",
            missing.join(", "),
            need.database
        );
        Some(Finding::error(subject, text))
    }

    /// Whether the user has an action on a resource.
    fn has(&self, need: &Need<'_>, action: &str) -> bool {
        let Some(granted) = &self.granted else { return true };
        let mut privileges = granted.iter().filter(|privilege| applies(privilege, need));
        let is_it = |name: &Bson| {
            let name = name.as_str();
            name == Some(action) || name == Some(ANY) || (action == CREATE && name == Some(INSERT))
        };
        privileges.any(|privilege| privilege.get_array("actions").into_iter().flatten().any(is_it))
    }

    /// Whether the user may rename a collection within its database: by the right on the database, or by
    /// rights on both collections.
    pub(crate) fn may_rename(&self, database: &str, from: &str, to: &str) -> bool {
        let has = |collection: Option<&str>, action| {
            let need = Need {
                database,
                collection: collection.map(str::to_owned),
                actions: &[],
            };
            self.has(&need, action)
        };
        has(None, "renameCollectionSameDB")
            || (["find", "dropCollection"].iter().all(|action| has(Some(from), action))
                && ["insert", "createIndex"].iter().all(|action| has(Some(to), action)))
    }
}

/// Whether a privilege is for a resource. An empty name stands for all databases, or for all collections
/// except those of the system.
fn applies(privilege: &Document, need: &Need<'_>) -> bool {
    let Ok(resource) = privilege.get_document("resource") else {
        return false;
    };
    if resource.get_bool("anyResource").unwrap_or_default() {
        return true;
    }
    let (Ok(database), Ok(collection)) = (resource.get_str("db"), resource.get_str("collection")) else {
        return false;
    };
    let is_collection = match &need.collection {
        Some(needed) => collection == needed || (collection.is_empty() && !needed.starts_with("system.")),
        None => collection.is_empty(),
    };
    (database.is_empty() || database == need.database) && is_collection
}

#[cfg(test)]
mod tests {
    use super::*;

    fn privileges(granted: &[Document]) -> Privileges {
        Privileges::parse(&doc! { "authInfo": {
            "authenticatedUsers": [{ "user": "u", "db": "admin" }],
            "authenticatedUserPrivileges": granted,
        } })
    }

    fn check(resource: Document, expected: [bool; 4]) {
        let privileges = privileges(&[doc! { "resource": resource, "actions": ["find", "insert"] }]);
        let need = |database, collection: Option<&str>| Need {
            database,
            collection: collection.map(str::to_owned),
            actions: &["find", "createCollection"],
        };
        let needs = [
            need("shop", Some("trades")),
            need("shop", Some("system.js")),
            need("shop", None),
            need("bank", Some("trades")),
        ];
        let has = needs.map(|need| privileges.lacking(&[need]).is_empty());
        assert_eq!(has, expected);
    }

    #[test]
    fn privileges_apply_to_resources_by_name_and_by_wildcard() {
        check(
            doc! { "db": "shop", "collection": "trades" },
            [true, false, false, false],
        );
        check(doc! { "db": "shop", "collection": "" }, [true, false, true, false]);
        check(doc! { "db": "", "collection": "trades" }, [true, false, false, true]);
        check(doc! { "db": "", "collection": "" }, [true, false, true, true]);
        check(doc! { "anyResource": true }, [true; 4]);
        check(doc! { "cluster": true }, [false; 4]);
        let all = privileges(&[doc! { "resource": { "anyResource": true }, "actions": ["anyAction"] }]);
        assert!(all.has(
            &Need {
                database: "d",
                collection: None,
                actions: &[]
            },
            "collMod"
        ));
    }

    #[test]
    fn without_authentication_nothing_is_lacking() {
        let nobody = doc! { "authInfo": { "authenticatedUsers": [], "authenticatedUserPrivileges": [] } };
        let need = Need {
            database: "shop",
            collection: None,
            actions: &["listCollections"],
        };
        assert!(
            Privileges::parse(&nobody)
                .lacking(std::slice::from_ref(&need))
                .is_empty()
        );
        let text = privileges(&[]).lacking(&[need])[0].to_string();
        assert!(
            text.starts_with(
                "error: shop: the user of `upstream.uri` lacks rights on this database: listCollections; grant"
            ),
            "{text}"
        );
    }

    #[test]
    fn a_rename_needs_a_right_on_the_database_or_on_both_collections() {
        let on = |collection: &str, actions: &[&str]| doc! { "resource": { "db": "d", "collection": collection }, "actions": actions };
        let may = |granted: &[Document]| privileges(granted).may_rename("d", "a", "b");
        assert!(may(&[on("", &["renameCollectionSameDB"])]));
        assert!(may(&[
            on("a", &["find", "dropCollection"]),
            on("b", &["insert", "createIndex"])
        ]));
        assert!(!may(&[on("a", &["find"]), on("b", &["insert", "createIndex"])]));
    }
}

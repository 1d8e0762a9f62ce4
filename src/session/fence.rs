//! A fence: internal commands on a collection name its UUID, so that they have no effect on another
//! collection that has taken the name
//! (`docs/decisions/0041-an-automatic-shape-follows-the-stored-layout.md`).

use bson::Binary;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use crate::command::change_stream;
use crate::command::document::{as_flag, first_field, get};
use crate::command::namespace::Namespace;
use crate::command::registry::Command;

/// The field with which mongod checks the collection.
pub(super) const UUID: &str = "collectionUUID";

/// The collection of a command, whose layout may change at any time.
#[derive(Debug)]
pub(super) struct UuidFence {
    database: String,
    collection: String,
    /// The collection that the command was planned for. `None`: it is missing or was created by the
    /// client's transaction.
    uuid: Option<Binary>,
    /// Whether a command was sent that could not name the UUID.
    is_unchecked: bool,
}

/// What mongod has not checked itself.
#[derive(Debug, PartialEq)]
pub(super) enum LeftToCheck {
    Nothing,
    /// That the collection is still missing.
    Missing,
    /// That the name still denotes this collection.
    Collection(Binary),
}

impl UuidFence {
    pub(super) fn new(namespace: Namespace<'_>) -> Self {
        Self {
            database: namespace.database.to_owned(),
            collection: namespace.collection.to_owned(),
            uuid: None,
            is_unchecked: false,
        }
    }

    pub(super) fn is_of(&self, namespace: Namespace<'_>) -> bool {
        self.database == namespace.database && self.collection == namespace.collection
    }

    /// Sets the collection that further commands name.
    pub(super) fn set(&mut self, uuid: Option<Binary>) {
        self.uuid = uuid;
    }

    /// What must be checked because commands were sent that did not name the UUID.
    pub(super) fn left_to_check(self) -> LeftToCheck {
        match self.uuid {
            _ if !self.is_unchecked => LeftToCheck::Nothing,
            None => LeftToCheck::Missing,
            Some(uuid) => LeftToCheck::Collection(uuid),
        }
    }

    /// The command with the UUID. `None`: it is sent unchanged.
    pub(super) fn applied(&mut self, body: &RawDocument) -> Option<RawDocumentBuf> {
        let (name, RawBsonRef::String(target)) = first_field(body)? else {
            return None;
        };
        let database = get(body, "$db").and_then(RawBsonRef::as_str);
        if target != self.collection || database != Some(&self.database) || get(body, UUID).is_some() {
            return None;
        }
        let command = Command::of(name);
        if matches!(command, Command::GetMore | Command::KillCursors) {
            // A cursor ends with its collection.
            return None;
        }
        match &self.uuid {
            Some(uuid) if accepts_uuid(command, body) && !is_strict(body) => Some(with_uuid(body, uuid)),
            _ => {
                self.is_unchecked = true;
                None
            }
        }
    }
}

/// Whether mongod 6.0 accepts `collectionUUID` in the command.
pub(super) fn accepts_uuid(command: Command, body: &RawDocument) -> bool {
    match command {
        Command::Find
        | Command::Insert
        | Command::Update
        | Command::Delete
        | Command::CreateIndexes
        | Command::DropIndexes
        | Command::CollMod
        | Command::Drop => true,
        Command::Aggregate => change_stream::options(body).is_none(),
        _ => false,
    }
}

/// Whether the command has `apiStrict`, which does not allow `collectionUUID`.
pub(super) fn is_strict(body: &RawDocument) -> bool {
    get(body, "apiStrict").is_some_and(|strict| as_flag(strict) == Some(true))
}

/// The same command, which mongod executes only on the collection with this UUID. One that names a UUID keeps it.
pub(super) fn with_uuid(body: &RawDocument, uuid: &Binary) -> RawDocumentBuf {
    let mut command = body.to_owned();
    if get(body, UUID).is_none() {
        command.append(cstr!("collectionUUID"), uuid);
    }
    command
}

/// Whether the client's command names another collection than that with this UUID. mongod refuses it.
pub(super) fn names_another(body: &RawDocument, uuid: &Binary) -> bool {
    let given = get(body, UUID);
    given.is_some_and(|given| given.as_binary().map(|given| given.to_binary()).as_ref() != Some(uuid))
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;
    use bson::spec::BinarySubtype;

    use super::*;

    fn uuid() -> Binary {
        Binary {
            subtype: BinarySubtype::Uuid,
            bytes: vec![1; 16],
        }
    }

    fn check(body: &RawDocument, is_fenced: bool, is_unchecked: bool) {
        let mut fence = UuidFence::new(Namespace::new("d", "c"));
        fence.set(Some(uuid()));
        let fenced = fence.applied(body);
        assert_eq!(fenced.is_some(), is_fenced, "{body:?}");
        assert_eq!(fence.left_to_check() != LeftToCheck::Nothing, is_unchecked, "{body:?}");
    }

    #[test]
    fn commands_on_the_collection_name_its_uuid() {
        check(&rawdoc! { "find": "c", "$db": "d" }, true, false);
        check(
            &rawdoc! { "find": "c", "collectionUUID": uuid(), "$db": "d" },
            false,
            false,
        );
        check(&rawdoc! { "find": "b", "$db": "d" }, false, false);
        check(&rawdoc! { "find": "c", "$db": "e" }, false, false);
        check(
            &rawdoc! { "getMore": 7_i64, "collection": "c", "$db": "d" },
            false,
            false,
        );
    }

    #[test]
    fn a_command_that_cannot_name_the_uuid_is_noted() {
        check(&rawdoc! { "count": "c", "$db": "d" }, false, true);
        check(&rawdoc! { "find": "c", "apiStrict": true, "$db": "d" }, false, true);
        let stream = rawdoc! { "aggregate": "c", "pipeline": [{ "$changeStream": {} }], "$db": "d" };
        check(&stream, false, true);
    }

    #[test]
    fn without_a_collection_every_command_is_unchecked() {
        let mut fence = UuidFence::new(Namespace::new("d", "c"));
        assert!(fence.applied(&rawdoc! { "find": "c", "$db": "d" }).is_none());
        assert_eq!(fence.left_to_check(), LeftToCheck::Missing);
    }
}

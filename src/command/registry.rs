//! The commands that the proxy distinguishes, by name. Any other command is [`Command::Other`].

/// The subject of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandClass {
    /// Reads documents, or serves a cursor.
    Read,
    /// Writes documents.
    Write,
    /// Reads or writes index definitions.
    Index,
    /// Reads or writes a collection's definition or statistics.
    Collection,
    /// Any other command.
    Other,
}

/// A row of the registry.
#[derive(Debug)]
struct CommandSpec {
    command: Command,
    name: &'static str,
    /// Another name that mongod accepts.
    alias: Option<&'static str>,
    class: CommandClass,
}

/// Declares the commands and their rows. A row is `Variant "name" or "alias": class`.
macro_rules! commands {
    (@alias) => { None };
    (@alias $alias:literal) => { Some($alias) };
    ($($command:ident $name:literal $(or $alias:literal)?: $class:ident,)*) => {
        /// A command of MongoDB.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Command {
            $(#[doc = concat!("`", $name, "`.")] $command,)*
            /// A command that is not in the registry.
            Other,
        }

        /// In the order of [`Command`].
        const REGISTRY: &[CommandSpec] = &[
            $(CommandSpec {
                command: Command::$command,
                name: $name,
                alias: commands!(@alias $($alias)?),
                class: CommandClass::$class,
            },)*
        ];
    };
}

commands! {
    AbortTransaction "abortTransaction": Other,
    Aggregate "aggregate": Read,
    Authenticate "authenticate": Other,
    BuildInfo "buildInfo" or "buildinfo": Other,
    BulkWrite "bulkWrite": Other,
    CollMod "collMod": Collection,
    CollStats "collStats" or "collstats": Collection,
    CommitTransaction "commitTransaction": Other,
    Compact "compact": Collection,
    Count "count": Read,
    Create "create": Collection,
    CreateIndexes "createIndexes": Index,
    DataSize "dataSize" or "datasize": Collection,
    DbStats "dbStats" or "dbstats": Other,
    Delete "delete": Write,
    Distinct "distinct": Read,
    Drop "drop": Collection,
    DropDatabase "dropDatabase": Other,
    DropIndexes "dropIndexes" or "deleteIndexes": Index,
    EndSessions "endSessions": Other,
    Explain "explain": Read,
    Find "find": Read,
    FindAndModify "findAndModify" or "findandmodify": Write,
    GetMore "getMore": Read,
    Hello "hello": Other,
    Insert "insert": Write,
    IsMaster "isMaster" or "ismaster": Other,
    KillCursors "killCursors": Read,
    ListCollections "listCollections": Other,
    ListDatabases "listDatabases": Other,
    ListIndexes "listIndexes": Index,
    Logout "logout": Other,
    MapReduce "mapReduce" or "mapreduce": Other,
    Ping "ping": Other,
    PlanCacheClear "planCacheClear": Collection,
    RefineCollectionShardKey "refineCollectionShardKey": Collection,
    RenameCollection "renameCollection": Collection,
    SaslContinue "saslContinue": Other,
    SaslStart "saslStart": Other,
    ShardCollection "shardCollection": Collection,
    Update "update": Write,
    Validate "validate": Collection,
}

/// Commands whose first value is the name of a user or role.
const OF_USERS_AND_ROLES: [&str; 14] = [
    "createRole",
    "createUser",
    "dropRole",
    "dropUser",
    "grantPrivilegesToRole",
    "grantRolesToRole",
    "grantRolesToUser",
    "revokePrivilegesFromRole",
    "revokeRolesFromRole",
    "revokeRolesFromUser",
    "rolesInfo",
    "updateRole",
    "updateUser",
    "usersInfo",
];

/// Commands of a mongos on the chunks and zones of a collection. They contain values of the shard key, which
/// are the same for items and pages.
const OF_CHUNKS_AND_ZONES: [&str; 9] = [
    "balancerCollectionStatus",
    "clearJumboFlag",
    "configureCollectionBalancing",
    "mergeAllChunksOnShard",
    "mergeChunks",
    "moveChunk",
    "moveRange",
    "split",
    "updateZoneKeyRange",
];

/// Whether a command has the same meaning for the items and the pages of the collection that it names.
#[must_use]
pub fn is_of_chunks_or_zones(name: &str) -> bool {
    OF_CHUNKS_AND_ZONES.contains(&name)
}

/// Whether the first value of a command is the name of a user or role, and so of no collection.
#[must_use]
pub fn names_user_or_role(name: &str) -> bool {
    OF_USERS_AND_ROLES.contains(&name)
}

impl Command {
    /// The command with a name or an alias. Names are case-sensitive, as in mongod.
    #[must_use]
    pub fn of(name: &str) -> Self {
        let mut rows = REGISTRY.iter();
        let row = rows.find(|row| row.name == name || row.alias == Some(name));
        row.map_or(Self::Other, |row| row.command)
    }

    /// All commands, in order of their position.
    pub fn all() -> impl Iterator<Item = Self> {
        REGISTRY.iter().map(|row| row.command).chain([Self::Other])
    }

    /// The position among [`Command::all`].
    #[must_use]
    pub const fn position(self) -> usize {
        self as usize
    }

    /// The name, without regard to aliases; `other` for [`Command::Other`].
    #[must_use]
    pub fn name(self) -> &'static str {
        REGISTRY.get(self.position()).map_or("other", |row| row.name)
    }

    /// The subject of the command.
    #[must_use]
    pub fn class(self) -> CommandClass {
        REGISTRY
            .get(self.position())
            .map_or(CommandClass::Other, |row| row.class)
    }

    /// The field with the statements of a write, or the documents of an `insert`.
    #[must_use]
    pub const fn statements_field(self) -> Option<&'static str> {
        match self {
            Self::Insert => Some("documents"),
            Self::Update => Some("updates"),
            Self::Delete => Some("deletes"),
            _ => None,
        }
    }

    /// Whether the command is the handshake of client and server.
    #[must_use]
    pub fn is_handshake(self) -> bool {
        matches!(self, Self::Hello | Self::IsMaster)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_aliases_give_the_command() {
        for row in REGISTRY {
            assert_eq!(Command::of(row.name), row.command);
            assert_eq!(row.alias.map_or(row.command, Command::of), row.command);
            assert_eq!(row.command.name(), row.name);
            assert_eq!(row.command.class(), row.class);
        }
        assert_eq!(Command::of("noSuchCommand"), Command::Other);
        assert_eq!(Command::of("other"), Command::Other);
        assert_eq!(Command::Other.name(), "other");
    }
}

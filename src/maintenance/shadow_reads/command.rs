//! The command that is executed in place of a client's, and what the log may tell of the client's. Without
//! I/O.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use crate::command::document::{first_field, get, put, single};
use crate::command::registry::Command;
use crate::session::shadow::ShadowRead;

/// The longest time for a read, in milliseconds.
pub(super) const MAX_TIME_MS: u32 = 10_000;
/// The most names in a log line, and the most bytes of each.
const MAX_NAMES: usize = 16;
const MAX_NAME_BYTES: usize = 64;

/// The fields of a command that determine its result.
fn fields(command: Command) -> &'static [&'static str] {
    match command {
        Command::Find => &[
            "filter",
            "sort",
            "projection",
            "hint",
            "skip",
            "limit",
            "min",
            "max",
            "returnKey",
            "showRecordId",
            "collation",
            "let",
            "allowDiskUse",
        ],
        Command::Aggregate => &["pipeline", "collation", "hint", "let", "allowDiskUse"],
        Command::Count => &["query", "limit", "skip", "hint", "collation"],
        Command::Distinct => &["key", "query", "collation", "hint"],
        _ => &[],
    }
}

/// The same read of a collection of the same database, without sessions, concerns and sizes of batches.
pub(super) fn on(collection: &str, read: &ShadowRead) -> RawDocumentBuf {
    let mut command = single(read.command.name(), collection);
    for name in fields(read.command) {
        if let Some(value) = get(&read.body, name) {
            put(&mut command, name, value);
        }
    }
    if read.command == Command::Aggregate {
        command.append(cstr!("cursor"), RawDocumentBuf::new());
    }
    command.append(cstr!("maxTimeMS"), i64::from(MAX_TIME_MS));
    command
}

/// The fields of the filter, or the stages of the pipeline. No values.
pub(super) fn names(read: &ShadowRead) -> String {
    let document = |name| get(&read.body, name).and_then(RawBsonRef::as_document);
    let names: Vec<&str> = if read.command == Command::Aggregate {
        let stages = get(&read.body, "pipeline").and_then(RawBsonRef::as_array);
        let stages = stages.into_iter().flatten().flatten();
        stages
            .filter_map(|stage| Some(first_field(stage.as_document()?)?.0))
            .collect()
    } else {
        let filter = document("filter").or_else(|| document("query"));
        filter.map(of_filter).unwrap_or_default()
    };
    let shortened = names.iter().take(MAX_NAMES).map(|name| {
        let end = name.floor_char_boundary(MAX_NAME_BYTES);
        name.get(..end).unwrap_or_default()
    });
    shortened.collect::<Vec<_>>().join(", ")
}

fn of_filter(filter: &RawDocument) -> Vec<&str> {
    let fields = filter.iter().flatten();
    fields.map(|(name, _)| name.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    fn read(command: Command, body: RawDocumentBuf) -> ShadowRead {
        ShadowRead {
            configured: "*.c".to_owned(),
            database: "d".to_owned(),
            collection: "c".to_owned(),
            command,
            body,
        }
    }

    #[test]
    fn only_fields_that_determine_the_result_are_kept() {
        let find = rawdoc! {
            "find": "c", "filter": { "k": 1 }, "batchSize": 2, "limit": 3, "singleBatch": true, "lsid": { "id": 1 },
            "$db": "d", "$readPreference": { "mode": "secondary" }, "readConcern": { "level": "majority" },
        };
        let expected = rawdoc! { "find": "other", "filter": { "k": 1 }, "limit": 3, "maxTimeMS": 10_000_i64 };
        assert_eq!(on("other", &read(Command::Find, find)), expected);
        let aggregate = rawdoc! { "aggregate": "c", "pipeline": [], "cursor": { "batchSize": 1 }, "$db": "d" };
        let expected = rawdoc! { "aggregate": "other", "pipeline": [], "cursor": {}, "maxTimeMS": 10_000_i64 };
        assert_eq!(on("other", &read(Command::Aggregate, aggregate)), expected);
    }

    #[test]
    fn a_log_line_has_names_without_values() {
        let check = |command, body, expected: &str| assert_eq!(names(&read(command, body)), expected);
        let secret = "secret";
        check(
            Command::Find,
            rawdoc! { "find": "c", "filter": { "k": secret, "$or": [{ "n": secret }] } },
            "k, $or",
        );
        check(Command::Count, rawdoc! { "count": "c", "query": { "k": secret } }, "k");
        check(Command::Distinct, rawdoc! { "distinct": "c", "key": "k" }, "");
        let pipeline = rawdoc! { "aggregate": "c", "pipeline": [{ "$match": { "k": secret } }, { "$count": secret }] };
        check(Command::Aggregate, pipeline, "$match, $count");
        let long = rawdoc! { "find": "c", "filter": single(&"\u{e9}".repeat(100), 1) };
        check(Command::Find, long, &"\u{e9}".repeat(32));
    }
}

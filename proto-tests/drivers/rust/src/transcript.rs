//! What is printed, and the documents that are stored.

use std::future::IntoFuture;

use bson::{Bson, DateTime, Document, doc};
use futures_util::TryStreamExt as _;
use mongodb::Cursor;
use mongodb::error::{Error, ErrorKind, IndexedWriteError, WriteFailure};
use mongodb::results::UpdateResult;

pub(crate) const MANY: i32 = 20_000;

pub(crate) fn item(number: i32) -> Document {
    doc! {
        "_id": number,
        "group": number % 5,
        "name": format!("item {number}"),
        "price": f64::from(number) * 0.25,
        "large": i64::from(number) * 10_000_000_000,
        "at": DateTime::from_millis(1_698_335_223_434 + 60_000 * i64::from(number)),
        "tags": [if number % 2 == 0 { "even" } else { "odd" }, &format!("g{}", number % 5)],
    }
}

pub(crate) fn show(step: &str, value: impl Into<Bson>) {
    println!("{step} {}", value.into().into_canonical_extjson());
}

/// Shows what `shown` makes of the answer, or what an application can tell of the error.
pub(crate) async fn attempt<T>(
    step: &str,
    running: impl IntoFuture<Output = Result<T, Error>>,
    shown: impl FnOnce(T) -> Bson,
) {
    match running.await {
        Ok(value) => show(step, shown(value)),
        Err(error) => show(step, failure(&error)),
    }
}

/// What has no code came from a socket, and names a port.
pub(crate) fn failure(error: &Error) -> Document {
    let mut labels: Vec<_> = error.labels().iter().cloned().collect();
    labels.sort();
    let mut shown = doc! { "labels": labels };
    match &*error.kind {
        ErrorKind::Command(command) => {
            shown.extend(doc! { "code": command.code, "codeName": &command.code_name, "message": &command.message });
        }
        ErrorKind::Write(WriteFailure::WriteError(write)) => {
            shown.extend(doc! { "code": write.code, "message": &write.message });
        }
        ErrorKind::InsertMany(many) => {
            let errors = many.write_errors.iter().flatten().map(write_error);
            shown.insert("writeErrors", errors.collect::<Vec<_>>());
        }
        ErrorKind::Io(_) => {
            shown.insert("error", "io");
        }
        kind => {
            shown.insert("error", kind.to_string());
        }
    }
    shown
}

fn write_error(error: &IndexedWriteError) -> Document {
    doc! { "index": i64::try_from(error.index).unwrap_or(-1), "code": error.code, "message": &error.message }
}

#[expect(clippy::needless_pass_by_value, reason = "it is given to `attempt`")]
pub(crate) fn updated(result: UpdateResult) -> Bson {
    let [matched, modified] = [result.matched_count, result.modified_count].map(count);
    doc! { "matched": matched, "modified": modified, "upserted": result.upserted_id }.into()
}

pub(crate) fn count(count: u64) -> Bson {
    i64::try_from(count).unwrap_or(-1).into()
}

pub(crate) fn found(document: Option<Document>) -> Bson {
    document.into()
}

pub(crate) async fn all(cursor: Cursor<Document>) -> Result<Vec<Document>, Error> {
    cursor.try_collect().await
}

pub(crate) async fn ids(cursor: Cursor<Document>) -> Result<Vec<Bson>, Error> {
    let documents = all(cursor).await?;
    Ok(documents
        .iter()
        .filter_map(|document| document.get("_id").cloned())
        .collect())
}

/// The field of a document that may not be there.
pub(crate) fn field(document: Option<&Document>, name: &str) -> Bson {
    document.and_then(|document| document.get(name).cloned()).into()
}

//! The `count` command.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::arguments::CommandField;
use super::concerns;
use super::document::{as_whole_number, get};
use super::error::{CommandError, ErrorCode};
use super::reply::{CursorReply, copy_cluster_time};

/// A parsed `count`.
#[derive(Clone, Debug, Default)]
pub struct Count<'a> {
    /// The filter.
    pub query: Option<&'a RawDocument>,
    /// The number of matches to skip.
    pub skip: u64,
    /// The most matches to count; 0 for all. A negative limit counts as its absolute value.
    pub limit: u64,
    /// The index hint.
    pub hint: Option<RawBsonRef<'a>>,
    /// The collation.
    pub collation: Option<&'a RawDocument>,
}

impl<'a> Count<'a> {
    /// Parses the body of a `count`.
    ///
    /// # Errors
    /// A field that `count` does not have, or one of the wrong type, with mongod's codes.
    pub fn parse(body: &'a RawDocument) -> Result<Self, CommandError> {
        let mut count = Self::default();
        for field in CommandField::all("count", body) {
            let (name, field) = field?;
            match name {
                "query" => count.query = field.document()?.filter(|query| !query.is_empty()),
                "skip" => count.skip = field.size()?.unwrap_or(0),
                "limit" => count.limit = limit(field.value())?.unsigned_abs(),
                "hint" => count.hint = Some(field.value()),
                "collation" => count.collation = field.document()?.filter(|collation| !collation.is_empty()),
                "fields" => {}
                _ => return Err(field.unknown()),
            }
        }
        concerns::check_of_count(body)?;
        Ok(count)
    }

    /// The reply for `all` matches, with the cluster time of mongod's reply `answer`.
    #[must_use]
    pub fn reply(&self, all: u64, answer: &RawDocument) -> RawDocumentBuf {
        let found = all.saturating_sub(self.skip);
        let counted = if self.limit > 0 { found.min(self.limit) } else { found };
        let mut reply = RawDocumentBuf::new();
        match i32::try_from(counted) {
            Ok(counted) => reply.append(cstr!("n"), counted),
            Err(_) => reply.append(cstr!("n"), i64::try_from(counted).unwrap_or(i64::MAX)),
        }
        reply.append(cstr!("ok"), 1.0);
        copy_cluster_time(&mut reply, answer);
        reply
    }
}

/// The number of matches in mongod's reply to a pipeline that counts them as `n`. 0 if the reply
/// has no document.
#[must_use]
pub fn all_of(answer: &RawDocument) -> u64 {
    let first = CursorReply::parse(answer).and_then(|cursor| cursor.documents().next());
    let all = first.and_then(|first| get(first, "n")).and_then(as_whole_number);
    all.and_then(|all| u64::try_from(all).ok()).unwrap_or(0)
}

/// Unlike other numbers, mongod refuses a fraction here (`count_request.cpp`, `countParseLimit`).
fn limit(value: RawBsonRef<'_>) -> Result<i64, CommandError> {
    let number = as_whole_number(value)
        .ok_or_else(|| CommandError::new(ErrorCode::BadValue, "limit value is not a valid number"))?;
    match value {
        RawBsonRef::Double(given) if given.fract() != 0.0 => {
            let message = format!("Expected an integer: limit: {given}");
            Err(CommandError::new(ErrorCode::FailedToParse, message))
        }
        _ if number == i64::MIN => {
            let message = "limit value for count cannot be min long";
            Err(CommandError::new(ErrorCode::BadValue, message))
        }
        _ => Ok(number),
    }
}

#[cfg(test)]
mod tests {
    use bson::{Document, doc};

    use super::*;

    #[test]
    fn skipped_items_and_items_beyond_the_limit_are_not_counted() {
        let check = |count: Document, n: Document, expected: Document| {
            let count = RawDocumentBuf::try_from(&count).unwrap();
            let answer = doc! { "cursor": { "firstBatch": [n], "id": 0_i64, "ns": "shop.sales" }, "ok": 1.0 };
            let answer = RawDocumentBuf::try_from(&answer).unwrap();
            let reply = Count::parse(&count).unwrap().reply(all_of(&answer), &answer);
            assert_eq!(Document::try_from(reply.as_ref()).unwrap(), expected);
        };
        let said = |n: i32| doc! { "n": n, "ok": 1.0 };
        check(doc! { "count": "sales" }, doc! { "n": 7 }, said(7));
        check(doc! { "count": "sales", "skip": 3 }, doc! { "n": 7 }, said(4));
        check(doc! { "count": "sales", "skip": 9 }, doc! { "n": 7 }, said(0));
        check(
            doc! { "count": "sales", "skip": 3, "limit": -2 },
            doc! { "n": 7 },
            said(2),
        );
        let many = 1_i64 << 40;
        check(
            doc! { "count": "sales" },
            doc! { "n": many },
            doc! { "n": many, "ok": 1.0 },
        );
        check(doc! { "count": "sales" }, doc! {}, said(0));
    }
}

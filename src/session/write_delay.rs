//! Delays of writes to collections that are being converted. The run records the delay, because it applies
//! changes more slowly than they are made. A delay protects nothing: it may begin late, and it ends by itself.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use bson::raw::RawBsonRef;

use crate::command::document::get;
use crate::command::header::CommandHeader;
use crate::command::registry::Command;

/// The longest delay of a command, also with many statements.
const MAX_OF_COMMAND: Duration = Duration::from_millis(250);

/// The delay of a collection's writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteDelay {
    /// The delay of a statement.
    pub of_statement: Duration,
    /// The time from which on writes are not delayed any more.
    pub end: Instant,
}

/// The delays, by namespace.
#[derive(Debug, Default)]
pub struct WriteDelays(ArcSwap<BTreeMap<String, WriteDelay>>);

impl WriteDelays {
    /// Replaces all delays.
    pub fn replace(&self, delays: BTreeMap<String, WriteDelay>) {
        self.0.store(delays.into());
    }

    /// The delay of a command that begins now: the sum of its statements' delays, up to a limit. An open
    /// transaction is not delayed, because it would keep its locks longer. Neither is a `bulkWrite`.
    pub(super) fn of(&self, head: &CommandHeader<'_>, now: Instant) -> Duration {
        let delays = self.0.load();
        if delays.is_empty() || is_in_open_transaction(head) {
            return Duration::ZERO;
        }
        let delay = head
            .namespace()
            .and_then(|namespace| delays.get(&namespace.to_string()));
        let Some(delay) = delay.filter(|delay| now < delay.end) else {
            return Duration::ZERO;
        };
        let statements = u32::try_from(statements(head)).unwrap_or(u32::MAX);
        delay.of_statement.saturating_mul(statements).min(MAX_OF_COMMAND)
    }
}

fn is_in_open_transaction(head: &CommandHeader<'_>) -> bool {
    head.in_transaction() && get(head.body(), "startTransaction").is_none()
}

/// The number of a write's statements. 0: the command is no write.
fn statements(head: &CommandHeader<'_>) -> usize {
    let Some(field) = head.command.statements_field() else {
        return usize::from(head.command == Command::FindAndModify);
    };
    let in_body = get(head.body(), field).and_then(RawBsonRef::as_array);
    let in_body = in_body.map_or(0, |statements| statements.into_iter().count());
    let sequences = head.message.sequences.iter();
    in_body + sequences.map(|sequence| sequence.documents().count()).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use bson::raw::RawDocumentBuf;
    use bson::{Document, doc};

    use super::*;

    fn delay_of(mut command: Document, now: Instant, delays: &WriteDelays) -> u128 {
        command.insert("$db", "shop");
        let body = RawDocumentBuf::try_from(&command).unwrap();
        delays.of(&CommandHeader::of_body(&body).unwrap(), now).as_millis()
    }

    #[test]
    fn writes_of_the_collection_are_delayed_by_statement() {
        let now = Instant::now();
        let delays = WriteDelays::default();
        let insert = |statements: usize| doc! { "insert": "trades", "documents": vec![doc! {}; statements] };
        assert_eq!(delay_of(insert(1), now, &delays), 0);
        let delay = WriteDelay {
            of_statement: Duration::from_millis(2),
            end: now + Duration::from_secs(1),
        };
        delays.replace(BTreeMap::from([("shop.trades".to_owned(), delay)]));
        let check = |command: Document, expected| {
            assert_eq!(delay_of(command.clone(), now, &delays), expected, "{command}");
        };
        check(insert(1), 2);
        check(insert(3), 6);
        check(insert(1000), 250);
        check(doc! { "findAndModify": "trades" }, 2);
        check(doc! { "insert": "orders", "documents": [{}] }, 0);
        check(doc! { "find": "trades" }, 0);
        let mut in_transaction = doc! { "delete": "trades", "deletes": [{}], "autocommit": false };
        check(in_transaction.clone(), 0);
        in_transaction.insert("startTransaction", true);
        check(in_transaction, 2);
        assert_eq!(delay_of(insert(1), delay.end, &delays), 0);
    }
}

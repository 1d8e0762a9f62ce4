//! A writer that pushes buyers to books.

use anyhow::{Result, ensure};
use bson::doc;
use proto_tests::books::{BUYERS, COLLECTION};
use proto_tests::retrying::Client;
use rand::RngExt as _;
use rand::rngs::StdRng;

use crate::outliers::ledger::{BOOKS, Ledger};

pub(crate) struct Writer<'a> {
    pub(crate) number: usize,
    pub(crate) client: Client<'a>,
    pub(crate) random: StdRng,
    pub(crate) ledger: &'a Ledger,
}

impl Writer<'_> {
    /// Pushes so many buyers, of all books.
    pub(crate) fn run(mut self, buyers: usize, answered: impl Fn()) -> Result<()> {
        let mut left = buyers;
        while left > 0 {
            let count = if self.random.random_bool(0.1) {
                self.random.random_range(1..6).min(left)
            } else {
                1
            };
            self.push(count)?;
            left -= count;
            answered();
        }
        self.ledger.add_resent(self.client.resent);
        Ok(())
    }

    fn push(&mut self, count: usize) -> Result<()> {
        let book = self.random.random_range(0..BOOKS);
        let place = (self.number, book);
        let mut buyers: Vec<String> = self
            .ledger
            .send(place, count)
            .map(|number| Ledger::buyer(self.number, number))
            .collect();
        let pushed = match buyers.pop() {
            Some(one) if buyers.is_empty() => doc! { BUYERS: one },
            last => {
                buyers.extend(last);
                doc! { BUYERS: { "$each": buyers } }
            }
        };
        let mut change = doc! { "$push": pushed };
        if self.random.random_bool(0.3) {
            change.insert("$inc", doc! { "sold": i32::try_from(count)? });
        }
        let filter = doc! { "_id": Ledger::id(book) };
        let command = doc! { "update": COLLECTION, "updates": [{ "q": filter, "u": change }] };
        let reply = self.client.write_with_reply(&command)?;
        ensure!(
            reply.get_i32("n")? == 1 && reply.get_i32("nModified")? == 1,
            "{command} was answered {reply}"
        );
        self.ledger.acknowledge(place, count);
        Ok(())
    }
}

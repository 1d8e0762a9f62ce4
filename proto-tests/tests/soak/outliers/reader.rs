//! A reader of books during concurrent pushes.

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, doc};
use proto_tests::books::{BUYERS, COLLECTION};
use proto_tests::retrying::Client;
use rand::RngExt as _;
use rand::rngs::StdRng;

use crate::outliers::ledger::{BOOKS, Ledger, WRITERS};

pub(crate) struct Reader<'a> {
    pub(crate) client: Client<'a>,
    pub(crate) random: StdRng,
    pub(crate) ledger: &'a Ledger,
}

impl Reader<'_> {
    /// Reads until that is over; how often.
    pub(crate) fn run(mut self, goes_on: impl Fn() -> bool) -> Result<u64> {
        let mut reads = 0;
        while goes_on() {
            match self.random.random_range(0..10) {
                0..4 => self.read_one()?,
                4 => self.read_all()?,
                5..8 => self.by_buyer()?,
                _ => self.count()?,
            }
            reads += 1;
        }
        Ok(reads)
    }

    fn read_one(&mut self) -> Result<()> {
        let book = self.random.random_range(0..BOOKS);
        let before = self.ledger.acknowledged(book);
        let found = self.client.find(COLLECTION, &doc! { "_id": Ledger::id(book) })?;
        let after = self.ledger.sent(book);
        ensure!(found.len() == 1, "{} books of one _id", found.len());
        ensure!(!found[0].contains_key("has_extras"), "the flag is seen");
        Ledger::check(found[0].get_array(BUYERS)?, (&before, &after))
            .with_context(|| format!("book {book}, found by its _id"))
    }

    fn read_all(&mut self) -> Result<()> {
        let before: Vec<_> = (0..BOOKS).map(|book| self.ledger.acknowledged(book)).collect();
        let found = self.client.find(COLLECTION, &doc! {})?;
        ensure!(found.len() == BOOKS, "{} books", found.len());
        for (book, before) in before.iter().enumerate() {
            let there = found.iter().find(|found| found.get("_id") == Some(&Ledger::id(book)));
            let buyers = there.context("a book is missing")?.get_array(BUYERS)?;
            Ledger::check(buyers, (before, &self.ledger.sent(book)))
                .with_context(|| format!("book {book}, among all"))?;
        }
        Ok(())
    }

    /// Finds the one book of a buyer.
    fn by_buyer(&mut self) -> Result<()> {
        let (book, writer) = (self.random.random_range(0..BOOKS), self.random.random_range(0..WRITERS));
        let before = self.ledger.acknowledged(book);
        if before[writer] == 0 {
            return Ok(());
        }
        let buyer = Ledger::buyer(writer, self.random.random_range(0..before[writer]));
        let filter = doc! { "_id": Ledger::id(book), BUYERS: &buyer };
        let found = self.client.find(COLLECTION, &filter)?;
        ensure!(found.len() == 1, "{filter} found {} books", found.len());
        Ledger::check(found[0].get_array(BUYERS)?, (&before, &self.ledger.sent(book)))
            .with_context(|| format!("book {book}, found by {buyer}"))
    }

    fn count(&mut self) -> Result<()> {
        let book = self.random.random_range(0..BOOKS);
        let before = self.ledger.acknowledged(book);
        let stages = vec![
            doc! { "$match": { "_id": Ledger::id(book) } },
            doc! { "$project": { "n": { "$size": format!("${BUYERS}") } } },
        ];
        let found = self
            .client
            .all(&doc! { "aggregate": COLLECTION, "pipeline": stages, "cursor": {} })?;
        let after = self.ledger.sent(book);
        let counted = found.first().and_then(|found| found.get("n")).and_then(Bson::as_i32);
        let counted = usize::try_from(counted.context("no count")?)?;
        let (least, most): (usize, usize) = (before.iter().sum(), after.iter().sum());
        ensure!(
            (least..=most).contains(&counted),
            "{counted} buyers counted of book {book}, of which {least} were acknowledged and {most} sent"
        );
        Ok(())
    }
}

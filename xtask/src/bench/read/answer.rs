//! The reply of a variant, comparable with those of the others.

use anyhow::{Result, bail, ensure};
use bson::{Bson, DateTime, Document};

use super::by_hand;
use super::data::Data;
use super::query::ReadQuery;
use super::reader::{End, Reader};
use crate::bench::model::Model;

/// A trade that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) date: DateTime,
    quantity: i32,
}

/// An answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Trades, in the order in which they came.
    Items(Vec<Item>),
    Number(i64),
    /// An error, with its message.
    Refused(String),
}

impl Answer {
    /// Asks for it: the answer, and in how many documents it came.
    pub(super) fn get(reader: &mut Reader, query: ReadQuery, model: Model, data: &Data) -> Result<(Self, usize)> {
        let mut documents = Vec::new();
        let end = reader.read(|batch| {
            for document in batch {
                let Bson::Document(document) = Bson::try_from(document?)? else {
                    bail!("a batch of other things than documents");
                };
                documents.push(document);
            }
            Ok(())
        })?;
        // By hand, counting is adding up.
        if let (ReadQuery::Count(_), [sum]) = (query, documents.as_slice()) {
            return Ok((Self::Number(sum.get_i32("n")?.into()), 1));
        }
        let answer = match end {
            End::Refused(message) => Self::Refused(message),
            End::Number(number) => Self::Number(number),
            End::Exhausted => {
                let items = documents.iter().map(items).collect::<Result<Vec<_>>>()?.concat();
                let items = match model {
                    Model::ByHand => by_hand::trim(query, data, items),
                    _ => items,
                };
                Self::Items(items)
            }
        };
        Ok((answer, documents.len()))
    }

    /// Fails unless it equals the expected reply and is not empty.
    pub(super) fn check(&self, expected: &Self) -> Result<()> {
        ensure!(
            self == expected && *self != Self::Items(Vec::new()),
            "{} but the plain collection {}",
            self.shown(),
            expected.shown()
        );
        Ok(())
    }

    fn shown(&self) -> String {
        match self {
            Self::Items(items) => match items.as_slice() {
                [] => "nothing".to_owned(),
                [first, .., last] => format!("{} items from {} to {}", items.len(), first.date, last.date),
                [only] => format!("an item of {}", only.date),
            },
            Self::Number(number) => number.to_string(),
            Self::Refused(message) => format!("error: {message}"),
        }
    }
}

/// The trades in a document: one, all of a page, or one of an unwound page.
fn items(document: &Document) -> Result<Vec<Item>> {
    match document.get("history") {
        None => Ok(vec![item(document)?]),
        Some(Bson::Document(element)) => Ok(vec![item(element)?]),
        Some(Bson::Array(elements)) => elements.iter().filter_map(Bson::as_document).map(item).collect(),
        Some(other) => bail!("a page whose history is {other}"),
    }
}

fn item(document: &Document) -> Result<Item> {
    let quantity = document.get_i32("quantity").or_else(|_| document.get_i32("qty"))?;
    Ok(Item {
        date: *document.get_datetime("date")?,
        quantity,
    })
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    fn answer(millis: &[i64]) -> Answer {
        let trades = millis.iter().map(|millis| {
            let trade = doc! { "date": DateTime::from_millis(*millis), "quantity": 1 };
            item(&trade).expect("a trade")
        });
        Answer::Items(trades.collect())
    }

    #[test]
    fn answers_are_correct_if_equal_and_not_empty() {
        let expected = answer(&[1, 2]);
        assert!(answer(&[1, 2]).check(&expected).is_ok());
        for wrong in [answer(&[1]), answer(&[2, 1]), Answer::Number(2)] {
            assert!(wrong.check(&expected).is_err(), "{wrong:?}");
        }
        assert!(answer(&[]).check(&answer(&[])).is_err());
    }

    #[test]
    fn page_and_unwound_page_have_the_trades_of_plain_documents() -> Result<()> {
        let date = DateTime::from_millis(1);
        let element = doc! { "date": date, "qty": 5 };
        let plain = items(&doc! { "_id": 1, "date": date, "quantity": 5 })?;
        assert_eq!(items(&doc! { "_id": "1_0", "history": [&element] })?, plain);
        assert_eq!(items(&doc! { "_id": "1_0", "history": element })?, plain);
        Ok(())
    }
}

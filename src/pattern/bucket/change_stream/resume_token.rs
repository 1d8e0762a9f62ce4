//! Resume tokens of change streams on items.
//!
//! ```text
//! { _data: "mongoshape:<token>:end" }                     after the event of a page
//! { _data: "mongoshape:<token>:<number>:<clusterTime>" }  after one of several items in the event of a page
//! ```
//!
//! `<token>` is mongod's token, `<number>` the position of the item event among those of the page event, and
//! `<clusterTime>` the time of the page event, from which mongod returns that event again. Number and time
//! have a fixed length in hexadecimal, so the tokens of a stream ascend as texts, and `end` is behind them.
//! mongod refuses such a token, because it is not hexadecimal.

use bson::raw::{RawDocument, RawDocumentBuf};
use bson::{Binary, Timestamp};

use crate::command::arguments::with_replaced;
use crate::command::document::{append_fields, get, single};

/// The text that distinguishes these tokens from mongod's.
const PREFIX: &str = "mongoshape:";
/// In place of the number, behind all item events of a page event.
const END: &str = "end";

/// The position of an item event in a page event that is not completely returned yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemPosition {
    /// The number of the item event, from 0.
    pub number: u32,
    /// The cluster time of the page event.
    pub cluster_time: Timestamp,
}

/// A token of mongod: the position behind one of its events.
#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamToken {
    /// `_data`.
    pub data: String,
    /// The other fields: `_typeBits`, if the `_id` of the event's document requires it.
    rest: RawDocumentBuf,
}

/// A position in a change stream on items: the stream continues behind it.
#[derive(Clone, Debug, PartialEq)]
pub struct ResumeToken {
    /// The event of the page.
    pub upstream: UpstreamToken,
    /// `None`: behind the page event. Otherwise behind this item event of it.
    pub item: Option<ItemPosition>,
}

/// A token that begins like one of mongoshape and is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenError;

impl UpstreamToken {
    /// Reads a token. `None` if `_data` is not a text.
    #[must_use]
    pub fn parse(token: &RawDocument) -> Option<Self> {
        let data = get(token, "_data")?.as_str()?.to_owned();
        let rest = with_replaced(token, &[("_data", None)]);
        Some(Self { data, rest })
    }

    /// Whether the event is of the collection with this UUID. mongod's token contains the UUID as in a key of
    /// an index: the type of binary data, the length, the subtype, and the bytes.
    #[must_use]
    pub fn is_of_collection(&self, uuid: &Binary) -> bool {
        uuid.to_uuid().is_ok_and(|uuid| {
            let digits = uuid.to_string().replace('-', "").to_ascii_uppercase();
            self.data.contains(&format!("5A1004{digits}"))
        })
    }

    /// The token as mongod returns it.
    #[must_use]
    pub fn document(&self) -> RawDocumentBuf {
        self.with_data(&self.data)
    }

    fn with_data(&self, data: &str) -> RawDocumentBuf {
        let mut token = single("_data", data);
        append_fields(&mut token, &self.rest);
        token
    }
}

impl ResumeToken {
    /// The token behind an event of mongod. `None` if mongod's token is not a text.
    #[must_use]
    pub fn behind(token: &RawDocument) -> Option<Self> {
        let upstream = UpstreamToken::parse(token)?;
        Some(Self { upstream, item: None })
    }

    /// Parses a client's token. A token of mongod is a position behind a page event. `None`: neither.
    ///
    /// # Errors
    /// If the token is malformed. Malformed tokens of mongod are not recognised here.
    pub fn parse(token: &RawDocument) -> Result<Option<Self>, TokenError> {
        let Some(mut behind) = Self::behind(token) else {
            return Ok(None);
        };
        let Some(own) = behind.upstream.data.strip_prefix(PREFIX) else {
            return Ok(Some(behind));
        };
        let mut parts = own.split(':');
        let upstream = parts.next().unwrap_or_default().to_owned();
        behind.item = match (parts.next(), parts.next(), parts.next()) {
            (Some(END), None, None) => None,
            (Some(number), Some(time), None) if time.len() == 16 && time.is_ascii() => {
                let (seconds, increment) = time.split_at_checked(8).ok_or(TokenError)?;
                Some(ItemPosition {
                    number: parse(number)?,
                    cluster_time: Timestamp {
                        time: parse(seconds)?,
                        increment: parse(increment)?,
                    },
                })
            }
            _ => return Err(TokenError),
        };
        let is_hexadecimal = upstream.bytes().all(|byte| byte.is_ascii_hexdigit());
        if upstream.is_empty() || !is_hexadecimal {
            return Err(TokenError);
        }
        behind.upstream.data = upstream;
        Ok(Some(behind))
    }

    /// The token as the client gets it.
    #[must_use]
    pub fn document(&self) -> RawDocumentBuf {
        let upstream = &self.upstream.data;
        let data = match self.item {
            None => format!("{PREFIX}{upstream}:{END}"),
            Some(ItemPosition { number, cluster_time }) => {
                let Timestamp { time, increment } = cluster_time;
                format!("{PREFIX}{upstream}:{number:08x}:{time:08x}{increment:08x}")
            }
        };
        self.upstream.with_data(&data)
    }
}

fn parse(hexadecimal: &str) -> Result<u32, TokenError> {
    u32::from_str_radix(hexadecimal, 16).map_err(|_| TokenError)
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;
    use bson::spec::BinarySubtype;

    use super::*;

    fn behind(data: &str) -> ResumeToken {
        ResumeToken::behind(&rawdoc! { "_data": data, "_typeBits": 5 }).unwrap()
    }

    #[test]
    fn a_token_is_parsed_as_it_was_written() {
        let cluster_time = Timestamp {
            time: 0x6B07_777F,
            increment: 26,
        };
        for item in [
            None,
            Some(ItemPosition {
                number: 7,
                cluster_time,
            }),
        ] {
            let token = ResumeToken {
                item,
                ..behind("826B07777F")
            };
            assert_eq!(ResumeToken::parse(&token.document()), Ok(Some(token)));
        }
    }

    #[test]
    fn a_token_of_mongod_names_the_collection() {
        let token = behind(
            "826B0A2C0F000000012B022C0100296E5A1004E0F1D2C3B4A5467889900A1B2C3D4E5F46645F696400\
             2B020004",
        );
        let uuid = |first: u8| Binary {
            subtype: BinarySubtype::Uuid,
            bytes: [
                &[first][..],
                &[
                    0xF1, 0xD2, 0xC3, 0xB4, 0xA5, 0x46, 0x78, 0x89, 0x90, 0x0A, 0x1B, 0x2C, 0x3D, 0x4E, 0x5F,
                ],
            ]
            .concat(),
        };
        assert!(token.upstream.is_of_collection(&uuid(0xE0)));
        assert!(!token.upstream.is_of_collection(&uuid(0xE1)));
    }

    #[test]
    fn tokens_of_one_stream_ascend() {
        let token = |upstream: &str, number: Option<u32>| {
            let cluster_time = Timestamp { time: 1, increment: 2 };
            let token = ResumeToken {
                item: number.map(|number| ItemPosition { number, cluster_time }),
                ..behind(upstream)
            };
            token.document().get_str("_data").unwrap().to_owned()
        };
        assert!(token("82A1", Some(0)) < token("82A1", Some(1)));
        assert!(token("82A1", Some(9)) < token("82A1", Some(10)));
        assert!(token("82A1", Some(10)) < token("82A1", None));
        assert!(token("82A1", None) < token("82A2", Some(0)));
    }

    #[test]
    fn other_tokens() {
        let check = |token: &RawDocument, expected| assert_eq!(ResumeToken::parse(token), expected, "{token:?}");
        for of_mongod in ["82A1", "mongoshape"] {
            check(
                &rawdoc! { "_data": of_mongod, "_typeBits": 5 },
                Ok(Some(behind(of_mongod))),
            );
        }
        check(&rawdoc! { "_data": 5 }, Ok(None));
        check(&rawdoc! {}, Ok(None));
        for malformed in [
            "",
            "82A1:",
            "82A1:0",
            "82A1:0:0",
            "xyz",
            "82A1:0:000000000000000g",
            "82A1:0:000000000000000é",
        ] {
            check(&rawdoc! { "_data": format!("mongoshape:{malformed}") }, Err(TokenError));
        }
    }
}

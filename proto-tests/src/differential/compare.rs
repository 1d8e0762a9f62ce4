//! Which differences between two replies are allowed.

use std::collections::BTreeMap;

use anyhow::{Result, bail, ensure};
use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bson::{Bson, Document};

use super::Sides;
use super::sides::{field, show};
use super::values::OUR_OBJECT_IDS;

/// The text in place of an `ObjectId` that a server has generated.
pub(super) const GENERATED_ID: &str = "generated id";

/// How documents are made comparable. The order of top-level fields never counts; what servers make up
/// (`ObjectId`s, times in timestamps) is taken for equal.
#[derive(Debug, Clone, Copy, Default)]
pub struct Canon {
    /// `_id` at the top is left out: the shape drops it.
    pub without_id: bool,
    /// Values that MongoDB takes for equal are alike (numbers of all types, symbols and strings), and no
    /// order of fields counts: for what an aggregation puts together out of items in natural order, of which
    /// any may be the first.
    pub loose: bool,
    /// The order of fields at the top counts, too.
    pub in_order: bool,
    /// Fields, at any depth, whose arrays hold documents as they were found: in no order.
    pub unordered: &'static [&'static str],
}

impl Canon {
    /// The document in a form that is equal for equal ones.
    #[must_use]
    pub fn of(self, document: &RawDocument) -> Vec<u8> {
        let mut fields = self.fields(document);
        if self.without_id {
            fields.retain(|(name, _)| name != "_id");
        }
        if !self.in_order {
            fields.sort_by_key(|(name, value)| (name.clone(), bytes(value)));
        }
        assemble(fields).into_bytes()
    }

    fn fields(self, document: &RawDocument) -> Vec<(String, RawBson)> {
        let fields = document.iter().flatten();
        fields
            .map(|(name, value)| (name.as_str().to_owned(), self.field(name.as_str(), value)))
            .collect()
    }

    fn field(self, name: &str, value: RawBsonRef<'_>) -> RawBson {
        match value {
            RawBsonRef::Array(array) if self.unordered.contains(&name) => {
                let values = array.into_iter().flatten();
                let mut values: Vec<RawBson> = values.map(|value| self.value(value)).collect();
                values.sort_by_cached_key(bytes);
                RawBson::Array(values.into_iter().collect::<RawArrayBuf>())
            }
            value => self.value(value),
        }
    }

    fn value(self, value: RawBsonRef<'_>) -> RawBson {
        match value {
            RawBsonRef::ObjectId(id) if id.bytes()[..4] != OUR_OBJECT_IDS => RawBson::String(GENERATED_ID.to_owned()),
            RawBsonRef::Timestamp(stamp) if stamp.time > 1_600_000_000 => RawBson::String("server time".to_owned()),
            RawBsonRef::Document(document) => {
                let mut fields = self.fields(document);
                // mongod 6.0.5 groups MaxKey as itself or as `{"": MaxKey}`, with the engine that runs the
                // stage; so MinKey.
                if let [(name, extreme @ (RawBson::MinKey | RawBson::MaxKey))] = &fields[..]
                    && self.loose
                    && name.is_empty()
                {
                    return extreme.clone();
                }
                if self.loose {
                    fields.sort_by(|(one, _), (other, _)| one.cmp(other));
                }
                RawBson::Document(assemble(fields))
            }
            RawBsonRef::Array(array) => {
                let values = array.into_iter().flatten().map(|value| self.value(value));
                RawBson::Array(values.collect::<RawArrayBuf>())
            }
            RawBsonRef::Symbol(text) if self.loose => RawBson::String(text.to_owned()),
            // The engine that groups in mongod 6.0.5 shows code as a string.
            RawBsonRef::JavaScriptCode(text) if self.loose => RawBson::String(text.to_owned()),
            number if self.loose => loose_number(number).unwrap_or_else(|| number.into()),
            other => other.into(),
        }
    }
}

fn loose_number(value: RawBsonRef<'_>) -> Option<RawBson> {
    let number = match value {
        RawBsonRef::Int32(number) => f64::from(number),
        RawBsonRef::Int64(number) => number.to_string().parse().ok()?,
        RawBsonRef::Double(number) => number,
        RawBsonRef::Decimal128(number) => number.to_string().parse().ok()?,
        _ => return None,
    };
    // One zero, one NaN.
    Some(RawBson::String(format!("number {}", number + 0.0)))
}

fn assemble(fields: Vec<(String, RawBson)>) -> RawDocumentBuf {
    let mut document = RawDocumentBuf::new();
    for (name, value) in fields {
        document.append(
            bson::raw::CString::try_from(name).expect("names have no zero byte"),
            value,
        );
    }
    document
}

fn bytes(value: &RawBson) -> Vec<u8> {
    let mut document = RawDocumentBuf::new();
    document.append(cstr!(""), value);
    document.into_bytes()
}

/// Which order of the answer is defined.
#[derive(Debug, Clone, PartialEq)]
pub enum Order {
    /// All of it: a total sort, or one key's insertion order.
    Defined,
    /// None, and all documents are there.
    Free,
    /// None, and some are left out: which ones is not defined either.
    FreeChoice,
    /// That of these fields' values; which documents of equal values come, and how, is not.
    ByFields(Vec<String>),
}

/// Compares two answers. `all` has what the plain answer was chosen from, where choice is free.
pub fn documents(
    canon: Canon,
    order: &Order,
    plain: &[RawDocumentBuf],
    shaped: &[RawDocumentBuf],
    all: &[RawDocumentBuf],
) -> Result<()> {
    let [ours, theirs] = [shaped, plain]
        .map(|documents| -> Vec<Vec<u8>> { documents.iter().map(|document| canon.of(document)).collect() });
    ensure!(
        ours.len() == theirs.len(),
        "{} documents instead of {}.\n  plain:  {}\n  shaped: {}",
        ours.len(),
        theirs.len(),
        plain.iter().map(|document| show(document)).collect::<String>(),
        shaped.iter().map(|document| show(document)).collect::<String>()
    );
    match order {
        Order::Defined => {}
        Order::Free => return same_set(&theirs, &ours),
        Order::FreeChoice | Order::ByFields(_) => {
            if let Order::ByFields(names) = order {
                let values = |documents: &[RawDocumentBuf]| -> Vec<Vec<u8>> {
                    documents.iter().map(|document| sort_values(document, names)).collect()
                };
                let (ours, theirs) = (values(shaped), values(plain));
                let place = ours.iter().zip(&theirs).position(|(ours, theirs)| ours != theirs);
                ensure!(
                    place.is_none(),
                    "sorted by {names:?}, document {place:?} differs.\n  plain:  {plain:?}\n  shaped: {shaped:?}"
                );
            }
            return chosen_from(canon, shaped, all);
        }
    }
    let differing = ours.iter().zip(&theirs).position(|(ours, theirs)| ours != theirs);
    if differing.is_some() && has_wrapped_ids(plain) {
        return Ok(());
    }
    ensure!(
        differing.is_none(),
        "document {differing:?} differs.\n  plain:  {}\n  shaped: {}",
        plain.iter().map(|document| show(document)).collect::<String>(),
        shaped.iter().map(|document| show(document)).collect::<String>()
    );
    Ok(())
}

fn same_set(plain: &[Vec<u8>], shaped: &[Vec<u8>]) -> Result<()> {
    // How many more there are on the plain side.
    let mut balance: BTreeMap<&[u8], i64> = BTreeMap::new();
    for document in plain {
        *balance.entry(document).or_default() += 1;
    }
    for document in shaped {
        *balance.entry(document).or_default() -= 1;
    }
    let (mut plain_only, mut shaped_only) = (String::new(), String::new());
    for (document, more) in balance {
        let only = if more > 0 { &mut plain_only } else { &mut shaped_only };
        for _ in 0..more.abs() {
            only.extend(["\n    ", &show(RawDocument::from_bytes(document)?)]);
        }
    }
    ensure!(
        plain_only.is_empty() && shaped_only.is_empty(),
        "documents differ.\n  only plain:{plain_only}\n  only shaped:{shaped_only}"
    );
    Ok(())
}

/// Whether each is one of `all`, and none more often than there.
fn chosen_from(canon: Canon, documents: &[RawDocumentBuf], all: &[RawDocumentBuf]) -> Result<()> {
    let mut left: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    for document in all {
        *left.entry(canon.of(document)).or_default() += 1;
    }
    for document in documents {
        match left.get_mut(&canon.of(document)) {
            Some(count) if *count > 0 => *count -= 1,
            _ => bail!(
                "{} is none of the {} that match, or came twice",
                show(document),
                all.len()
            ),
        }
    }
    Ok(())
}

/// Whether mongod's counter of generated ids has passed its end: the ids of that second have another order than
/// that of their generation.
fn has_wrapped_ids(documents: &[RawDocumentBuf]) -> bool {
    let mut counters: BTreeMap<[u8; 4], Vec<u32>> = BTreeMap::new();
    for id in documents
        .iter()
        .filter_map(|document| field(document, "_id")?.as_object_id())
    {
        let [s1, s2, s3, s4, .., c1, c2, c3] = id.bytes();
        let counter = u32::from_be_bytes([0, c1, c2, c3]);
        counters.entry([s1, s2, s3, s4]).or_default().push(counter);
    }
    counters.iter().any(|(seconds, counters)| {
        let least = counters.iter().min().copied().unwrap_or_default();
        let greatest = counters.iter().max().copied().unwrap_or_default();
        *seconds != OUR_OBJECT_IDS && greatest - least > 1 << 23
    })
}

/// The values of the fields, in a form that is equal for values that sort alike.
fn sort_values(document: &RawDocument, names: &[String]) -> Vec<u8> {
    let canon = Canon {
        loose: true,
        ..Canon::default()
    };
    let values = names.iter().map(|name| {
        let value = field(document, name);
        let value = value.map_or(RawBson::Null, |value| canon.value(value));
        (name.clone(), value)
    });
    assemble(values.collect()).into_bytes()
}

/// Whether a reply is `ok: 1`.
#[must_use]
pub fn succeeded(reply: &RawDocument) -> bool {
    field(reply, "ok").and_then(RawBsonRef::as_f64) == Some(1.0)
}

/// Fields that a replica set adds to every reply, and the proxy does not add to its own. Drivers do not
/// require them.
const GOSSIP: &[&str] = &[
    "$clusterTime",
    "operationTime",
    "topologyVersion",
    "recoveryToken",
    "raw",
];

/// Fails unless both succeeded or both failed with the same code; whether they succeeded.
pub fn outcomes(plain: &RawDocument, shaped: &RawDocument) -> Result<bool> {
    let names = |reply: &RawDocument| -> Vec<String> {
        let mut names: Vec<_> = reply
            .iter()
            .flatten()
            .map(|(name, _)| name.as_str().to_owned())
            .filter(|name| !GOSSIP.contains(&name.as_str()))
            .collect();
        names.sort();
        names
    };
    let same = ["ok", "code", "codeName"]
        .iter()
        .all(|name| field(plain, name) == field(shaped, name));
    ensure!(
        same && names(plain) == names(shaped),
        "the replies differ.\n  plain:  {}\n  shaped: {}",
        show(plain),
        show(shaped)
    );
    Ok(succeeded(plain))
}

/// Whether a statement may be wrong in two ways, of which either may be reported: its change has several
/// operators, or several paths; or it is an upsert by an expression, which is a mistake beside any other.
#[must_use]
pub fn may_have_two_mistakes(filter: Option<&Bson>, change: Option<&Bson>, is_upsert: bool) -> bool {
    let operators = change.and_then(Bson::as_document);
    let has_several = operators.is_some_and(|operators| {
        let paths = operators.values().filter_map(Bson::as_document);
        paths.map(Document::len).sum::<usize>() > 1
    });
    has_several || is_upsert && filter.is_some_and(names_expression)
}

fn names_expression(value: &Bson) -> bool {
    match value {
        Bson::Document(document) => document
            .iter()
            .any(|(name, value)| name == "$expr" || names_expression(value)),
        Bson::Array(values) => values.iter().any(names_expression),
        _ => false,
    }
}

/// Compares one of the `writeErrors`. `index` is the one that the shaped side should give.
pub fn write_errors(sides: &Sides, index: i32, plain: &RawDocument, shaped: &RawDocument) -> Result<()> {
    // From 7.0 on, a duplicate `_id` in a clustered collection has an empty `foundValue`.
    let message = |error: &RawDocument| {
        let message = field(error, "errmsg").and_then(RawBsonRef::as_str);
        message.unwrap_or_default().replace(" found value: {}", "")
    };
    let code = field(plain, "code");
    // Of a clustered collection mongod 6.0.5 cannot read the `_id` that is taken, if that is a number and no
    // small whole one.
    if code == Some(RawBsonRef::Int32(50810)) && field(shaped, "code") == Some(RawBsonRef::Int32(11000)) {
        return Ok(());
    }
    let mut same = field(shaped, "index") == Some(RawBsonRef::Int32(index)) && field(shaped, "code") == code;
    if code == Some(RawBsonRef::Int32(11000)) {
        same &= sides.plain.neutral(&message(plain)) == sides.shaped.neutral(&message(shaped));
    }
    let rest = |error: &RawDocument| -> Vec<u8> {
        let kept = error
            .iter()
            .flatten()
            .filter(|(name, _)| !["index", "code", "errmsg", "foundValue"].contains(&name.as_str()));
        Canon::default().of(&kept.collect::<RawDocumentBuf>())
    };
    ensure!(
        same && rest(plain) == rest(shaped),
        "the write errors differ (index {index} is right).\n  plain:  {}\n  shaped: {}",
        show(plain),
        show(shaped)
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use bson::rawdoc;

    use super::*;

    #[test]
    fn overflowed_counter_is_recognised() {
        let ids = |counters: &[u32]| -> Vec<RawDocumentBuf> {
            let id = |counter: &u32| {
                let [_, c1, c2, c3] = counter.to_be_bytes();
                rawdoc! { "_id": ObjectId::from_bytes([1, 1, 1, 1, 2, 2, 2, 2, 2, c1, c2, c3]) }
            };
            counters.iter().map(id).collect()
        };
        assert!(has_wrapped_ids(&ids(&[0xff_ff_ad, 0x1e])));
        assert!(!has_wrapped_ids(&ids(&[0xff_ff_ad, 0xff_ff_ae])));
        assert!(!has_wrapped_ids(&[rawdoc! { "_id": 1 }]));
    }
}

//! One upsert, executed by mongod and built by the proxy's code.

use anyhow::{Context as _, Result, bail, ensure};
use bson::oid::ObjectId;
use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Bson, DateTime, Document, Timestamp, bson, doc};
use mongoshape::command::server_version::ServerVersion;
use mongoshape::pattern::bucket::item::{IdSource, Item, KeepsTimestamps};
use mongoshape::pattern::bucket::update_by_id::UpdateRequest;
use mongoshape::pattern::bucket::upsert::{Built, UpsertError, after_stages, build, simplified};
use mongoshape::pattern::shapes::{BucketOptions, BucketShape, NamespacePattern};
use proto_tests::database_name;
use proto_tests::mongod::{self, Version};
use proto_tests::raw::Connection;

const COLLECTION: &str = "items";
/// Dates from here on, in milliseconds, are of the clock; those of cases are older.
const NOW: i64 = 1_750_000_000_000;
const DOLLAR_PREFIXED_FIELD_NAME: i32 = 52;

/// How a case came out, the same on both sides unless it is not supported.
#[derive(Debug, PartialEq)]
pub(crate) enum Outcome {
    Inserted,
    Refused(i32),
    Unsupported(String),
}

/// A server's empty collection, and what the proxy's code needs.
pub(crate) struct Comparison {
    connection: Connection,
    database: String,
    shape: BucketShape,
    version: Version,
}

struct FixedMint;

impl IdSource for FixedMint {
    fn now(&self) -> DateTime {
        DateTime::from_millis(NOW)
    }

    fn object_id(&mut self) -> ObjectId {
        ObjectId::from_bytes([0; 12])
    }

    fn timestamp(&mut self) -> Timestamp {
        Timestamp {
            time: u32::MAX,
            increment: 1,
        }
    }

    fn nonce(&self) -> i64 {
        7
    }
}

impl Comparison {
    pub(crate) fn open() -> Result<Self> {
        // A key that no case has, so that items are stored whole.
        let options = BucketOptions::new(
            NamespacePattern::parse("d.c").context("a pattern")?,
            vec!["the key".to_owned()],
        );
        let Ok(shape) = BucketShape::new(options) else {
            bail!("no shape");
        };
        Ok(Self {
            connection: Connection::open(mongod::shared().address())?,
            database: database_name(),
            shape,
            version: mongod::find_program()?.version,
        })
    }

    /// Upserts, and fails where the sides differ.
    pub(crate) fn compare(&mut self, filter: &Document, change: &Bson) -> Result<Outcome> {
        let built = self.build(filter, change)?;
        let done = self.upsert(filter, change)?;
        let differ =
            |built: &dyn std::fmt::Debug| format!("{filter}, {change}\n  mongod: {done:?}\n  built:  {built:?}");
        match (&built, &done) {
            (Err(UpsertError::Unsupported(what)), _) => Ok(Outcome::Unsupported(what.to_string())),
            (Ok(built), Ok(done)) => {
                let (built, done) = (neutral(built), neutral(done));
                ensure!(
                    built.as_bytes() == done.as_bytes(),
                    "{}\n  mongod's: {done:?}",
                    differ(&built)
                );
                Ok(Outcome::Inserted)
            }
            // A proxy sends the statement to mongod for validation before it builds a document.
            (Ok(_) | Err(UpsertError::Mongod(_)), Err((code, words)))
                if words.starts_with("unknown top level operator") =>
            {
                Ok(Outcome::Refused(*code))
            }
            (Err(UpsertError::Mongod(built)), Err((code, words))) => {
                ensure!(built.code == *code, "{}", differ(built));
                // Later versions have another text.
                let is_compared = *code != DOLLAR_PREFIXED_FIELD_NAME || self.version == Version::OLDEST;
                ensure!(
                    !is_compared || without_values(&built.message) == without_values(words),
                    "{}",
                    differ(built)
                );
                Ok(Outcome::Refused(*code))
            }
            // Later versions accept some names that begin with `$`. The proxy refuses them, as an insert does.
            (Err(UpsertError::Mongod(built)), Ok(_))
                if built.code == DOLLAR_PREFIXED_FIELD_NAME && self.version > Version::OLDEST =>
            {
                Ok(Outcome::Refused(built.code))
            }
            (Ok(built), _) => bail!("{}", differ(built)),
            (Err(refused), _) => bail!("{}", differ(refused)),
        }
    }

    /// What the proxy would insert.
    fn build(&mut self, filter: &Document, change: &Bson) -> Result<Result<RawDocumentBuf, UpsertError>> {
        let filter = RawDocumentBuf::try_from(filter)?;
        let raw_change = RawBson::try_from(change.clone())?;
        if let Some(simplified) = simplified(&filter)
            && simplified.may_apply(self.server_version()?)
        {
            return Ok(Err(UpsertError::Unsupported(simplified.what.into())));
        }
        let request = UpdateRequest {
            filter: Some(&filter),
            change: raw_change.as_raw_bson_ref(),
            array_filters: None,
            collation: None,
        };
        let document = match build(request, &mut FixedMint) {
            Ok(Built::Document(document)) => document,
            Ok(Built::Base(base)) => {
                let result = self.run_stages(&base, change)?;
                match after_stages(&base, &result, &mut FixedMint) {
                    Ok(document) => document,
                    Err(refusal) => return Ok(Err(refusal)),
                }
            }
            Err(refusal) => return Ok(Err(refusal)),
        };
        Ok(
            Item::prepare(&self.shape, 0, &document, &mut KeepsTimestamps(&mut FixedMint))
                .map(|item| item.stored().to_owned())
                .map_err(UpsertError::Mongod),
        )
    }

    fn server_version(&self) -> Result<ServerVersion> {
        let Version { major, minor, patch } = self.version;
        Ok(ServerVersion::new(
            major.try_into()?,
            minor.try_into()?,
            patch.try_into()?,
        ))
    }

    /// What mongod makes of one document in a pipeline.
    fn run_stages(&mut self, base: &RawDocument, stages: &Bson) -> Result<RawDocumentBuf> {
        let base = Document::try_from(base)?;
        let mut pipeline = vec![bson!({ "$documents": [{ "$literal": base }] })];
        pipeline.extend(stages.as_array().context("no pipeline")?.iter().cloned());
        let command = doc! { "aggregate": 1, "pipeline": pipeline, "cursor": {}, "$db": &self.database };
        only_document(&self.connection.command_raw(&command)?)
    }

    /// The document that mongod inserts, or its error code and text.
    fn upsert(&mut self, filter: &Document, change: &Bson) -> Result<Result<RawDocumentBuf, (i32, String)>> {
        let database = &self.database;
        let all = doc! { "delete": COLLECTION, "deletes": [{ "q": {}, "limit": 0 }], "$db": database };
        self.connection.command_ok(&all)?;
        let updates = vec![doc! { "q": filter.clone(), "u": change.clone(), "upsert": true }];
        let reply = self
            .connection
            .command(&doc! { "update": COLLECTION, "updates": updates, "$db": database })?;
        let failed = reply.get_array("writeErrors").ok().and_then(|errors| errors.first());
        let failed = failed.and_then(Bson::as_document).unwrap_or(&reply);
        if let Ok(code) = failed.get_i32("code") {
            return Ok(Err((code, failed.get_str("errmsg")?.to_owned())));
        }
        let found = self
            .connection
            .command_raw(&doc! { "find": COLLECTION, "$db": database })?;
        only_document(&found).map(Ok)
    }
}

/// The document of a cursor that has but one.
fn only_document(reply: &RawDocument) -> Result<RawDocumentBuf> {
    let batch = reply.get_document("cursor")?.get_array("firstBatch")?;
    let document = batch.into_iter().next().context("no document")??;
    Ok(document.as_document().context("no document")?.to_owned())
}

/// An error's text without documents: how values of rare types are printed there is not what
/// is tested.
fn without_values(words: &str) -> &str {
    let words = words.split_once('{').map_or(words, |(before, _)| before);
    words.split_once("_id: ").map_or(words, |(before, _)| before)
}

/// A document without times and generated ids, which differ between servers. mongod 7.0 stores the fields of an
/// upsert's filter in any order, so there the fields are sorted.
fn neutral(document: &RawDocument) -> RawDocumentBuf {
    let mut fields: Vec<_> = document.iter().flatten().collect();
    if mongod::find_program().is_ok_and(|program| program.version.major >= 7) {
        fields.sort_by_key(|(name, _)| name.as_str());
    }
    let mut same = RawDocumentBuf::new();
    for (name, value) in fields {
        same.append(name, neutral_value(value));
    }
    same
}

fn neutral_value(value: RawBsonRef<'_>) -> RawBson {
    match value {
        RawBsonRef::Document(document) => RawBson::Document(neutral(document)),
        RawBsonRef::Array(array) => {
            let mut same = RawArrayBuf::new();
            for value in array.into_iter().flatten() {
                same.push(neutral_value(value));
            }
            RawBson::Array(same)
        }
        RawBsonRef::DateTime(date) if date.timestamp_millis() >= NOW => "the date".into(),
        RawBsonRef::Timestamp(stamp) if i64::from(stamp.time) >= NOW / 1000 => "the time".into(),
        // Those of cases begin with another byte, which no server's clock has reached.
        RawBsonRef::ObjectId(id) if id.bytes()[0] != 0xAB => "the id".into(),
        other => other.into(),
    }
}

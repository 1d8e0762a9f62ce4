//! Pipelines that read other collections: a plain one and a second shaped one.

use anyhow::{Result, bail};
use bson::raw::RawDocumentBuf;
use bson::{Bson, Document, bson, doc};

use super::cursor::{self, Rest};
use super::{Operation, Outcome};
use crate::differential::compare::{self, Canon, Order};
use crate::differential::grammar::{LookupForm, Reaching, Source};
use crate::differential::sides::{ANOTHER, COLLECTION};
use crate::differential::{Generator, Sides};

/// A collection that no shape has.
pub(super) const PLAIN: &str = "plain";

#[derive(Debug)]
struct Lookup {
    command: Document,
}

/// Documents for the other two collections.
#[derive(Debug)]
struct Fill {
    command: Document,
}

pub(super) fn generate(generator: &mut Generator) -> Box<dyn Operation> {
    match generator.take::<LookupForm>() {
        LookupForm::Ordinary => {}
        LookupForm::Fill => return fill(generator),
        LookupForm::Mistake => {
            let mut command = wrong(generator);
            command.insert("cursor", doc! { "batchSize": 100_000 });
            return Box::new(Lookup { command });
        }
    }
    let mut command = if generator.chance(5) {
        let stages = vec![bson!({ "$documents": [{ "$literal": generator.document() }, {}] })];
        doc! { "aggregate": 1, "pipeline": stages }
    } else {
        let source = generator.pick(&[PLAIN, COLLECTION, ANOTHER]);
        doc! { "aggregate": source, "pipeline": generator.beginning() }
    };
    let mut stages = command.get_array("pipeline").cloned().unwrap_or_default();
    for _ in 0..=generator.below(2) {
        if stages.iter().any(is_unwind) {
            // Each document found may find all others again.
            let numbers = [
                generator.some_serial(),
                generator.some_serial(),
                generator.some_serial(),
            ];
            stages.push(bson!({ "$match": { "found.n": { "$in": numbers.to_vec() } } }));
        }
        stages.extend(generator.reaching(2));
    }
    if generator.chance(10) {
        stages.push(bson!({ "$count": "all" }));
    }
    command.insert("pipeline", stages);
    if generator.chance(10) {
        command.insert("collation", doc! { "locale": "en", "strength": 2 });
    }
    command.insert("cursor", doc! { "batchSize": 100_000 });
    Box::new(Lookup { command })
}

fn fill(generator: &mut Generator) -> Box<dyn Operation> {
    let keys = generator.shape.key.clone();
    let mut documents = Vec::new();
    for _ in 0..generator.between(1, 6) {
        let mut document = generator.document();
        // Nothing that one of the sides would refuse.
        document.insert("_id", document.get("n").cloned().unwrap_or(Bson::Null));
        for key in &keys {
            let is_none = |value: &Bson| matches!(value, Bson::Array(_) | Bson::Undefined | Bson::Symbol(_));
            if document.get(key).is_some_and(is_none) {
                document.remove(key);
            }
        }
        documents.push(document);
    }
    let command = doc! { "insert": generator.pick(&[PLAIN, ANOTHER]), "documents": documents };
    Box::new(Fill { command })
}

impl Generator {
    /// A few documents of a collection, in an order that is defined.
    fn beginning(&mut self) -> Vec<Bson> {
        let mut stages = Vec::new();
        if self.chance(50) {
            stages.push(bson!({ "$match": self.filter() }));
        }
        stages.push(bson!({ "$sort": { "n": 1 } }));
        stages.push(bson!({ "$limit": self.pick(&[1, 8, 25]) }));
        if !self.has_ids() {
            stages.push(bson!({ "$unset": "_id" }));
        }
        stages
    }

    /// A name of a field that a path may have.
    fn path(&mut self) -> String {
        loop {
            let field = self.field();
            if !field.is_empty() {
                return field;
            }
        }
    }

    /// A stage that reads a collection, and those that make its answer comparable.
    pub(super) fn reaching(&mut self, depth: u32) -> Vec<Bson> {
        let from = match self.take::<Source>() {
            Source::Plain => PLAIN,
            Source::Shaped => COLLECTION,
            Source::AnotherShaped => ANOTHER,
            Source::Missing => "missing",
        };
        match self.take_where(|reaching: Reaching| depth == 2 || reaching != Reaching::Facet) {
            Reaching::Equality => self.equality_join(from, depth),
            Reaching::Pipeline => self.pipeline_join(from, depth),
            Reaching::Union => self.union(from, depth),
            Reaching::Graph => self.graph(from),
            Reaching::Facet => {
                let (one, other) = (self.reaching(1), self.reaching(1));
                let counted = bson!([{ "$unionWith": from }, { "$count": "all" }]);
                let stage = bson!({ "$facet": { "one": one, "other": other, "counted": counted } });
                vec![stage]
            }
        }
    }

    fn equality_join(&mut self, from: &str, depth: u32) -> Vec<Bson> {
        let (local, foreign) = (self.path(), self.path());
        let mut stage = doc! { "from": from, "localField": local, "foreignField": foreign, "as": "found" };
        if self.chance(40) {
            stage.insert("pipeline", self.inner(depth));
        }
        if stage.contains_key("pipeline") && self.chance(30) {
            stage.insert("let", doc! { "mongoshape_local": "$n" });
        }
        // Without a pipeline mongod 6.0.5 may run it in another engine, which takes undefined for something
        // else than null; but not behind this stage.
        let mut stages = vec![bson!({ "$redact": "$$KEEP" })];
        stages.extend(self.comparable(doc! { "$lookup": stage }));
        stages
    }

    fn pipeline_join(&mut self, from: &str, depth: u32) -> Vec<Bson> {
        let (local, foreign) = (format!("${}", self.path()), format!("${}", self.path()));
        let mut stages = self.inner(depth);
        if self.chance(60) {
            let mut condition = doc! { "$expr": { "$eq": [foreign, "$$value"] } };
            if self.chance(30) {
                condition.extend(self.one_key());
            }
            stages.insert(0, bson!({ "$match": condition }));
        }
        let stage = doc! { "from": from, "let": { "value": local }, "pipeline": stages, "as": "found" };
        self.comparable(doc! { "$lookup": stage })
    }

    fn union(&mut self, from: &str, depth: u32) -> Vec<Bson> {
        let value = match self.below(3) {
            0 => bson!(from),
            1 => bson!({ "coll": from }),
            _ => bson!({ "coll": from, "pipeline": self.inner(depth) }),
        };
        let mut stages = vec![bson!({ "$unionWith": value })];
        if !self.has_ids() {
            stages.push(bson!({ "$unset": "_id" }));
        }
        stages
    }

    fn graph(&mut self, from: &str) -> Vec<Bson> {
        let mut stage = doc! {
            "from": from,
            "startWith": format!("${}", self.path()),
            "connectFromField": self.path(),
            "connectToField": self.path(),
            "as": "found",
            "depthField": "depth",
            "maxDepth": self.below(3),
        };
        if self.chance(30) {
            stage.insert("restrictSearchWithMatch", self.any_filter(1));
        }
        self.comparable(doc! { "$graphLookup": stage })
    }

    /// What is done to the documents that are read.
    fn inner(&mut self, depth: u32) -> Vec<Bson> {
        let mut stages = Vec::new();
        if self.chance(60) {
            stages.push(bson!({ "$match": self.filter() }));
        }
        if self.chance(20) {
            stages.extend([bson!({ "$sort": { "n": 1 } }), bson!({ "$limit": 3 })]);
        }
        if depth > 0 && self.chance(25) {
            stages.extend(self.reaching(depth - 1));
        }
        if self.chance(20) {
            stages.push(bson!({ "$project": { "n": 1, "k": 1, "qty": 1 } }));
        }
        stages
    }

    /// A stage with an array of documents in `found`, or its documents one by one.
    fn comparable(&mut self, stage: Document) -> Vec<Bson> {
        let mut stages = vec![stage.into()];
        if self.chance(20) {
            stages.push(bson!({ "$unwind": "$found" }));
        }
        if !self.has_ids() {
            stages.push(bson!({ "$unset": ["_id", "found._id"] }));
        }
        stages
    }
}

fn is_unwind(stage: &Bson) -> bool {
    stage.as_document().is_some_and(|stage| stage.contains_key("$unwind"))
}

/// One mistake.
fn wrong(generator: &mut Generator) -> Document {
    let from = ANOTHER;
    let mistakes = [
        doc! { "$lookup": { "from": from, "localField": "k", "foreignField": "qty" } },
        doc! { "$lookup": { "from": from, "localField": "k", "as": "x" } },
        doc! { "$lookup": { "from": from, "localField": "k", "pipeline": [], "as": "x" } },
        doc! { "$lookup": { "from": from, "as": "x" } },
        doc! { "$lookup": { "from": from, "let": { "x": 1 }, "localField": "k", "foreignField": "qty", "as": "x" } },
        doc! { "$lookup": { "from": from, "let": { "X": 1 }, "localField": "k", "foreignField": "qty", "pipeline": [], "as": "x" } },
        doc! { "$lookup": { "from": from, "let": 1, "localField": "k", "foreignField": "qty", "pipeline": [], "as": "x" } },
        doc! { "$lookup": { "from": from, "localField": "", "foreignField": "qty", "as": "x" } },
        doc! { "$lookup": { "from": from, "localField": "$k", "foreignField": "qty", "as": "x" } },
        doc! { "$lookup": { "from": from, "localField": "k", "foreignField": "$qty", "as": "x" } },
        doc! { "$lookup": { "from": from, "localField": "k", "foreignField": "qty.", "as": "x" } },
        doc! { "$lookup": { "from": from, "localField": "k", "foreignField": "qty..x", "as": "x" } },
        doc! { "$lookup": { "from": from, "localField": "k", "foreignField": 1, "as": "x" } },
        doc! { "$lookup": { "from": from, "localField": "k", "foreignField": "qty", "as": "x", "nope": 1 } },
        doc! { "$lookup": { "from": from, "localField": "k", "foreignField": "qty", "as": "$x" } },
        doc! { "$lookup": { "from": from, "pipeline": 1, "as": "x" } },
        doc! { "$lookup": { "from": from, "pipeline": [1], "as": "x" } },
        doc! { "$lookup": { "from": from, "pipeline": [{ "$nope": 1 }], "as": "x" } },
        doc! { "$lookup": { "from": from, "pipeline": [{ "$out": "x" }], "as": "x" } },
        doc! { "$lookup": { "from": from, "pipeline": [{ "$match": { "$expr": "$$nope" } }], "as": "x" } },
        doc! { "$lookup": 1 },
        doc! { "$unionWith": { "coll": from, "nope": 1 } },
        doc! { "$unionWith": { "coll": from, "pipeline": 1 } },
        doc! { "$unionWith": { "coll": from, "pipeline": Bson::Null } },
        doc! { "$unionWith": 1 },
        doc! { "$unionWith": from, "$limit": 1 },
        doc! { "$graphLookup": { "from": from } },
        doc! { "$graphLookup": { "from": from, "startWith": 1, "connectFromField": "k", "connectToField": "qty", "as": "x", "maxDepth": -1 } },
        doc! { "$graphLookup": { "from": from, "startWith": 1, "connectFromField": "k", "connectToField": "$qty", "as": "x" } },
        doc! { "$facet": { "x": [{ "$facet": { "y": [{ "$unionWith": from }] } }] } },
        doc! { "$facet": { "x": 1, "y": [{ "$unionWith": from }] } },
    ];
    let collection = generator.pick(&[COLLECTION, ANOTHER, PLAIN]);
    doc! { "aggregate": collection, "pipeline": [generator.example("lookup.mistake", &mistakes)] }
}

impl Operation for Lookup {
    fn commands(&self) -> Vec<Document> {
        vec![self.command.clone()]
    }

    fn run(&self, sides: &mut Sides) -> Result<Outcome> {
        let [plain, shaped] = sides.both(&self.command)?;
        if sides.is_refused(&self.command, &shaped) {
            return Ok(Outcome::Refused);
        }
        same_documents(sides, plain, shaped)
    }
}

impl Operation for Fill {
    fn commands(&self) -> Vec<Document> {
        vec![self.command.clone()]
    }

    fn run(&self, sides: &mut Sides) -> Result<Outcome> {
        let [plain, shaped] = sides.both(&self.command)?;
        let done = compare::outcomes(&plain, &shaped)?;
        Ok(if done { Outcome::Done } else { Outcome::Failed })
    }
}

/// Compares what both cursors give, to their end, in any order: both what comes first and where a batch is
/// full depend on it.
pub(super) fn same_documents(sides: &mut Sides, plain: RawDocumentBuf, shaped: RawDocumentBuf) -> Result<Outcome> {
    let plain = cursor::rest(&mut sides.plain, plain)?;
    let shaped = cursor::rest(&mut sides.shaped, shaped)?;
    let canon = Canon {
        loose: true,
        unordered: &["found", "one", "other"],
        ..Canon::default()
    };
    match (plain, shaped) {
        (Rest::Documents(plain), Rest::Documents(shaped)) => {
            compare::documents(canon, &Order::Free, &plain, &shaped, &[])?;
            Ok(Outcome::Done)
        }
        // Rare: it is only known that neither ended.
        (Rest::TooMany, Rest::TooMany) => Ok(Outcome::Done),
        (Rest::Failed(plain), Rest::Failed(shaped)) if !compare::outcomes(&plain, &shaped)? => Ok(Outcome::Failed),
        (plain, shaped) => bail!("the cursors end differently.\n  plain:  {plain}\n  shaped: {shaped}"),
    }
}

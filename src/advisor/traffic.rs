//! Queries of a collection, from profiles and cached plans. Pure. Keeps names of fields, no values.

use std::collections::{BTreeMap, BTreeSet};

use bson::{Bson, Document};

use super::rounding::share;
use crate::maintenance::upstream::as_integer;

/// Filters are read up to this depth.
const MAX_DEPTH: u32 = 8;

/// The observed queries of a collection.
#[derive(Clone, Debug, Default)]
pub(super) struct Traffic {
    /// Reads, updates and deletes with a filter.
    queries: Vec<ObservedQuery>,
    /// For each array, the most elements that a projection requested.
    slices: BTreeMap<String, u64>,
    /// Observed operations that are refused on bucket collections.
    refused: BTreeSet<&'static str>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ObservedQuery {
    /// Top-level fields with an equality condition.
    equal: BTreeSet<String>,
    /// The first sort field without an equality condition.
    sort: Option<String>,
    /// Number of requested documents. 0: all.
    limit: u64,
    /// Whether it is a read.
    is_read: bool,
}

impl Traffic {
    /// Adds an entry of `system.profile`.
    pub(super) fn add_profiled(&mut self, entry: &Document) {
        let Ok(command) = entry.get_document("command") else {
            return;
        };
        let of = |name| command.get_document(name).cloned().unwrap_or_default();
        match entry.get_str("op").unwrap_or_default() {
            "query" => self.add_read(&of("filter"), &of("sort"), &of("projection"), limit(command)),
            "update" | "remove" => {
                let query = self.observe(&of("q"), false);
                self.queries.push(query);
            }
            "command" if command.contains_key("aggregate") => self.add_pipeline(command),
            "command" if command.contains_key("count") || command.contains_key("distinct") => {
                self.add_read(&of("query"), &Document::new(), &Document::new(), 0);
            }
            "command" if command.contains_key("findAndModify") || command.contains_key("findandmodify") => {
                let query = self.observe(&of("query"), false);
                self.queries.push(query);
            }
            _ => {}
        }
    }

    /// Adds an entry of `$planCacheStats`: the query was executed at least once.
    pub(super) fn add_plan(&mut self, entry: &Document) {
        let Ok(query) = entry.get_document("createdFromQuery") else {
            return;
        };
        let of = |name| query.get_document(name).cloned().unwrap_or_default();
        // The plan may be cached with any of the limits used, or none, so its limit is not informative.
        self.add_read(&of("query"), &of("sort"), &of("projection"), 1);
    }

    /// Records that a change stream watches the collection.
    pub(super) fn add_change_stream(&mut self) {
        self.refused.insert("$changeStream");
    }

    fn add_read(&mut self, filter: &Document, sort: &Document, projection: &Document, limit: u64) {
        for (field, value) in projection {
            let slice = value.as_document().and_then(|value| value.get("$slice"));
            let most = slice.and_then(|slice| match slice {
                Bson::Array(arguments) => arguments.last().and_then(as_integer),
                number => as_integer(number),
            });
            if let Some(most) = most {
                let known = self.slices.entry(field.clone()).or_default();
                *known = (*known).max(most.unsigned_abs());
            }
        }
        let mut query = self.observe(filter, true);
        query.sort = sort.keys().find(|field| !query.equal.contains(*field)).cloned();
        query.limit = limit;
        self.queries.push(query);
    }

    fn add_pipeline(&mut self, command: &Document) {
        let empty = Vec::new();
        let stages: Vec<&Document> = command
            .get_array("pipeline")
            .unwrap_or(&empty)
            .iter()
            .filter_map(Bson::as_document)
            .collect();
        for stage in &stages {
            if stage.contains_key("$changeStream") {
                self.refused.insert("$changeStream");
            }
        }
        // Queries of `advise` itself are ignored.
        let first = stages.first().and_then(|stage| stage.keys().next().map(String::as_str));
        if matches!(
            first,
            Some("$sample" | "$indexStats" | "$planCacheStats" | "$collStats" | "$changeStream")
        ) {
            return;
        }
        let of = |name| {
            stages
                .iter()
                .find_map(|stage| stage.get_document(name).ok())
                .cloned()
                .unwrap_or_default()
        };
        let filter = match stages.first() {
            Some(stage) => stage.get_document("$match").cloned().unwrap_or_default(),
            None => Document::new(),
        };
        let limit = stages.iter().find_map(|stage| stage.get("$limit").and_then(as_integer));
        let limit = limit.and_then(|limit| u64::try_from(limit).ok()).unwrap_or(0);
        self.add_read(&filter, &of("$sort"), &of("$project"), limit);
    }

    fn observe(&mut self, filter: &Document, is_read: bool) -> ObservedQuery {
        let mut query = ObservedQuery {
            is_read,
            ..ObservedQuery::default()
        };
        self.look_into(filter, &mut query, MAX_DEPTH);
        query
    }

    fn look_into(&mut self, filter: &Document, query: &mut ObservedQuery, depth: u32) {
        if depth == 0 {
            return;
        }
        for (name, value) in filter {
            if name == "$and" {
                for part in value.as_array().into_iter().flatten().filter_map(Bson::as_document) {
                    self.look_into(part, query, depth - 1);
                }
            } else if let Some(refused) = refused(name) {
                self.refused.insert(refused);
            } else if !name.starts_with('$') && !name.contains('.') && self.is_equality(value) {
                query.equal.insert(name.clone());
            }
        }
    }

    fn is_equality(&mut self, value: &Bson) -> bool {
        let operators = match value {
            Bson::RegularExpression(_) => return false,
            Bson::Document(operators) if operators.keys().any(|name| name.starts_with('$')) => operators,
            _ => return true,
        };
        self.refused.extend(operators.keys().filter_map(|name| refused(name)));
        operators.contains_key("$eq") || operators.contains_key("$in")
    }

    /// Number of observed queries.
    pub(super) fn len(&self) -> usize {
        self.queries.len()
    }

    /// Number of queries with equality conditions on all these fields.
    pub(super) fn by(&self, key: &[String]) -> u64 {
        let is_by = |query: &&ObservedQuery| query.is_by(key);
        super::rounding::count(self.queries.iter().filter(is_by).count())
    }

    /// Like [`Self::by`], as a fraction of all queries.
    pub(super) fn share_by(&self, key: &[String]) -> f64 {
        share(self.by(key), super::rounding::count(self.len()))
    }

    /// The sets of fields with equality conditions, without `_id`.
    pub(super) fn equalities(&self) -> BTreeSet<Vec<String>> {
        let fields = |query: &ObservedQuery| query.equal.iter().filter(|field| *field != "_id").cloned().collect();
        self.queries
            .iter()
            .map(fields)
            .filter(|fields: &Vec<String>| !fields.is_empty())
            .collect()
    }

    /// The most frequent sort field of queries with equality conditions on all these fields.
    pub(super) fn sort_by(&self, key: &[String]) -> Option<&str> {
        let mut sorts: BTreeMap<&str, usize> = BTreeMap::new();
        for sort in self
            .queries
            .iter()
            .filter(|query| query.is_by(key))
            .filter_map(|query| query.sort.as_deref())
        {
            *sorts.entry(sort).or_default() += 1;
        }
        sorts.into_iter().max_by_key(|(_, times)| *times).map(|(sort, _)| sort)
    }

    /// The limits of such reads, ascending. 0: all documents.
    pub(super) fn limits_by(&self, key: &[String]) -> Vec<u64> {
        let reads = self.queries.iter().filter(|query| query.is_read && query.is_by(key));
        // A limit of one is often an existence check.
        let mut limits: Vec<u64> = reads.map(|query| query.limit).filter(|limit| *limit != 1).collect();
        limits.sort_unstable();
        limits
    }

    /// The most elements of an array that a projection requested.
    pub(super) fn slice(&self, array: &str) -> Option<u64> {
        self.slices.get(array).copied()
    }

    /// Observed operations that are refused on bucket collections.
    pub(super) fn refused(&self) -> &BTreeSet<&'static str> {
        &self.refused
    }
}

impl ObservedQuery {
    fn is_by(&self, key: &[String]) -> bool {
        key.iter().all(|field| self.equal.contains(field))
    }
}

/// The operator if filters on bucket collections cannot contain it.
fn refused(operator: &str) -> Option<&'static str> {
    (operator == "$text").then_some("$text")
}

/// The limit of a `find`: 0 if there is none.
fn limit(find: &Document) -> u64 {
    let limit = find.get("limit").and_then(as_integer).unwrap_or(0);
    limit.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    fn key(fields: &[&str]) -> Vec<String> {
        fields.iter().map(|field| (*field).to_owned()).collect()
    }

    #[test]
    fn profiled_commands_are_understood() {
        let mut traffic = Traffic::default();
        let find =
            doc! { "find": "c", "filter": { "k": 1, "at": { "$gt": 5 } }, "sort": { "k": 1, "at": -1 }, "limit": 50 };
        traffic.add_profiled(&doc! { "op": "query", "command": find });
        let pipeline = [
            doc! { "$match": { "$and": [{ "k": { "$in": [1, 2] } }, { "r": "eu" }] } },
            doc! { "$limit": 20 },
        ];
        let aggregate = doc! { "aggregate": "c", "pipeline": pipeline.to_vec() };
        traffic.add_profiled(&doc! { "op": "command", "command": aggregate });
        let sliced = doc! { "find": "c", "filter": { "_id": 3 }, "projection": { "tags": { "$slice": -30 } } };
        traffic.add_profiled(&doc! { "op": "query", "command": sliced });
        traffic.add_profiled(&doc! { "op": "update", "command": { "q": { "_id": 3 }, "u": {} } });
        traffic.add_profiled(
            &doc! { "op": "command", "command": { "aggregate": "c", "pipeline": [{ "$sample": { "size": 3 } }] } },
        );
        traffic.add_profiled(&doc! { "op": "query", "command": { "$truncated": "{ find: .." } });
        traffic.add_profiled(&doc! { "op": "query" });
        assert_eq!(traffic.len(), 5);
        assert_eq!(
            (
                traffic.by(&key(&["k"])),
                traffic.by(&key(&["k", "r"])),
                traffic.by(&key(&["at"]))
            ),
            (2, 1, 0)
        );
        assert_eq!(traffic.sort_by(&key(&["k"])), Some("at"));
        assert_eq!(traffic.limits_by(&key(&["k"])), [20, 50]);
        assert_eq!((traffic.slice("tags"), traffic.slice("k")), (Some(30), None));
        let equalities: Vec<_> = traffic.equalities().into_iter().collect();
        assert_eq!(equalities, [key(&["k"]), key(&["k", "r"])]);
        assert!(traffic.refused().is_empty());
    }

    #[test]
    fn cached_plans_are_read_and_refused_entries_skipped() {
        let mut traffic = Traffic::default();
        let plan =
            doc! { "createdFromQuery": { "query": { "k": { "$eq": 5 } }, "sort": { "at": 1 }, "projection": {} } };
        traffic.add_plan(&plan);
        assert_eq!(
            (traffic.by(&key(&["k"])), traffic.sort_by(&key(&["k"]))),
            (1, Some("at"))
        );
        assert!(traffic.limits_by(&key(&["k"])).is_empty());
        let filter = doc! { "$text": { "$search": "x" }, "r": { "$ne": 1 } };
        traffic.add_profiled(&doc! { "op": "query", "command": { "find": "c", "filter": filter } });
        traffic.add_change_stream();
        let refused: Vec<_> = traffic.refused().iter().copied().collect();
        assert_eq!(refused, ["$changeStream", "$text"]);
        assert_eq!(traffic.by(&key(&["r"])), 0);
    }
}

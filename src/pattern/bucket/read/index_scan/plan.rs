//! Selects the indexes for a sorted query.

use bson::DateTime;
use bson::oid::ObjectId;
use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};

use super::bounds::{Place, ScanStart};
use super::key_order::KeyOrderScan;
use super::sort_key::SortField;
use super::time_bounds::BoundsScan;
use super::{Equality, IndexPart, IndexScan, MAX_ITEMS, ScannedIndex};
use crate::command::document::{as_flag, as_whole_number, put, single};
use crate::command::find::Find;
use crate::pattern::bucket::item_filter::{BoundSide, ItemFilter, RangeBound, is_plain_path};
use crate::pattern::bucket::item_index::{KeyTimeIndex, StoredIndex};
use crate::pattern::bucket::projection::Projection;
use crate::pattern::bucket::value_order::{is_simple, rank};
use crate::pattern::shapes::{BucketShape, ItemIds};

/// The most keys whose pages mongod merges by an index. (It merges up to 200 scans:
/// `internalQueryMaxScansToExplode`.)
const MAX_KEYS: usize = 100;

/// The most fields of a sort. An index has no more.
const MAX_SORT_FIELDS: usize = 32;

/// The most scans that are tried to select one.
const MAX_SCANS: usize = 4;

/// A sorted query, before its index is selected.
#[derive(Clone, Debug)]
pub struct SortedQuery<'a> {
    pub(super) filter: ItemFilter<'a>,
    pub(super) projection: Projection,
    /// The sort without key fields that the filter sets equal to a value.
    pub(super) sort: Vec<SortField<'a>>,
    pub(super) skip: u64,
    pub(super) limit: u64,
}

impl<'a> SortedQuery<'a> {
    /// Recognises such a query. `None` if mongod must filter, sort or project, if the result is not limited,
    /// and if the index on `_id` leads to fewer pages.
    #[must_use]
    pub fn of(shape: &BucketShape, find: &Find<'a>) -> Option<Self> {
        let wanted = find.skip.saturating_add(find.limit);
        let is_short = find.limit > 0 && wanted <= MAX_ITEMS;
        if !is_short || find.collation.is_some() || find.let_variables.is_some() {
            return None;
        }
        let filter = ItemFilter::parse(find.filter)?;
        let mut sort = sort_fields(find.sort?)?;
        let has_ids = shape.item_ids() != ItemIds::Dropped;
        if !has_ids && (filter.mentions("_id") || sort.iter().any(|field| root(field.path) == "_id")) {
            return None;
        }
        if shape.item_ids().are_indexed() && selects_few_ids(&filter, wanted) {
            return None;
        }
        sort.retain(|field| !(is_key(shape, field.path) && filter.equality(field.path).is_some()));
        (!sort.is_empty()).then_some(())?;
        Some(Self {
            filter,
            projection: Projection::parse(find.projection)?,
            sort,
            skip: find.skip,
            limit: find.limit,
        })
    }

    /// The scans of the indexes that have the order and answer the most conditions. Several if they
    /// answer equally many. Empty if no index has the order.
    #[must_use]
    pub fn scans(&'a self, indexes: &'a [StoredIndex]) -> Vec<IndexScan<'a>> {
        let mut scans: Vec<IndexScan<'a>> = indexes.iter().flat_map(|index| self.by(index)).collect();
        let most = scans.iter().map(|scan| scan.equalities.len()).max();
        scans.retain(|scan| Some(scan.equalities.len()) == most);
        scans.truncate(MAX_SCANS);
        scans
    }

    /// The scan of the pages of some keys in the order of a time bound. `None` if the filter does not select
    /// the keys by their values, or the sort is not by time first.
    #[must_use]
    pub fn scan_of_time_bounds(&'a self, shape: &BucketShape) -> Option<IndexScan<'a>> {
        let sort = self.sort.first()?;
        if shape.time() != Some(sort.path) {
            return None;
        }
        let ScanRange { begin, end } = self.range(sort)?;
        let bounds = match self.one_key(shape) {
            Some(key) => BoundsScan::of_key(key, sort.is_ascending, begin.map(|begin| begin.value))?,
            None if begin.is_none() => BoundsScan::of_keys(self.listed_keys(shape)?, sort.is_ascending),
            // The pages that begin before a time and end behind it are not together in the index.
            None => return None,
        };
        Some(IndexScan {
            query: self,
            index: ScannedIndex::TimeBounds(bounds),
            equalities: Vec::new(),
            part: IndexPart::Whole,
            begin,
            end,
        })
    }

    /// The scan of an index on the key and the page number, for a sort by key and time. `None` if no index
    /// has the order.
    #[must_use]
    pub fn scan_of_keys(&'a self, indexes: &'a [KeyTimeIndex]) -> Option<IndexScan<'a>> {
        let mut scans = indexes
            .iter()
            .filter_map(|index| KeyOrderScan::of(index, &self.filter, &self.sort));
        Some(IndexScan {
            query: self,
            index: ScannedIndex::Keys(scans.next()?),
            equalities: Vec::new(),
            part: IndexPart::Whole,
            // mongod evaluates the conditions on keys.
            begin: None,
            end: None,
        })
    }

    /// The number of items that are skipped or returned.
    pub(super) fn wanted(&self) -> u64 {
        self.skip.saturating_add(self.limit)
    }

    /// The condition on the pages of the key that the filter demands, if it does.
    fn one_key(&self, shape: &BucketShape) -> Option<RawDocumentBuf> {
        let mut key = RawDocumentBuf::new();
        for field in shape.key() {
            let value = self.filter.equality(field).filter(|value| is_simple(*value))?;
            put(&mut key, field, value);
        }
        Some(key)
    }

    /// The condition on the pages of the keys that the filter lists. `None` if mongod does not merge their
    /// scans.
    fn listed_keys(&self, shape: &BucketShape) -> Option<RawDocumentBuf> {
        let [key] = shape.key() else { return None };
        let values = self.filter.list(key)?;
        if values.len() > MAX_KEYS || !values.iter().all(|value| is_simple(*value)) {
            return None;
        }
        let values: RawArrayBuf = values.iter().copied().collect();
        Some(single(key, single("$in", &values)))
    }

    /// The scans of an index, the cheapest first. Empty where it has not the order.
    fn by(&'a self, index: &'a StoredIndex) -> Vec<IndexScan<'a>> {
        let (Some(part), Some(first)) = (self.part_of(index), self.sort.first()) else {
            return Vec::new();
        };
        let Some(ScanRange { begin, end }) = self.range(first) else {
            return Vec::new();
        };
        // A range has values of one type. Values of other types, or documents without the field, come before
        // all of them.
        let of_type = end
            .filter(|_| begin.is_none())
            .and_then(|end| first_of_type(end, first.is_ascending))
            .map(RangeBound::from);
        let begins = [Some(begin), of_type.map(Some)];
        let scans = begins.into_iter().flatten().filter_map(|begin| {
            let place = Place {
                index,
                equalities: &part.equalities,
                begin,
            };
            let ScanStart { part: read, begin } = place.start(part.is_forward)?;
            Some(IndexScan {
                query: self,
                index: ScannedIndex::Items(index),
                part: read,
                begin,
                end,
                equalities: part.equalities.clone(),
            })
        });
        scans.collect()
    }

    /// Where a scan by a sort field begins and ends. `None` for listed values without one range.
    fn range(&self, field: &SortField<'_>) -> Option<ScanRange<'a>> {
        let ends = field.ends();
        let Some(values) = self.filter.list(field.path) else {
            return Some(ScanRange {
                begin: self.filter.bound(field.path, ends.begin),
                end: self.filter.bound(field.path, ends.end).map(|end| end.value),
            });
        };
        let (least, greatest) = (*values.first()?, *values.last()?);
        // A missing field equals `null`.
        if rank(least)? != rank(greatest)? || least == RawBsonRef::Null {
            return None;
        }
        let value = |side: BoundSide| Some(if side == BoundSide::Lower { least } else { greatest });
        Some(ScanRange {
            begin: value(ends.begin).map(RangeBound::from),
            end: value(ends.end),
        })
    }

    /// Whether the filter lists values of the first sort field.
    pub(super) fn lists_sorted_values(&self) -> bool {
        let first = self.sort.first();
        first.is_some_and(|field| self.filter.list(field.path).is_some())
    }

    /// The part of an index that has the order. `None` where there is none.
    fn part_of(&self, index: &'a StoredIndex) -> Option<OrderedPart<'a>> {
        let fields = index.fields();
        let begins_sort = |path: &str| self.sort.first().is_some_and(|field| field.path == path);
        let equalities: Vec<Equality<'a>> = fields
            .iter()
            .take_while(|field| !begins_sort(&field.path))
            .map(|field| {
                let value = self.filter.equality(&field.path)?;
                let path = field.path.as_str();
                Some(Equality { path, value })
            })
            .collect::<Option<_>>()?;
        let ordered = fields.get(equalities.len()..equalities.len().checked_add(self.sort.len())?)?;
        let mut is_forward = None;
        for (stored, wanted) in ordered.iter().zip(&self.sort) {
            let forward = stored.is_ascending == wanted.is_ascending;
            if stored.path != wanted.path || *is_forward.get_or_insert(forward) != forward {
                return None;
            }
        }
        Some(OrderedPart {
            equalities,
            is_forward: is_forward?,
        })
    }
}

/// The values at which a scan begins and ends, of the first sort field.
struct ScanRange<'a> {
    begin: Option<RangeBound<'a>>,
    end: Option<RawBsonRef<'a>>,
}

/// The sides of a range at which a scan begins and ends.
struct ScanEnds {
    begin: BoundSide,
    end: BoundSide,
}

impl SortField<'_> {
    fn ends(&self) -> ScanEnds {
        if self.is_ascending {
            ScanEnds {
                begin: BoundSide::Lower,
                end: BoundSide::Upper,
            }
        } else {
            ScanEnds {
                begin: BoundSide::Upper,
                end: BoundSide::Lower,
            }
        }
    }
}

/// The part of an index between equalities, in which entries have the order of the sort.
struct OrderedPart<'a> {
    equalities: Vec<Equality<'a>>,
    is_forward: bool,
}

/// The first value of the type of another one, in this order. `None` for a type whose ranges are not read so,
/// and for the greatest text, which does not exist.
fn first_of_type(value: RawBsonRef<'_>, is_ascending: bool) -> Option<RawBsonRef<'static>> {
    let [least, greatest] = match value {
        RawBsonRef::Int32(_) | RawBsonRef::Int64(_) | RawBsonRef::Double(_) => {
            [f64::NEG_INFINITY, f64::INFINITY].map(RawBsonRef::Double)
        }
        RawBsonRef::String(_) => return is_ascending.then_some(RawBsonRef::String("")),
        RawBsonRef::DateTime(_) => [DateTime::MIN, DateTime::MAX].map(RawBsonRef::DateTime),
        RawBsonRef::ObjectId(_) => [[0; 12], [u8::MAX; 12]]
            .map(ObjectId::from_bytes)
            .map(RawBsonRef::ObjectId),
        _ => return None,
    };
    Some(if is_ascending { least } else { greatest })
}

/// Whether a filter selects items by their `_id`s, and not more than are wanted.
fn selects_few_ids(filter: &ItemFilter<'_>, wanted: u64) -> bool {
    let listed = filter.list("_id").and_then(|ids| u64::try_from(ids.len()).ok());
    filter.equality("_id").is_some() || listed.is_some_and(|count| count <= wanted)
}

fn sort_fields(sort: &RawDocument) -> Option<Vec<SortField<'_>>> {
    let mut fields: Vec<SortField<'_>> = Vec::new();
    for field in sort {
        let (path, direction) = field.ok()?;
        let path = path.as_str();
        let is_new = fields.iter().all(|field| field.path != path);
        if fields.len() >= MAX_SORT_FIELDS || !is_new || !is_plain_path(path) || has_number(path) {
            return None;
        }
        let is_ascending = direction_of(direction)?;
        fields.push(SortField { path, is_ascending });
    }
    (!fields.is_empty()).then_some(fields)
}

fn direction_of(value: RawBsonRef<'_>) -> Option<bool> {
    as_flag(value)?;
    match as_whole_number(value)? {
        1 => Some(true),
        -1 => Some(false),
        _ => None,
    }
}

/// Whether a part of a path is a number, which may be a position in an array.
pub(super) fn has_number(path: &str) -> bool {
    path.split('.')
        .any(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
}

fn root(path: &str) -> &str {
    path.split('.').next().unwrap_or(path)
}

pub(super) fn is_key(shape: &BucketShape, path: &str) -> bool {
    shape.key().iter().any(|field| field == path)
}

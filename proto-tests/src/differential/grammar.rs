//! The grammar: every site at which the generator selects one of several alternatives, its productions.
//!
//! Each site is an enumeration, and the generator matches on the selected variant. So an alternative that is
//! listed here and not generated does not compile. [`super::coverage`] counts the productions, alone and in
//! pairs.
//!
//! Alternatives that are examples of one kind (mistakes, hints, expressions) are lists in the generator. See
//! [`Generator::example`](super::Generator::example).

mod reads;
mod values;
mod writes;

use super::coverage::Production;

pub(super) use self::reads::*;
pub(super) use self::values::*;
pub(super) use self::writes::*;

/// A place in the grammar with several alternatives.
#[derive(Debug)]
pub struct Site {
    /// Unique.
    pub name: &'static str,
    /// Their names and weights.
    pub alternatives: &'static [(&'static str, u32)],
}

impl Site {
    /// The alternatives, each with the site's name.
    pub fn productions(&self) -> impl Iterator<Item = Production> + Clone {
        self.alternatives.iter().map(|(name, _)| (self.name, *name))
    }
}

/// The alternatives of a site.
pub(super) trait Choice: Copy + 'static {
    /// Their names and weights, in the order of [`Self::ALL`].
    const SITE: &'static Site;
    /// All of them.
    const ALL: &'static [Self];
}

/// Sites of which one operation, or a part of one, takes an alternative each.
#[derive(Debug)]
pub struct Group {
    /// Unique.
    pub name: &'static str,
    /// The sites whose alternatives form pairs.
    pub sites: &'static [&'static Site],
}

/// Declares sites: the name that reports use, and alternatives with their weights.
macro_rules! sites {
    ($($(#[$doc:meta])* $text:literal $name:ident { $($alternative:ident $weight:literal),+ $(,)? })+) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq)]
            pub(in crate::differential) enum $name { $($alternative),+ }

            impl $crate::differential::grammar::Choice for $name {
                const SITE: &'static $crate::differential::grammar::Site = &$crate::differential::grammar::Site {
                    name: $text,
                    alternatives: &[$((stringify!($alternative), $weight)),+],
                };
                const ALL: &'static [Self] = &[$(Self::$alternative),+];
            }
        )+

        /// All sites that are declared here.
        pub(super) const SITES: &[&$crate::differential::grammar::Site] =
            &[$(<$name as $crate::differential::grammar::Choice>::SITE),+];
    };
}
use sites as declare_sites;

/// All sites.
pub fn sites() -> impl Iterator<Item = &'static Site> {
    [reads::SITES, values::SITES, writes::SITES]
        .into_iter()
        .flatten()
        .copied()
}

/// Declares groups of sites.
macro_rules! groups {
    ($($(#[$doc:meta])* $name:ident $text:literal [$($site:ident),+ $(,)?])+) => {
        $(
            $(#[$doc])*
            pub(super) static $name: Group = Group { name: $text, sites: &[$($site::SITE),+] };
        )+

        /// All groups.
        pub static GROUPS: &[&Group] = &[$(&$name),+];
    };
}

groups! {
    /// Options of a `find`.
    FIND "find" [
        FilterForm, Let, Sort, Projection, Skip, Limit, BatchSize, SingleBatch, Collation, Hint, Harmless,
    ]

    /// Options of a `count`.
    COUNT "count" [FilterForm, Skip, CountLimit, Collation, Hint, Harmless]

    /// Options of an `aggregate`, and its last stage.
    AGGREGATE "aggregate" [FirstStage, FilterForm, Summary, BatchSize, Hint, Harmless]

    /// Options of a `distinct`.
    DISTINCT "distinct" [DistinctPath, FilterForm, Collation, Harmless]

    /// A condition of a filter.
    CONDITION "condition" [FieldPlace, ValueForm, Operator]

    /// Options of an `insert`.
    INSERT "insert" [InsertCount, InsertForm, Ordered, Sent]

    /// A statement of an `update`.
    UPDATE "update" [UpdateForm, Target, ChangeForm, Multi, Hint, Collation]

    /// An operator of an update, and where it changes something.
    UPDATE_OPERATOR "update operator" [PathPlace, UpdateOperator]

    /// A statement of a `delete`.
    DELETE "delete" [DeleteForm, DeleteLimit, Collation, Hint]

    /// Options of a `findAndModify`.
    FIND_AND_MODIFY "findAndModify" [FindAndModifyForm, Target, ChangeForm, New, Fields, Hint, Let, Harmless]

    /// A command on an empty collection.
    EMPTY "empty" [Emptiness, OnEmpty]

    /// An update that fails in the middle.
    FAILING "failing update" [Failing, Ordered]

    /// The newest or oldest item of each key.
    NEWEST "newest" [NewestForm, NewestSort, NewestDirection, NewestBy, NewestBefore, BatchSize]

    /// The newest or oldest items of keys, by a `$lookup`.
    NEWEST_LOOKUP "newest lookup" [
        NewestLookupForm, NewestLookupSource, NewestLookupKey, NewestLookupBefore, NewestLookupSort, NewestDirection,
        NewestLookupSkip, NewestLookupLimit, NewestLookupPlace,
    ]

    /// A sorted read of a collection with an index.
    SORTED "sorted" [
        SortedIndex, SortedTies, SortedValues, SortedSort, SortDirection, SortedRange, SortedResidual, SortedRead, SortedWrite,
        SortedInserts, SortedKeys,
    ]

    /// A read of one key in a range of time.
    RANGE "range" [RangeEnds, RangeSort, RangeLimit, RangeCommand, RangeInserts]

    /// Writes on a collection with a unique index.
    UNIQUE "unique" [UniqueIndex, UniqueCreation]

    /// A query by distance or by area.
    NEAR "near" [NearForm, NearPoint, NearBounds, NearRest, NearEnd]

    /// Writes on a collection with a validator.
    VALIDATOR "validator" [ValidatorForm, ValidatorCreation, ValidatorOption]

    /// A `$merge`.
    MERGE "merge" [
        MergeSource, MergeInto, MergeOn, MergeIndex, MergeMatched, MergeNotMatched, MergeDocuments, MergeOption,
    ]

    /// A change stream.
    STREAM "stream" [StreamScope, StreamDocument, StreamBefore, StreamStages, StreamBatch, StreamEnd]
}

/// Productions that do not come together, and why.
const NEVER: &[(Production, &[Production], &str)] = &[
    (
        ("newestLookup.source", "Shaped"),
        &[("newestLookup.key", "*")],
        "the key is that of an item",
    ),
    (
        ("update", "FailingMany"),
        &[
            ("target", "*"),
            ("change", "*"),
            ("multi", "*"),
            ("hint", "*"),
            ("collation", "*"),
        ],
        "it has a filter and a change of its own",
    ),
    (
        ("update", "Mistake"),
        &[
            ("target", "*"),
            ("change", "*"),
            ("multi", "*"),
            ("hint", "*"),
            ("collation", "*"),
        ],
        "one mistake, and nothing else",
    ),
    (
        ("update", "Many"),
        &[("target", "*"), ("change", "*"), ("multi", "*")],
        "it changes many by what fails on none",
    ),
    (("update", "Upsert"), &[("target", "*")], "it has a filter of its own"),
    (
        ("delete", "Mistake"),
        &[("delete.limit", "*"), ("collation", "*"), ("hint", "*")],
        "one mistake, and nothing else",
    ),
    (
        ("delete.limit", "One"),
        &[("collation", "*"), ("delete", "Some"), ("delete", "OneKey")],
        "which of several is deleted is not defined",
    ),
    (
        ("findAndModify", "Mistake"),
        &[
            ("target", "*"),
            ("change", "*"),
            ("new", "*"),
            ("fields", "*"),
            ("hint", "*"),
            ("let", "*"),
            ("harmless", "*"),
        ],
        "one mistake, and nothing else",
    ),
    (
        ("findAndModify", "RemoveOne"),
        &[("change", "*"), ("new", "Yes")],
        "it removes",
    ),
    (
        ("findAndModify", "RemoveFirst"),
        &[("change", "*"), ("target", "*"), ("new", "Yes")],
        "it removes",
    ),
    (
        ("findAndModify", "ChangeFirst"),
        &[("change", "*"), ("target", "*")],
        "it changes one of many by what fails on none",
    ),
    (
        ("findAndModify", "Upsert"),
        &[("target", "*")],
        "it has a filter of its own",
    ),
    (
        ("insert", "None"),
        &[("insert.form", "OneKey"), ("insert.form", "Mistake")],
        "there is no document",
    ),
    (("pipeline.first", "Other"), &[("filter", "*")], "there is no filter"),
    (
        ("filter.operator", "ElementMatch"),
        &[("filter.field", "Empty")],
        "mongod 6.0.5 crashes",
    ),
    (
        ("filter.operator", "AllElements"),
        &[("filter.field", "Empty")],
        "mongod 6.0.5 crashes",
    ),
];

/// Whether two productions never come together.
pub(super) fn never_together([one, other]: &[Production; 2]) -> bool {
    let is = |pattern: &Production, production: &Production| {
        pattern.0 == production.0 && (pattern.1 == "*" || pattern.1 == production.1)
    };
    NEVER.iter().any(|(never, with, _)| {
        let meets = |first: &Production, second: &Production| {
            is(never, first) && with.iter().any(|pattern| is(pattern, second))
        };
        meets(one, other) || meets(other, one)
    })
}

//! Productions for filters, sorts, projections, pipelines and read commands.

use super::declare_sites;

declare_sites! {
    /// What a filter is about.
    "filter" FilterForm { Everything 4, OneKey 8, OneKeyInTime 8, OneKeyAndMore 2, InTime 2, ById 2, ByIdAndMore 1, ByIds 1, Any 18 }

    /// The clauses of a filter of any kind.
    "filter.clause" Clause { Connective 20, Expression 10, Comment 3, Refused 1, Broken 1, Code 2, Condition 65 }

    /// What joins clauses.
    "filter.connective" Connective { And 1, Or 1, Nor 1 }

    /// What a condition compares with.
    "filter.operator" Operator {
        Equal 16, Eq 4, Ne 8, Gt 4, Gte 4, Lt 4, Lte 4, Range 4, In 6, Nin 6, InPatterns 1, Exists 8, Type 4, Types 1, Size 4,
        All 3, AllElements 1, ElementMatch 4, Not 4, NotPattern 1, Regex 3, RegexWithOptions 1, BitsAllSet 1, BitsAnySet 1,
        BitsAllClear 1, BitsAnyClear 1, Mod 4, GeoWithin 1, GeoIntersects 1,
    }

    /// Where the field of a condition is.
    "filter.field" FieldPlace {
        Key 12, Time 8, Id 4, Serial 3, Top 16, Nested 12, Position 12, ThroughArray 6, WithinKey 3, LikeABucket 6, Absent 3,
        NestedDollar 1, Empty 3,
    }

    /// How an answer is sorted.
    "sort" Sort { None 8, Total 6, Time 6, TimeAndTotal 2, Key 4, KeyAndTime 2, KeyAndTotal 2, Natural 1 }

    /// Which fields are shown.
    "projection" Projection { None 13, Plain 5, FindOnly 2 }

    /// What a projection without forms of its own does.
    "projection.plain" PlainProjection {
        Two 5, WithoutId 2, Without 3, Id 1, Computed 2, NestedDocument 1, NestedOut 1, Swapped 1, Nothing 1, Broken 1, LikeABucket 2,
        Literal 1,
    }

    /// Forms of a projection that only `find` has.
    "projection.form" ProjectionForm { Slice 4, ElementMatch 2, Positional 3, Meta 1 }

    /// Whether a command is as it should be.
    "find" FindForm { Ordinary 58, Mistake 2, Refused 1 }

    /// How many are left out.
    "skip" Skip { None 14, Zero 1, Few 4, Beyond 1 }

    /// How many are answered.
    "limit" Limit { None 10, Zero 1, One 2, Few 2, Many 2, Long 1, Double 1, Fraction 1 }

    /// How many a batch has.
    "batchSize" BatchSize { None 12, Zero 1, One 1, Few 3, Many 2 }

    /// Whether there is one batch.
    "singleBatch" SingleBatch { None 18, Yes 1, No 1 }

    /// How strings are compared.
    "collation" Collation { None 57, Insensitive 3, Numeric 1, Simple 1 }

    /// Which index is to be used.
    "hint" Hint { None 57, Id 1, IdByKey 1, Natural 1, NaturalBackwards 1, Empty 1 }

    /// Variables.
    "let" Let { None 40, Unused 1, Used 1 }

    /// An option that changes no answer.
    "harmless" Harmless { None 54, Some 6 }

    /// How a cursor ends.
    "cursor" CursorEnd { Read 85, Killed 15 }

    /// A `count`.
    "count" CountForm { Ordinary 28, NullQuery 1, Mistake 2 }

    /// How much is counted.
    "count.limit" CountLimit { None 15, Zero 1, One 1, Some 1, Negative 1, Long 1, Double 1 }

    /// A `distinct`.
    "distinct" DistinctForm { Ordinary 17, Mistake 2 }

    /// The path of a `distinct`.
    "distinct.path" DistinctPath { Field 15, Odd 5 }

    /// An `aggregate`.
    "aggregate" AggregateForm { Ordinary 37, Mistake 2 }

    /// The first stage.
    "pipeline.first" FirstStage { Match 14, Other 6 }

    /// A stage that gives a document for a document, or none.
    "stage" Stage {
        Sort 6, Limit 2, Skip 2, Match 2, AddFields 2, Set 2, Unset 2, Project 2, Expression 6, Redact 1, ReplaceWith 1,
    }

    /// A stage that puts documents together or takes them apart.
    "summary" Summary {
        None 20, Group 4, GroupByExpression 15, GroupAll 2, GroupPush 2, Accumulators 2, SortByCount 2, Count 2, Bucket 2, BucketAuto 1, Facet 2, Unwind 2,
        UnwindNested 1, ReplaceRoot 2, SetWindowFields 1, Densify 1, Fill 1, Sample 1,
    }

    /// A query by distance or by area.
    "near" NearForm { Near 3, NearSphere 3, GeoNear 3, GeoNearSphere 3, Within 1, Intersects 1 }

    /// The point from which distances are measured.
    "near.point" NearPoint { Pair 3, Fields 1, GeoJson 4 }

    /// The bounds of the distance.
    "near.bounds" NearBounds { None 3, Most 3, Least 1, Both 2 }

    /// The other conditions.
    "near.rest" NearRest { Nothing 4, Key 2, Field 2, Code 1 }

    /// The `limit`, `skip`, `sort` or projection.
    "near.end" NearEnd { Nothing 3, Limit 3, SkipAndLimit 2, Sort 1, Projection 1 }

    /// How a `$lookup` of the newest or oldest items names the key.
    "newestLookup" NewestLookupForm { Fields 4, Variable 3, VariableFirst 1, VariableAndMore 1, VariableInAnd 1 }

    /// The documents whose keys are looked up.
    "newestLookup.source" NewestLookupSource { Documents 4, Shaped 1 }

    /// The key that is looked up for a document.
    "newestLookup.key" NewestLookupKey { Known 10, Null 1, Missing 1, Other 1, Array 5, ArrayOfDocuments 2 }

    /// What comes before its sort.
    "newestLookup.before" NewestLookupBefore { Nothing 7, Match 1 }

    /// The sort.
    "newestLookup.sort" NewestLookupSort { Time 7, TimeAndNumber 1 }

    /// How many items are skipped.
    "newestLookup.skip" NewestLookupSkip { None 3, Few 1 }

    /// How many items are returned.
    "newestLookup.limit" NewestLookupLimit { None 1, One 3, Few 4, Many 1, Double 1 }

    /// Where the `$lookup` is.
    "newestLookup.place" NewestLookupPlace { Pipeline 8, Unwound 1, Facet 1, Nested 2, Collation 1 }

    /// What selects the newest or oldest item of each key.
    "newest" NewestForm { First 3, Last 3, Top 1, Bottom 1, Max 1, Min 1, FirstAndMax 1, FirstAndMin 1 }

    /// The sort before it.
    "newest.sort" NewestSort { Time 2, KeyAndTime 2, TimeAndKey 1, TimeAndNumber 1 }

    /// The direction of the time in the sort.
    "newest.direction" NewestDirection { Ascending 1, Descending 1 }

    /// What the items are grouped by.
    "newest.by" NewestBy { Key 6, KeyInDocument 1, OtherField 1 }

    /// What comes before.
    "newest.before" NewestBefore { Nothing 6, MatchKey 1, MatchAll 1 }

    /// Which index a sorted read has.
    "sorted.index" SortedIndex {
        Rank 2, Time 3, StatusAndTime 3, StatusAndRank 2, KeyAndTime 2, WholeKeyAndTime 3, KeyAndRank 2, KeyStatusAndTime 2, Id 2,
        None 2,
    }

    /// Whether documents are equal in all fields of the index.
    "sorted.ties" SortedTies { Some 1, None 1 }

    /// The order in which documents are inserted.
    "sorted.inserts" SortedInserts { Shuffled 2, ByTime 1 }

    /// Which keys a sorted read selects.
    "sorted.keys" SortedKeys { Any 3, One 1, List 1 }

    /// A write behind the inserts.
    "sorted.write" SortedWrite { DeleteOne 1, DeleteKey 1, DeleteMany 1, SetRank 1, SetStatus 1 }

    /// Which values the sort field has.
    "sorted.values" SortedValues { Plain 4, Arrays 1, Mixed 1 }

    /// Which fields of the index are sorted by.
    "sorted.sort" SortedSort { AllFields 2, BehindOne 2, BehindAll 3 }

    /// In which direction, against that of the index.
    "sorted.way" SortDirection { Forward 1, Backward 1 }

    /// Bounds of the first sort field.
    "sorted.range" SortedRange { None 3, Begin 2, InclusiveBegin 1, End 1, Both 1, Equal 1, Ties 2 }

    /// A condition that the index does not answer.
    "sorted.residual" SortedResidual {
        None 8, Range 1, In 1, NotEqual 1, NotIn 1, Exists 1, Not 1, Nor 1, And 1, Modulo 1, Expression 1,
    }

    /// The command of a read of an indexed collection.
    "sorted.read" SortedRead { Find 3, Aggregate 1, Distinct 1 }

    /// A pipeline that reaches another collection.
    "lookup" LookupForm { Ordinary 16, Fill 4, Mistake 2 }

    /// A stage that reaches another collection.
    "reaching" Reaching { Equality 8, Pipeline 4, Union 3, Graph 3, Facet 2 }

    /// Whence and whither.
    "reaching.from" Source { Plain 1, Shaped 2, AnotherShaped 2, Missing 1 }
}

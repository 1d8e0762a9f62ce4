//! Productions for updates and write commands.

use super::declare_sites;

declare_sites! {
    /// The watched collections of a change stream.
    "stream.scope" StreamScope { Collection 6, Database 2, Cluster 1 }

    /// Its `fullDocument`.
    "stream.fullDocument" StreamDocument { Absent 3, Default 1, Lookup 3, WhenAvailable 3, Required 1 }

    /// Its `fullDocumentBeforeChange`.
    "stream.fullDocumentBeforeChange" StreamBefore { Absent 3, Off 1, WhenAvailable 3, Required 1 }

    /// The stages behind it.
    "stream.stages" StreamStages { None 5, Match 1, MatchDocument 1, Project 1, Set 1 }

    /// Its batches.
    "stream.batchSize" StreamBatch { Default 2, One 1, Two 1 }

    /// The writes while the stream is open.
    "stream.write" StreamWrite { Insert 3, Update 4, Delete 1, FindAndModify 2, Transaction 2 }

    /// Whether it is opened again, and how.
    "stream.resume" StreamResume { Continue 3, ResumeAfter 3, StartAfter 2, StartAtTime 1 }

    /// How it ends.
    "stream.end" StreamEnd { Kill 2, Drop 1 }

    /// How many documents an `insert` has.
    "insert" InsertCount { One 8, Few 7, Page 4, Pages 1, None 1 }

    /// Whether a document of an `insert` is refused in any case.
    "insert.form" InsertForm { Ordinary 57, OneKey 2, Mistake 2 }

    /// Whether statements end with the first that fails.
    "ordered" Ordered { None 2, Yes 1, No 2 }

    /// How often a write is sent as one and the same retryable write.
    "sent" Sent { Plainly 4, Once 2, Twice 2, Thrice 2 }

    /// Which document is changed.
    "target" Target { Number 5, Place 2, OneKey 1, ById 2, Any 2 }

    /// What becomes of it.
    "change" ChangeForm { Operators 4, Sure 4, Replacement 2, Stages 2, Dollar 1 }

    /// The `_id` of a replacement.
    "update.replacementId" ReplacementId { Absent 18, Any 2, Same 1, AnotherType 2 }

    /// What changes a document, by operators.
    "update.operator" UpdateOperator {
        Set 20, Unset 8, Inc 4, Mul 4, Min 2, Max 2, Rename 6, Push 4, PushPosition 1, PushSlice 1, PushSort 1, PushSortSlice 1,
        AddToSet 3, AddEachToSet 3, Pull 2, PullCondition 2, PullIn 2, PullAll 2, Pop 4, Bit 2, CurrentDate 1, CurrentTimestamp 1,
        SetOnInsert 2, Unknown 1,
    }

    /// Where it changes one.
    "update.path" PathPlace {
        Key 4, Time 4, Id 2, Top 24, Nested 12, NewNested 4, Position 8, ThroughArray 3, AllElements 6, SomeElements 6,
        Positional 3, WithinKey 2, Absent 4, Empty 2, Dollar 1, NestedDollar 1,
    }

    /// An update of a field whose name begins with `$`.
    "update.dollar" DollarChange { SetTop 1, IncTop 1, SetReference 1, SetNested 1, UnsetTop 1, ReplaceTop 1, ReplaceNested 1, Stage 1 }

    /// A stage of an update.
    "update.stage" UpdateStage {
        Literal 3, Computed 1, AddFields 1, Unset 1, Project 1, ReplaceWith 1, ReplaceRoot 1, Swap 1, Remove 1, Failing 1, TypeOfKey 1,
        Place 1, EmptyTimestamp 1, Forbidden 1, Variable 1,
    }

    /// An update that fails on no document that satisfies its needs.
    "update.sure" SureChange {
        Set 4, Unset 2, MinMax 1, Rename 2, Inc 2, Mul 1, Push 1, AddToSet 1, Pull 1, Pop 1, AllElements 1, Nested 1, Literal 1, Stages 1,
        ReplaceWith 1, Place 2, SomeElements 1,
    }

    /// A statement of an `update`.
    "update" UpdateForm { One 24, Many 8, FailingMany 2, Upsert 8, Mistake 1 }

    /// Whether a statement is of many, where it changes one.
    "multi" Multi { None 36, Yes 4 }

    /// What an upsert looks for.
    "upsert" UpsertFilter { Given 3, Number 2, OneKey 3, Field 1, Any 1 }

    /// The statements of a `delete`.
    "delete.statements" DeleteStatements { Any 6, ById 1 }

    /// A statement of a `delete`.
    "delete" DeleteForm { Some 8, OneKey 2, ById 2, One 27, Mistake 1 }

    /// How many a statement deletes.
    "delete.limit" DeleteLimit { One 20, All 9, NoNumber 1 }

    /// A `findAndModify`.
    "findAndModify" FindAndModifyForm { RemoveOne 12, RemoveFirst 4, ChangeFirst 6, Upsert 6, Change 12, Mistake 1 }

    /// What it answers.
    "new" New { None 5, Yes 4, No 1 }

    /// Which fields it answers.
    "fields" Fields { None 7, Some 3 }

    /// What is done with indexes.
    "indexes" IndexForm { Create 4, Drop 3, List 3 }

    /// What is done with the collection as a whole.
    "collection" CollectionForm { Create 6, CreateWithOptions 4, Drop 3 }

    /// The state of an empty collection.
    "empty" Emptiness { NeverCreated 1, Created 1, CreatedWithoutProxy 1, Dropped 1, Emptied 1, DatabaseDropped 1 }

    /// The command on an empty collection.
    "empty.command" OnEmpty {
        Find 2, Count 1, Aggregate 1, Distinct 1, Insert 1, Update 2, Delete 1, DeleteEverything 2, UpdateEverything 1, FindAndModify 2,
        Indexes 1,
    }

    /// A step of a transaction.
    "transaction" StepForm { Update 6, Delete 3, FindAndModify 6, Insert 8, Find 6, FailingFind 1, Count 4, Forbidden 1 }

    /// How a transaction ends.
    "transaction.end" TransactionEnd { Commit 2, Abort 1 }

    /// A scene: a few separate documents, and one command that reaches a limit or fails on one of them.
    "scene" SceneForm { FailingUpdate 3, TooBig 1, Dollar 2, Range 3, Twice 1, Repeated 2 }

    /// How many ends a range of time has.
    "scene.range" RangeEnds { Both 1, First 1, Last 1, Equal 1 }

    /// The sort of a key's documents in a time range.
    "scene.sort" RangeSort { None 1, Key 1, KeyBackwards 1, KeyTwice 1, Time 1, TimeBackwards 1, KeyAndTime 1, TimeAndKey 1 }

    /// How many of them are answered.
    "scene.limit" RangeLimit { None 1, One 1, Some 1 }

    /// The command that selects them.
    "scene.read" RangeCommand { Find 1, FindByOther 1, Aggregate 1, Group 1, Count 1, Distinct 1, Update 1, Delete 1 }

    /// The order in which the documents are inserted.
    "scene.inserts" RangeInserts { InOrder 3, Late 1 }

    /// The unique index of a collection.
    "unique.index" UniqueIndex {
        Field 3, Backward 1, Nested 2, Two 2, KeyAndField 2, FieldAndKey 1, KeyAndTime 1, Time 1, Key 1,
    }

    /// When it is created.
    "unique.creation" UniqueCreation { Early 3, Late 1 }

    /// A value that other documents may have.
    "unique.value" UniqueValue {
        Number 6, Double 2, Long 1, Decimal 1, Text 1, Missing 2, Null 1, Undefined 1, Array 2, EmptyArray 1, ArrayOfArrays 1, Document 1,
        Regex 1,
    }

    /// A write that may collide.
    "unique.write" UniqueWrite {
        InsertOne 5, InsertMany 8, ThroughArray 1, Set 4, SetNested 3, SetOther 2, Stages 2, Replace 2, Move 2, FindAndModify 3, Upsert 2,
        UpsertByValue 2, Delete 2, Drop 1, Create 1, CreateOther 1,
    }

    /// The `_id` of the last of several documents that are inserted: that of another one, or of a stored document, then
    /// with or without the values of the first.
    "unique.id" UniqueId { New 4, Repeated 2, Stored 2, StoredWithValues 6 }

    /// A write on a key that has one nearly full page.
    "oneKey.write" OneKeyWrite {
        InsertNewer 2, InsertSeveral 4, InsertOlder 1, InsertAndDelete 4, DeleteOldest 1, DeleteNewest 1, DeleteLatest 1, Update 1,
    }

    /// The geospatial index of a collection.
    "geo.index" GeoIndex { Flat 3, FlatAndField 1, Sphere 4, SphereAndField 1, KeyAndSphere 1 }

    /// The path of the locations.
    "geo.path" GeoPath { Top 3, Nested 1, InArray 2 }

    /// When the index is created.
    "geo.creation" GeoCreation { Early 3, Late 1 }

    /// A location.
    "geo.location" GeoLocation { Pair 8, Fields 4, Point 12, Line 1, Several 2, Missing 3, Null 1, Empty 1, Invalid 1 }

    /// A write of a location.
    "geo.write" GeoWrite { Insert 3, Update 3, Delete 1 }

    /// The validator of a collection.
    "validator.form" ValidatorForm {
        Field 3, Path 1, Key 2, KeyType 2, KeyAndField 2, KeyOrField 2, Nor 1, Conjunctions 1, OnId 1, Schema 4, SchemaOfKey 2, Closed 2,
        SchemaAlternatives 2, SchemaAndQuery 1, Nested 1, Expression 1,
    }

    /// How the collection gets it.
    "validator.creation" ValidatorCreation { Create 3, Modify 1 }

    /// Its level or action.
    "validator.option" ValidatorOption { None 6, Strict 1, Moderate 2, Off 1, Error 1, Warn 1 }

    /// A write that may not satisfy it, or a change of the validator.
    "validator.write" ValidatorWrite {
        InsertOne 4, InsertMany 8, Set 5, Unset 2, SetNested 1, Stages 2, Replace 2, Move 3, FindAndModify 3, Upsert 2, Bypass 1, Delete 1,
        Modify 3, Remove 1,
    }

    /// A `$merge`.
    "merge" MergeForm { Ordinary 6, Mistake 1 }

    /// What a `$merge` reads.
    "merge.source" MergeSource { Itself 2, Another 2, Plain 3, View 1, Documents 2, Missing 1 }

    /// The form of the collection's name in it.
    "merge.into" MergeInto { Text 2, Name 2, Document 1, WithDatabase 1 }

    /// The fields that identify documents.
    "merge.on" MergeOn { Default 4, Id 2, Unique 3, UniqueList 1, Two 2, WithoutIndex 1 }

    /// The unique index of the collection.
    "merge.index" MergeIndex { None 3, Field 2, Two 1 }

    /// What happens to existing documents.
    "merge.matched" MergeMatched { Default 1, Merge 2, Replace 2, Keep 2, Fail 1, Stages 2, StagesWithLet 2, FailingStages 1 }

    /// What happens without one.
    "merge.notMatched" MergeNotMatched { Default 2, Insert 2, Discard 2, Fail 1 }

    /// Which documents are merged.
    "merge.documents" MergeDocuments {
        New 2, Existing 3, Both 4, Twice 2, WithoutId 1, NullId 1, ArrayId 1, Moved 1, Colliding 2, Path 1, Dollar 1, Timestamp 1,
        Failing 1,
    }

    /// An option of the command.
    "merge.option" MergeOption { None 4, Let 1, Collation 1, Batch 1, Harmless 1, Concern 1 }

    /// Which document of an update of many is the first that fails.
    "scene.failing" Failing { First 1, Middle 3, Last 1 }
}

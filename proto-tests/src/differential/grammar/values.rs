//! Productions for values, documents and keys.

use super::declare_sites;

declare_sites! {
    /// A small value: filters and documents draw from the same few.
    "value" Scalar {
        Int 40, Double 8, Long 8, Half 8, Decimal 8, String 16, Null 8, Boolean 8, Date 8, ObjectId 8,
        NotANumber 1, DecimalNotANumber 1, Infinity 1, NegativeZero 1, Timestamp 1, EmptyTimestamp 1, Regex 1, Undefined 1,
        MinKey 1, MaxKey 1, Symbol 1, Binary 1, Uuid 1, Code 1, CodeWithScope 1, DbPointer 1,
    }

    /// A scalar, or something that holds some.
    "value.form" ValueForm {
        Scalar 60, Array 10, Document 10, ArrayOfDocuments 10, ArrayOfArrays 10, EmptyDocument 1, DocumentWithSymbol 1,
        DocumentWithEmptyTimestamp 1, DollarInside 1, ReferenceInside 1,
    }

    /// Where a document's `_id` comes from.
    "_id" IdForm { None 5, Forbidden 1, Repeated 7, New 87 }

    /// The type of a new `_id`.
    "_id.type" IdType {
        Int 36, Double 12, Long 12, String 12, ObjectId 12, Document 2, Date 2, Fraction 2, Decimal 2, Timestamp 2, Binary 2,
        Reference 2, DocumentWithSymbol 1, DocumentWithoutName 1, EmptyTimestamp 1, NotANumber 1,
    }

    /// The first field of a document, which may depend on the order of fields.
    "document.id" IdPlace { First 80, Last 20 }

    /// What a document's key field holds.
    "document.key" KeyForm { Usual 99, NoKey 1 }

    /// What a document's time field holds.
    "document.time" TimeForm { None 1, Odd 1, Past 2, Next 21 }

    /// A field with an unusual name.
    "document.name" OddName { None 86, Empty 3, Dollar 3, Dotted 3, Reference 1, LikeABucket 1 }
}

//! The tables `[[bucket]]` and `[[outlier]]`, and rules between shapes. Each shape checks its own
//! options; here its contradictions get their lines.

use super::error::MistakeLocation;
use super::options::outlier::extras as of_extras;
use super::options::{MODE, bucket as of_bucket, outlier as of_outlier};
use super::section::Section;
use crate::pattern::shapes::{
    BucketOptions, BucketShape, ExtrasOptions, NamespacePattern, OutlierOptions, OutlierShape, ShadowShare, Shape,
    ShapeError, Shapes,
};

/// The namespaces that one configured shape uses. Known even if the shape itself is invalid.
struct ShapeClaim {
    namespace: NamespacePattern,
    namespace_place: MistakeLocation,
    /// The collection of its extras, in the same database.
    extras: Option<(String, MistakeLocation)>,
}

/// Resolves all shapes. Incomplete after a mistake.
pub(super) fn resolve(root: &mut Section<'_>) -> Shapes {
    let (mut claims, mut shapes) = (Vec::new(), Vec::new());
    for section in root.tables(&of_bucket::TABLE) {
        let (claim, shape) = bucket(section);
        claims.extend(claim);
        shapes.extend(shape.map(Shape::Bucket));
    }
    for section in root.tables(&of_outlier::TABLE) {
        let (claim, shape) = outlier(section);
        claims.extend(claim);
        shapes.extend(shape.map(Shape::Outlier));
    }
    check_namespaces(root, &claims);
    check_extras(root, &claims);
    // The only possible error is two shapes for one namespace, which was recorded with its lines
    // above.
    Shapes::new(shapes).unwrap_or_default()
}

fn bucket(mut section: Section<'_>) -> (Option<ShapeClaim>, Option<BucketShape>) {
    let claim = namespace(&mut section).map(|namespace| ShapeClaim {
        namespace,
        namespace_place: section.place_of("namespace"),
        extras: None,
    });
    let key = section.required_strings(&of_bucket::KEY);
    let mut options = BucketOptions::new(namespace_or_stand_in(claim.as_ref()), key.unwrap_or_default());
    options.time = section.string(&of_bucket::TIME);
    options.items = section.text(&of_bucket::ITEMS);
    options.count = section.text(&of_bucket::COUNT);
    options.max_items = section.integer(&of_bucket::MAX_ITEMS).unwrap_or(options.max_items);
    options.max_bytes = section.integer(&of_bucket::MAX_BYTES).unwrap_or(options.max_bytes);
    options.rename = section.string_map(&of_bucket::RENAME);
    options.item_ids = section.choice(&of_bucket::ITEM_IDS).unwrap_or_default();
    options.change_streams = section.flag(&of_bucket::CHANGE_STREAMS);
    options.reject_direct_writes = section.flag(&of_bucket::REJECT_DIRECT_WRITES);
    options.mode = section.choice(&of_bucket::MODE).unwrap_or_default();
    let compared = section.percentage(&of_bucket::SHADOW_SHARE, ShadowShare::of_percent);
    options.shadow_share = compared.unwrap_or_default();
    let shape = match BucketShape::new(options) {
        Ok(shape) => Some(shape),
        Err(errors) => {
            for error in errors {
                contradiction(&section, error.option, &error);
            }
            None
        }
    };
    section.finish();
    (claim, shape)
}

fn outlier(mut section: Section<'_>) -> (Option<ShapeClaim>, Option<OutlierShape>) {
    let namespace = namespace(&mut section);
    let array = section.required_string(&of_outlier::ARRAY).unwrap_or_default();
    let threshold = section.required_integer(&of_outlier::THRESHOLD).unwrap_or(1);
    let flag = section.text(&of_outlier::FLAG);
    let reads = section.choice(&of_outlier::READS).unwrap_or_default();
    let mode = section.choice(&MODE).unwrap_or_default();
    let mut extras_section = section.table(&of_extras::TABLE);
    let extras = extras(&mut extras_section, namespace.as_ref(), &array);
    let claim = namespace.map(|namespace| ShapeClaim {
        namespace,
        namespace_place: section.place_of("namespace"),
        extras: Some((extras.collection.clone(), extras_section.place_of("collection"))),
    });
    let options = OutlierOptions {
        namespace: namespace_or_stand_in(claim.as_ref()),
        array,
        threshold,
        flag,
        reads,
        mode,
        extras,
    };
    let shape = match OutlierShape::new(options) {
        Ok(shape) => Some(shape),
        Err(errors) => {
            for error in errors {
                match error.option.strip_prefix("extras.") {
                    Some(option) => contradiction(&extras_section, option, &error),
                    None => contradiction(&section, error.option, &error),
                }
            }
            None
        }
    };
    extras_section.finish();
    section.finish();
    (claim, shape)
}

fn extras(section: &mut Section<'_>, namespace: Option<&NamespacePattern>, array: &str) -> ExtrasOptions {
    let base = namespace.map_or("", NamespacePattern::collection);
    ExtrasOptions {
        collection: section
            .string(&of_extras::COLLECTION)
            .unwrap_or_else(|| format!("extra_{base}")),
        reference: section.text(&of_extras::REF),
        array: section
            .string(&of_extras::ARRAY)
            .unwrap_or_else(|| format!("{array}_extra")),
        max_items: section
            .integer(&of_extras::MAX_ITEMS)
            .unwrap_or(ExtrasOptions::DEFAULT_MAX_ITEMS),
    }
}

fn namespace(section: &mut Section<'_>) -> Option<NamespacePattern> {
    let text = section.required_string(&of_bucket::NAMESPACE)?;
    NamespacePattern::parse(&text).or_else(|| {
        let problem = format!("\"{text}\" is not a namespace");
        section.refuse(
            "namespace",
            &problem,
            "write \"database.collection\", or \"*.collection\" for every database",
        )
    })
}

/// A substitute for an invalid namespace, so that the rest of the shape can be checked. The shape
/// is never used.
fn namespace_or_stand_in(claim: Option<&ShapeClaim>) -> NamespacePattern {
    let namespace = claim.map(|claim| claim.namespace.clone());
    namespace.unwrap_or_else(|| NamespacePattern::parse("*.(unknown)").expect("a valid namespace"))
}

/// Records a contradiction within a shape, unless it follows from a recorded mistake.
fn contradiction(section: &Section<'_>, option: &'static str, error: &ShapeError) {
    if !section.is_faulty(option) {
        section.contradiction(option, &error.problem, &error.remedy);
    }
}

fn check_namespaces(root: &Section<'_>, claims: &[ShapeClaim]) {
    for (later, claim) in claims.iter().enumerate() {
        let same = |earlier: &&ShapeClaim| earlier.namespace == claim.namespace;
        if let Some(earlier) = claims.iter().take(later).find(same) {
            let problem = format!("{} already has a shape ({})", claim.namespace, earlier.namespace_place);
            root.source
                .mistake(&claim.namespace_place, problem, "give each namespace one shape");
        }
    }
}

fn check_extras(root: &Section<'_>, claims: &[ShapeClaim]) {
    for (position, claim) in claims.iter().enumerate() {
        let Some((collection, place)) = &claim.extras else {
            continue;
        };
        let overlaps = |other: &ShapeClaim| {
            let names = [claim.namespace.database(), other.namespace.database()];
            names.contains(&None) || names[0] == names[1]
        };
        // The shape itself checks that its extras are in another collection.
        let is_shaped = |(at, other): &(usize, &ShapeClaim)| {
            *at != position && overlaps(other) && other.namespace.collection() == collection
        };
        if let Some((_, other)) = claims.iter().enumerate().find(is_shaped) {
            let problem = format!(
                "the collection of extras `{collection}` has a shape itself ({})",
                other.namespace_place
            );
            root.source.mistake(place, problem, "name a collection without a shape");
        }
        let takes_extras = |other: &&ShapeClaim| {
            overlaps(other) && other.extras.as_ref().is_some_and(|(theirs, _)| theirs == collection)
        };
        if let Some(other) = claims.iter().take(position).find(takes_extras) {
            let problem = format!("`{collection}` already stores the extras of {}", other.namespace);
            root.source.mistake(place, problem, "name another collection");
        }
    }
}

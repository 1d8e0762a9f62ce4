//! Projections of `find` that `$project` does not support, as stages.
//!
//! Plain fields go into a `$project`; the other forms are computed from its result, as `find` computes them.
//! mongod validates them before ([`is_find_only`]).

mod element;
mod positional;
mod slice;

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};

use crate::command::document::{as_flag, first_field, put, single};

/// The inputs of a projection of `find` other than the projection itself.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    /// Returns whether a field is never an array.
    pub(super) is_no_array: &'a dyn Fn(&str) -> bool,
    /// The `find`'s filter.
    pub(super) filter: Option<&'a RawDocument>,
}

/// The most bytes of all paths, and of the stages of all slices. Paths repeat a beginning that they have in
/// common, and a slice needs several expressions for each step: so both may be many times as large as the
/// projection.
const MAX_BYTES: usize = 1024 * 1024;
/// The most stages. mongod accepts 1000 in a pipeline, among them those that made the documents.
const MAX_STAGES: usize = 900;

/// One field of a projection.
enum Form<'a> {
    /// A form that `$project` supports, too.
    Plain(RawBsonRef<'a>),
    /// `{$meta: kind}`.
    Meta(RawBsonRef<'a>),
    /// `{$slice: count}`, or `{$slice: [skip, count]}`.
    Slice(Vec<i32>),
    /// `{$elemMatch: condition}`.
    ElementMatch(&'a RawDocument),
    /// `"field.$": 1`. Has the condition on a wrapped element.
    Positional(RawDocumentBuf),
}

/// Whether a projection has a form that only `find` supports, or that means something else in an
/// aggregation.
#[must_use]
pub(super) fn is_find_only(projection: &RawDocument) -> bool {
    projection.iter().flatten().any(|(name, value)| {
        let name = name.as_str();
        let positional = name == "$" || name.contains(".$");
        positional || matches!(name, "$slice" | "$elemMatch" | "$meta") || value_is_find_only(value)
    })
}

fn value_is_find_only(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::Document(document) => is_find_only(document),
        RawBsonRef::Array(array) => array.into_iter().flatten().any(value_is_find_only),
        _ => false,
    }
}

/// The stages for a projection of `find`.
///
/// # Errors
/// The part that is not supported, for an error message.
pub(super) fn stages(projection: &RawDocument, context: Context<'_>) -> Result<Vec<RawDocumentBuf>, &'static str> {
    if !is_find_only(projection) {
        return Ok(vec![single("$project", projection)]);
    }
    if let Some(kind) = lost_metadata(projection) {
        return Err(kind);
    }
    let mut paths = Paths::default();
    paths.append("", projection)?;
    let fields = &paths.fields;
    let forms: Result<Vec<_>, _> = fields.iter().map(|(path, value)| form(path, *value, context)).collect();
    let forms = forms?;
    let inclusion = includes(&forms);
    let mut rest = RawDocumentBuf::new();
    let mut made = Vec::new();
    let mut slice_bytes = 0_usize;
    for (path, form) in forms {
        match form {
            Form::Plain(value) => put(&mut rest, path, value),
            Form::Meta(value) if inclusion => put(&mut rest, path, value),
            Form::Meta(value) => made.push(single("$set", single(path, value))),
            // `find` computes the field: it comes behind the included fields, in order with computed ones.
            Form::ElementMatch(_) if inclusion => put(&mut rest, path, format!("${path}")),
            _ if inclusion => put(&mut rest, path, true),
            _ => {}
        }
        match form {
            Form::Slice(arguments) => {
                let stage = slice::stage(path, &arguments)?;
                slice_bytes = slice_bytes.saturating_add(stage.as_bytes().len());
                made.push(stage);
            }
            Form::ElementMatch(condition) => made.extend(element::first_matching(path, condition)),
            Form::Positional(condition) => made.extend(element::positional(path, &condition)),
            Form::Plain(_) | Form::Meta(_) => {}
        }
        if slice_bytes > MAX_BYTES || made.len() > MAX_STAGES {
            return Err("this many $slice, $elemMatch or $meta");
        }
    }
    let project = (!rest.is_empty()).then(|| single("$project", rest));
    Ok(project.into_iter().chain(made).collect())
}

/// The metadata in a projection or a stage, at any depth, that items do not have. Record id and index key
/// would be those of the bucket, and mongod 6.0.5 loses sort keys after an `$unwind`.
pub(super) fn lost_metadata(document: &RawDocument) -> Option<&'static str> {
    document
        .iter()
        .flatten()
        .find_map(|(name, value)| match (name.as_str(), value) {
            ("$meta", RawBsonRef::String("recordId")) => Some("$meta: 'recordId'"),
            ("$meta", RawBsonRef::String("indexKey")) => Some("$meta: 'indexKey'"),
            ("$meta", RawBsonRef::String("sortKey")) => Some("$meta: 'sortKey'"),
            (_, value) => metadata_lost_in(value),
        })
}

fn metadata_lost_in(value: RawBsonRef<'_>) -> Option<&'static str> {
    match value {
        RawBsonRef::Document(document) => lost_metadata(document),
        RawBsonRef::Array(array) => array.into_iter().flatten().find_map(metadata_lost_in),
        _ => None,
    }
}

/// The fields of a projection by their whole paths: `{a: {b: 1}}` is `{"a.b": 1}`.
#[derive(Default)]
struct Paths<'a> {
    fields: Vec<(String, RawBsonRef<'a>)>,
    /// The length of all paths.
    bytes: usize,
}

impl<'a> Paths<'a> {
    /// Appends the fields of a projection within the path `parent`.
    ///
    /// # Errors
    /// The paths are too long, for an error message.
    fn append(&mut self, parent: &str, projection: &'a RawDocument) -> Result<(), &'static str> {
        for (name, value) in projection.iter().flatten() {
            let path = if parent.is_empty() {
                name.as_str().to_owned()
            } else {
                format!("{parent}.{}", name.as_str())
            };
            match value {
                RawBsonRef::Document(inner) if first_field(inner).is_some_and(|(name, _)| !name.starts_with('$')) => {
                    self.append(&path, inner)?;
                }
                value => self.push(path, value)?,
            }
        }
        Ok(())
    }

    fn push(&mut self, path: String, value: RawBsonRef<'a>) -> Result<(), &'static str> {
        self.bytes = self.bytes.saturating_add(path.len());
        if self.bytes > MAX_BYTES {
            return Err("paths of more than 1 MiB beside $slice, $elemMatch, $meta or the positional operator $");
        }
        self.fields.push((path, value));
        Ok(())
    }
}

/// Whether only the named fields are returned. Any plain field decides. Otherwise an included `_id`
/// means yes. Otherwise the answer is yes if there is an `$elemMatch` and no `$slice`. Observed on
/// mongod 6.0.5.
fn includes(fields: &[(&str, Form<'_>)]) -> bool {
    let plain = |wanted: fn(&str) -> bool| {
        fields.iter().find_map(|(name, form)| match form {
            Form::Plain(value) if wanted(name) => Some(as_flag(*value).unwrap_or(true)),
            Form::Positional(_) => Some(true),
            _ => None,
        })
    };
    let any = |wanted: fn(&Form<'_>) -> bool| fields.iter().any(|(_, form)| wanted(form));
    plain(|name| name != "_id").unwrap_or_else(|| {
        plain(|name| name == "_id") == Some(true)
            || (any(|form| matches!(form, Form::ElementMatch(_))) && !any(|form| matches!(form, Form::Slice(_))))
    })
}

fn form<'a, 'p>(
    path: &'p str,
    value: RawBsonRef<'a>,
    context: Context<'_>,
) -> Result<(&'p str, Form<'a>), &'static str> {
    if let Some(field) = path.strip_suffix(".$") {
        let condition = positional::on_element(field, context).ok_or("this use of the positional operator $")?;
        return Ok((field, Form::Positional(condition)));
    }
    let form = match value.as_document().and_then(first_field) {
        Some(("$meta", _)) => Form::Meta(value),
        Some(("$elemMatch", RawBsonRef::Document(condition))) => Form::ElementMatch(condition),
        Some(("$slice", argument)) => slice::arguments(argument)?.map_or(Form::Plain(value), Form::Slice),
        _ => Form::Plain(value),
    };
    Ok((path, form))
}

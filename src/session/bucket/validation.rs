//! `create` and `collMod` with a validator of the application.

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::command::BucketCommand;
use super::indexes::given_up;
use super::page_validator::{self, ValidatorPart, ValidatorState};
use crate::command::arguments::{InheritedOptions, is_generic, with_replaced};
use crate::command::collection::{VALIDATION, given, has_equal_options};
use crate::command::document::{append_fields, array_of, get, put, single};
use crate::command::error::{CommandError, ErrorCode};
use crate::command::indexes::NO_INDEX;
use crate::command::reply::{CursorReply, copy_cluster_time};
use crate::command::server_version::ServerVersion;
use crate::command::value_text::value_text;
use crate::pattern::bucket::compact::VALIDATOR;
use crate::pattern::bucket::validator::{ApplicationValidator, PageValidator, options_of_application};
use crate::pattern::unsupported::Unsupported;
use crate::session::backoff::{MAX_ATTEMPTS, pause};
use crate::session::error::RunError;

/// mongod's prefix of a mistake in the validator of a `collMod`.
const OF_COLL_MOD: &str = "Parsing of collection validator failed :: caused by :: ";

/// The version since which mongod accepts a `create` of a collection that exists with equal options.
const COMPARES_OPTIONS: ServerVersion = ServerVersion::new(7, 0, 0);
/// What precedes the options of the existing collection in the message of these versions.
const DIFFERENT_OPTIONS: &str = "but with different options: ";

/// Whether mongod refuses the validation options because of a type or a value.
fn is_malformed(body: &RawDocument) -> bool {
    let is = |name, values: &[&str]| match given(body, name) {
        None => true,
        Some(RawBsonRef::String(value)) => values.contains(&value),
        Some(_) => false,
    };
    let is_validator = matches!(given(body, VALIDATOR), None | Some(RawBsonRef::Document(_)));
    !(is_validator
        && is("validationLevel", &["off", "strict", "moderate"])
        && is("validationAction", &["error", "warn"]))
}

fn without_options(body: &RawDocument) -> RawDocumentBuf {
    with_replaced(body, &VALIDATION.map(|name| (name, None)))
}

/// The `create` for mongod: the application's options become those of a collection of pages.
pub(super) async fn creation(run: &mut BucketCommand<'_>, body: &RawDocument) -> Result<RawDocumentBuf, RunError> {
    if is_malformed(body) {
        return Ok(body.to_owned());
    }
    let application = match ApplicationValidator::of_create(run.shape, body) {
        Ok(application) => application,
        Err(what) => return Err(refused(run, &what, "").await?.into()),
    };
    if application.is_some() && run.context.head.in_transaction() {
        return Err(run.unsupported("a create with a validator in a transaction").into());
    }
    let validator = PageValidator {
        application,
        ..PageValidator::of_new(run.shape)
    };
    if validator == PageValidator::default() {
        return Ok(body.to_owned());
    }
    let mut creation = without_options(body);
    validator.append_to(&mut creation);
    Ok(creation)
}

/// The reply to a `create` of a collection that exists, which has caused `error`. mongod 6.0 returns an error in any
/// case, and later versions only if the options differ. These have compared the options of pages.
pub(super) async fn reply_for_existing(
    run: &mut BucketCommand<'_>,
    creation: &RawDocument,
    error: CommandError,
) -> Result<RawDocumentBuf, RunError> {
    if !error.message().contains(DIFFERENT_OPTIONS) {
        return Err(error.into());
    }
    let mut command = single("listCollections", 1);
    command.append(cstr!("filter"), single("name", run.namespace.collection));
    InheritedOptions::of(run.context.head.body()).append_to_inspect(&mut command);
    let listed = run.context.link.run(&command).await?;
    let cursor = CursorReply::parse(&listed);
    let described = cursor.as_ref().and_then(|cursor| cursor.documents().next());
    let Some(options) = described.and_then(|described| get(described, "options")?.as_document()) else {
        return Err(error.into());
    };
    let application = options_of_application(options);
    let is_compared = matches!(error, CommandError::Upstream(_)) && *application == *options;
    if is_compared {
        return Err(error.into());
    }
    let mut given = RawDocumentBuf::new();
    for (name, value) in creation.iter().flatten().skip(1) {
        if !is_generic(name.as_str()) {
            given.append(name, value);
        }
    }
    if has_equal_options(&options_of_application(&given), &application) {
        let mut reply = single("ok", 1.0);
        copy_cluster_time(&mut reply, &listed);
        return Ok(reply);
    }
    let info = described.and_then(|described| get(described, "info")?.as_document());
    let uuid = info.and_then(|info| get(info, "uuid"));
    Err(with_options(error, uuid, &application).into())
}

/// The error of a `create` of a collection that exists, as mongod of the server's version reports it before it has
/// compared the options.
pub(super) async fn existing(run: &mut BucketCommand<'_>) -> Result<CommandError, RunError> {
    let namespace = run.namespace;
    let message = if run.context.link.server_version().await? < COMPARES_OPTIONS {
        format!("Collection {namespace} already exists.")
    } else {
        format!("namespace {namespace} already exists, {DIFFERENT_OPTIONS}")
    };
    Ok(CommandError::new(ErrorCode::NamespaceExists, message))
}

/// The error with the application's options in the place of those of pages.
fn with_options(error: CommandError, uuid: Option<RawBsonRef<'_>>, options: &RawDocument) -> CommandError {
    let Some((before, _)) = error.message().split_once(DIFFERENT_OPTIONS) else {
        return error;
    };
    let mut shown = RawDocumentBuf::new();
    if let Some(uuid) = uuid {
        put(&mut shown, "uuid", uuid);
    }
    append_fields(&mut shown, options);
    let message = format!(
        "{before}{DIFFERENT_OPTIONS}{}",
        value_text(RawBsonRef::Document(&shown))
    );
    let message = [("errmsg", Some(RawBsonRef::String(&message)))];
    CommandError::Upstream(with_replaced(&error.into_reply(), &message))
}

/// The error for a validator that has no equivalent on pages: mongod's error if it is malformed, after the
/// prefix of the client's command.
async fn refused(run: &mut BucketCommand<'_>, what: &Unsupported, prefix: &str) -> Result<CommandError, RunError> {
    let validator = get(run.context.head.body(), VALIDATOR).and_then(RawBsonRef::as_document);
    let Some(validator) = validator else {
        return Ok(run.unsupported(what));
    };
    let no_documents = single("$documents", RawArrayBuf::new());
    let stages = [no_documents, single("$match", validator)];
    let mut command = single("aggregate", 1);
    command.append(cstr!("pipeline"), array_of(&stages));
    command.append(cstr!("cursor"), RawDocumentBuf::new());
    InheritedOptions::of(run.context.head.body()).append_to_inspect(&mut command);
    match run.context.link.validate(&command).await {
        Err(RunError::Command(error)) => {
            let message = format!("{prefix}{}", error.message());
            let message = [("errmsg", Some(RawBsonRef::String(&message)))];
            Ok(CommandError::Upstream(with_replaced(&error.into_reply(), &message)))
        }
        Err(error) => Err(error),
        Ok(()) => Ok(run.unsupported(what)),
    }
}

/// Executes a `collMod` with validation options.
pub(super) async fn coll_mod(run: &mut BucketCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    let body = run.context.head.body();
    if run.context.head.in_transaction() {
        // mongod refuses a `collMod` in a transaction.
        return run.context.link.run(body).await;
    }
    let is_malformed = is_malformed(body);
    for round in 0..MAX_ATTEMPTS {
        pause(round).await;
        if run.collection.is_some()
            && !is_malformed
            && let Some(reply) = set_options(run).await?
        {
            return Ok(reply);
        }
        match run.context.link.run(&without_effect(body)).await {
            Err(RunError::Command(error)) if error.is(ErrorCode::IndexNotFound) => {}
            reply => return reply,
        }
        if is_malformed {
            return Err(run.unsupported("collMod with such validation options").into());
        }
        // Another client has created the collection in the meantime.
        run.context.settings.catalog.forget(run.namespace);
        run.ensure_readable(None).await?;
    }
    Err(given_up(run))
}

/// The `collMod` with an index that does not exist. mongod reports mistakes in the options and a missing
/// collection, and else the missing index: the options would replace the validator of pages.
fn without_effect(body: &RawDocument) -> RawDocumentBuf {
    // `apiStrict` does not allow `index`.
    let mut command = with_replaced(body, &[("index", None), ("apiStrict", None)]);
    let mut index = single("name", NO_INDEX);
    put(&mut index, "hidden", true);
    put(&mut command, "index", &index);
    command
}

/// Executes a well-formed `collMod`. `None`: the collection does not exist.
async fn set_options(run: &mut BucketCommand<'_>) -> Result<Option<RawDocumentBuf>, RunError> {
    let body = run.context.head.body();
    let others = without_options(body);
    let mut beside = others.iter().flatten().skip(1);
    if let Some((other, _)) = beside.find(|(name, _)| !is_generic(name.as_str())) {
        let what = format!("collMod of the validator together with '{other}'");
        return Err(run.unsupported(&what).into());
    }
    if let Err(what) = ApplicationValidator::modified(None, run.shape, body) {
        return Err(refused(run, &what, OF_COLL_MOD).await?.into());
    }
    let Some(before) = page_validator::state(run, ValidatorPart::Application).await? else {
        return Ok(None);
    };
    let before = before.validator.application;
    // A validator that was not enforced before may have no equivalent on pages.
    let after = ApplicationValidator::modified(before.as_ref(), run.shape, body);
    let after = after.map_err(|what| run.unsupported(&what))?;
    check_items(run, &after).await?;
    let shape = run.shape;
    let mut set = None;
    let edit = |state: &ValidatorState| {
        let mut validator = state.validator.clone();
        // `after` has been possible, so it is possible with the options of another change.
        let modified = ApplicationValidator::modified(validator.application.as_ref(), shape, body);
        validator.application = Some(modified.unwrap_or_else(|_| after.clone()));
        set.clone_from(&validator.application);
        validator
    };
    let replaced = page_validator::replace(run, ValidatorPart::Application, edit).await;
    run.context.settings.catalog.forget(run.namespace);
    replaced?;
    // An item may have been written since the check.
    if let Some(set) = set
        && let Err(error) = check_items(run, &set).await
    {
        let edit = |state: &ValidatorState| {
            let mut validator = state.validator.clone();
            if validator.application.as_ref() == Some(&set) {
                validator.application.clone_from(&before);
            }
            validator
        };
        page_validator::replace(run, ValidatorPart::Application, edit).await?;
        return Err(error);
    }
    run.context.link.run(&others).await.map(Some)
}

/// Refuses a validator that an existing item does not satisfy: its page could not be changed any more.
async fn check_items(run: &mut BucketCommand<'_>, validator: &ApplicationValidator) -> Result<(), RunError> {
    let Some(violated) = validator.violated() else {
        return Ok(());
    };
    let mut command = single("find", run.namespace.collection);
    command.append(cstr!("filter"), violated);
    command.append(cstr!("projection"), single("_id", 1));
    command.append(cstr!("limit"), 1);
    command.append(cstr!("singleBatch"), true);
    InheritedOptions::of(run.context.head.body()).append_to_inspect(&mut command);
    let reply = match run.context.link.run(&command).await {
        // mongod reports a mistake in the validator when it is set.
        Err(RunError::Command(error)) if error.is(ErrorCode::BadValue) || error.is(ErrorCode::FailedToParse) => {
            return Ok(());
        }
        reply => reply?,
    };
    let found = CursorReply::parse(&reply).is_some_and(|cursor| cursor.documents().next().is_some());
    if !found {
        return Ok(());
    }
    let what = "collMod with a validator that existing documents do not satisfy (find them with {$nor: [<the validator>]}, and change \
                or delete them; or set validationAction: 'warn')";
    Err(run.unsupported(what).into())
}

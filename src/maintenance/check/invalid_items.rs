//! Items that do not satisfy the application's validator. A proxy searches for such items before it sets a
//! validator and again after. If it dies in between, an item that another proxy has stored in the meantime
//! stays.

use bson::Document;
use bson::raw::{RawDocumentBuf, cstr};
use futures_util::TryStreamExt;
use mongodb::error::Error;

use crate::command::document::{array_of, as_whole_number, get, single};
use crate::maintenance::finding::Finding;
use crate::maintenance::inspect::{SCAN_TIMEOUT, is_timeout};
use crate::maintenance::upstream::{ShapedCollection, described_validator};
use crate::pattern::bucket::unwind;
use crate::pattern::bucket::validator::{ApplicationValidator, PageValidator};
use crate::pattern::shapes::BucketShape;

/// A warning, if there are such items. Reads the whole collection if it has a validator, for at most
/// [`SCAN_TIMEOUT`].
pub(super) async fn check(
    target: &ShapedCollection,
    shape: &BucketShape,
    described: &Document,
) -> Result<Option<Finding>, Error> {
    let validator = described_validator(described).and_then(|validator| PageValidator::parse(&validator));
    let Some(application) = validator.and_then(|validator| validator.application) else {
        return Ok(None);
    };
    let Some(stages) = counting(shape, &application) else {
        return Ok(None);
    };
    let items = match count(target, stages).await {
        Err(error) if is_timeout(&error) => {
            let seconds = SCAN_TIMEOUT.as_secs();
            let text =
                format!("the search for items that do not satisfy the validator did not finish within {seconds} s");
            return Ok(Some(Finding::note(target.namespace(), text)));
        }
        count => count?,
    };
    let text = match items {
        0 => return Ok(None),
        1 => "1 item does not satisfy the validator, so mongod checks no write of its page".to_owned(),
        items => format!("{items} items do not satisfy the validator, so mongod checks no write of their pages"),
    };
    let remedy = "find them with {$nor: [<the validator>]}, and change or delete them";
    Ok(Some(Finding::warning(target.namespace(), format!("{text}: {remedy}"))))
}

/// The stages that count the items. Only pages that contain such an item are unwound. `None`: nothing is
/// enforced.
fn counting(shape: &BucketShape, application: &ApplicationValidator) -> Option<Vec<RawDocumentBuf>> {
    let pages = single("$match", application.violated()?);
    let invalid = single("$nor", array_of(&[application.validator().to_owned()]));
    let items = unwind::of_count(shape, Some(&invalid), None);
    Some([pages].into_iter().chain(items).collect())
}

async fn count(target: &ShapedCollection, stages: Vec<RawDocumentBuf>) -> Result<i64, Error> {
    let mut command = single("aggregate", target.collection.as_str());
    command.append(cstr!("pipeline"), array_of(&stages));
    command.append(cstr!("cursor"), RawDocumentBuf::new());
    command.append(
        cstr!("maxTimeMS"),
        i64::try_from(SCAN_TIMEOUT.as_millis()).unwrap_or(i64::MAX),
    );
    let counted = target.database.run_raw_cursor_command(command).await?;
    let counted = counted.with_type::<RawDocumentBuf>().try_next().await?;
    let count = counted
        .as_ref()
        .and_then(|counted| get(counted, "n"))
        .and_then(as_whole_number);
    Ok(count.unwrap_or(0))
}

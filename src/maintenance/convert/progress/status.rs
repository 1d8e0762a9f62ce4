//! The state of a conversion, which proxies and the operator's page read from its record.

use std::time::{Duration, SystemTime};

use bson::{Bson, Document};
use mongodb::Database;
use mongodb::error::Error;

use crate::maintenance::convert::progress::{WRITE_DELAY, as_float};
use crate::maintenance::convert::record::{Record, stored};
use crate::maintenance::upstream::as_integer;

/// The state of a conversion.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ConversionStatus {
    /// Both layouts, as text.
    pub(crate) direction: String,
    pub(crate) stage: ConversionStage,
}

/// The stage of a conversion.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ConversionStage {
    /// It has not swapped. `None`: no run has recorded its progress.
    Running(Option<ConversionFigures>),
    /// The collection is converted, and the former one is kept.
    Kept,
}

/// The progress that a run has recorded last.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ConversionFigures {
    /// `copying`, `following`, `comparing` or `swapping`.
    pub(crate) phase: String,
    /// The part of the documents that the phase has done, from 0 to 1. `None`: their number is not known.
    pub(crate) ratio: Option<f64>,
    /// The time whose changes were not read yet. `None`: none are read.
    pub(crate) lag: Option<Duration>,
    /// The time until the phase ends. `None`: it is not known.
    pub(crate) remaining: Option<Duration>,
    /// The documents of the last comparison. `None`: there was none.
    pub(crate) compared: Option<u64>,
    /// The documents that differed in the last comparison.
    pub(crate) differing: Option<u64>,
    /// The time that proxies wait before a write statement.
    pub(crate) write_delay: Duration,
    /// The time of the recording, by the clock of the run.
    pub(crate) updated_at: SystemTime,
}

/// The state of a collection's conversion. `None`: there is none, or another version has recorded it.
///
/// # Errors
/// If the record cannot be read.
pub(crate) async fn status(database: &Database, collection: &str) -> Result<Option<ConversionStatus>, Error> {
    let Some(found) = stored(database, collection).await? else {
        return Ok(None);
    };
    let record = Record::of(&found, database, collection).ok();
    Ok(record.map(|record| ConversionStatus {
        direction: format!("from {} to {}", record.kept().layout, record.current()),
        stage: if record.is_done() {
            ConversionStage::Kept
        } else {
            ConversionStage::Running(found.get_document("progress").ok().and_then(figures))
        },
    }))
}

fn figures(progress: &Document) -> Option<ConversionFigures> {
    let number = |field| {
        let number = progress.get(field).and_then(as_integer);
        number.and_then(|number| u64::try_from(number).ok())
    };
    let ratio = match (number("done"), number("total")) {
        (Some(done), Some(total)) if total > 0 => Some((as_float(done) / as_float(total)).clamp(0.0, 1.0)),
        _ => None,
    };
    let updated_at = match progress.get("updated_at") {
        Some(Bson::DateTime(at)) => at.to_system_time(),
        _ => return None,
    };
    Some(ConversionFigures {
        phase: progress.get_str("phase").ok()?.to_owned(),
        ratio,
        lag: number("lag_seconds").map(Duration::from_secs),
        remaining: number("remaining_seconds").map(Duration::from_secs),
        compared: number("compared"),
        differing: number("differing"),
        write_delay: number(WRITE_DELAY).map(Duration::from_millis).unwrap_or_default(),
        updated_at,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use bson::DateTime;

    use super::*;
    use crate::maintenance::convert::progress::{RunProgress, Stage};

    #[test]
    fn what_a_run_records_is_read() {
        let begun = Instant::now();
        let mut progress = RunProgress::new(begun);
        progress.expect(400);
        progress.begin(Stage::Comparing, begun);
        progress.advance(100, begun + Duration::from_secs(1));
        progress.lag_seconds = Some(7);
        progress.write_delay.lengthen(begun);
        let read = figures(&progress.document(DateTime::from_millis(1000))).unwrap();
        let expected = ConversionFigures {
            phase: "comparing".to_owned(),
            ratio: Some(0.25),
            lag: Some(Duration::from_secs(7)),
            remaining: Some(Duration::from_secs(3)),
            compared: None,
            differing: None,
            write_delay: Duration::from_millis(2),
            updated_at: SystemTime::UNIX_EPOCH + Duration::from_secs(1),
        };
        assert_eq!(read, expected);
        assert_eq!(figures(&Document::new()), None);
    }
}

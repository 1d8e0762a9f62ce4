//! The client's stages behind `$changeStream`, applied by mongod to the events of items.

use bson::raw::{RawArrayBuf, RawDocument, RawDocumentBuf, cstr};

use super::cursor::fatal;
use crate::command::aggregate::Aggregate;
use crate::command::document::{append_fields, first_field, get, single};
use crate::command::error::CommandError;
use crate::command::value_text::value_text;

/// The most bytes of events in one command. A single event may be larger.
const MAX_BYTES: usize = 8 << 20;

/// The stage that splits an event of more than 16 MB, from MongoDB 6.0.9 on. It must be the last one.
const SPLIT: &str = "$changeStreamSplitLargeEvent";

/// The stages, and the options of the client's `aggregate` on which their result depends.
#[derive(Debug)]
pub(super) struct ClientStages {
    stages: RawArrayBuf,
    options: RawDocumentBuf,
}

impl ClientStages {
    /// The client's stages, which mongod has checked. `None` if there are none.
    pub(super) fn of(body: &RawDocument, aggregate: &Aggregate<'_>) -> Option<Self> {
        let mut options = RawDocumentBuf::new();
        for (name, value) in body.iter().flatten() {
            if ["collation", "let"].contains(&name.as_str()) {
                options.append(name, value);
            }
        }
        let mut stages = aggregate.pipeline.get(1..)?;
        // mongod executes it only behind `$changeStream`. It passes on an event that fits, and only those get
        // here.
        if let Some((last, others)) = stages.split_last()
            && first_field(last).is_some_and(|(name, _)| name == SPLIT)
        {
            stages = others;
        }
        let stages = Some(stages).filter(|stages| !stages.is_empty())?;
        Some(Self {
            stages: stages.iter().copied().collect(),
            options,
        })
    }

    /// Splits events into parts of one command each.
    pub(super) fn chunks(events: &[RawDocumentBuf]) -> Vec<&[RawDocumentBuf]> {
        let mut chunks = Vec::new();
        let mut rest = events;
        while !rest.is_empty() {
            let mut bytes = 0_usize;
            let fitting = rest.iter().take_while(|event| {
                bytes = bytes.saturating_add(event.as_bytes().len());
                bytes <= MAX_BYTES
            });
            let (chunk, behind) = rest.split_at(fitting.count().max(1).min(rest.len()));
            chunks.push(chunk);
            rest = behind;
        }
        chunks
    }

    /// The `aggregate` that applies the stages to events.
    pub(super) fn command(&self, events: &[RawDocumentBuf]) -> RawDocumentBuf {
        let documents: RawArrayBuf = events.iter().cloned().collect();
        let mut stages = RawArrayBuf::new();
        stages.push(single("$documents", single("$literal", &documents)));
        for stage in self.stages.into_iter().flatten() {
            stages.push(stage);
        }
        let mut command = single("aggregate", 1);
        command.append(cstr!("pipeline"), &stages);
        let size = i64::try_from(events.len()).unwrap_or(i64::MAX);
        command.append(cstr!("cursor"), single("batchSize", size.saturating_add(1)));
        append_fields(&mut command, &self.options);
        command
    }
}

/// Fails like mongod if a stage has changed the token of an event. Stages keep the order of events.
pub(super) fn check_tokens(events: &[RawDocumentBuf], results: &[RawDocumentBuf]) -> Result<(), CommandError> {
    let mut events = events.iter();
    for result in results {
        let token = get(result, "_id");
        let is_kept = token.is_some() && events.any(|event| get(event, "_id") == token);
        if !is_kept {
            let found = token.map_or_else(|| "{}".to_owned(), |token| format!("{{ _id: {} }}", value_text(token)));
            return Err(fatal(&format!(
                "Encountered an event whose _id field, which contains the resume token, was modified by the pipeline. Modifying the _id \
                 field of an event makes it impossible to resume the stream from that point. Only transformations that retain the \
                 unmodified _id field are allowed. Found: {found}"
            )));
        }
    }
    Ok(())
}

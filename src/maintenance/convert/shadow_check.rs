//! Whether a conversion agrees with shadow mode.

use super::layout::Layout;
use super::subject::Subject;
use super::{ConvertTask, Request};
use crate::maintenance::swap::Halt;
use crate::maintenance::upstream::ShapedCollection;
use crate::pattern::shapes::Mode;

impl Request<'_> {
    /// An error if the conversion would show pages to clients, or if the copy cannot be compared with plain
    /// documents.
    pub(super) fn check_shadow(self, subject: &Subject, from: &Layout) -> Result<(), Halt> {
        let shape = subject.configured.as_ref().and_then(ShapedCollection::bucket);
        let is_shadow = shape.is_some_and(|shape| shape.mode() == Mode::Shadow);
        let words = match self.options.task {
            ConvertTask::ToShape if is_shadow && !self.options.is_dry_run => {
                "it has `mode = \"shadow\"`, so clients would read pages after the conversion; set `mode = \"auto\"`, reload all \
                 proxies (SIGHUP), and run again"
            }
            ConvertTask::Shadow if !from.is_plain() => "it contains pages; `--shadow` is for plain documents",
            _ => return Ok(()),
        };
        Err(Halt::Words(words.to_owned()))
    }
}

//! Conversions of an outlier collection to plain documents and back, between the operations of a run.

use anyhow::{Result, ensure};

use super::Sides;
use super::sides::COLLECTION;
use crate::{Outlier, Proxy};

/// The conversions of a run.
#[derive(Debug)]
pub(super) struct Conversions<'a> {
    /// A proxy that has the collection's shape.
    pub(super) proxy: &'a Proxy,
    /// Operations between two conversions.
    pub(super) every: u32,
    /// Whether the stored documents are plain.
    pub(super) is_joined: bool,
}

impl Conversions<'_> {
    /// Converts after each so many operations.
    pub(super) fn convert_if_due(&mut self, number: u32, sides: &Sides) -> Result<()> {
        if !number.is_multiple_of(self.every) {
            return Ok(());
        }
        let namespace = format!("{}.{COLLECTION}", sides.shaped.database);
        let to: &[&str] = if self.is_joined {
            &["--back"]
        } else {
            &["--to", "plain"]
        };
        let arguments = [&["--namespace", &namespace], to].concat();
        let output = self.proxy.run_with("convert", &arguments)?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{printed}");
        self.is_joined = !self.is_joined;
        Ok(())
    }

    /// The shape that stored documents have now.
    pub(super) fn stored(&self, outlier: &Outlier) -> Outlier {
        let mut stored = outlier.clone();
        if self.is_joined {
            stored.threshold = usize::MAX;
        }
        stored
    }
}

//! The kernel's figures of a process.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result};

/// Its resident memory, in kB.
pub(super) fn resident_kilobytes(process: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let figure = line.and_then(|line| line.split_whitespace().next());
    Ok(figure.context("no VmRSS")?.parse()?)
}

/// A tick of a process's clock. Linux counts in hundredths of a second, independent of its timer.
const TICK: Duration = Duration::from_millis(10);

/// The time that it has used of all cores, in itself and in the kernel.
pub(super) fn cpu_time(process: u32) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    // Its name, in brackets, may have spaces; utime and stime are the 12th and 13th after it.
    let fields = stat.rsplit_once(')').context("no name in stat")?.1;
    let ticks: Vec<u32> = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    Ok(TICK * ticks.iter().sum::<u32>())
}

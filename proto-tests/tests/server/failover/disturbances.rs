//! The disturbances of the servers while the application writes. After each event every writer must succeed
//! again.

use anyhow::Result;
use proto_tests::measure::is_full;
use proto_tests::{Mongod, Proxy};

use crate::failover::writers::Writers;

/// For so many seconds a primary that stepped down is not elected again; longer than an election takes.
const STEPPED_DOWN_SECS: u32 = 5;

/// How much happens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measure {
    stepdowns: u32,
    kills: u32,
    proxy_kills: u32,
}

impl Measure {
    pub(crate) fn chosen() -> Self {
        match std::env::var("MONGOSHAPE_FAILOVER").as_deref() {
            Ok("full") => Self {
                stepdowns: 10,
                kills: 3,
                proxy_kills: 10,
            },
            _ if is_full("MONGOSHAPE_CRASHES") => Self {
                stepdowns: 2,
                kills: 1,
                proxy_kills: 2,
            },
            _ => Self {
                stepdowns: 1,
                kills: 1,
                proxy_kills: 1,
            },
        }
    }
}

/// Primaries step down, and some are killed in between and come back.
pub(crate) fn primaries(set: &mut Mongod, writers: &Writers, measure: Measure) -> Result<()> {
    let mut killed = 0;
    for stepdown in 1..=measure.stepdowns {
        set.step_down(STEPPED_DOWN_SECS)?;
        set.primary()?;
        writers.wait_for_progress()?;
        // As many of the kills as of the stepdowns.
        while killed * measure.stepdowns < measure.kills * stepdown {
            killed += 1;
            let primary = set.primary()?;
            set.kill(primary)?;
            set.primary()?;
            writers.wait_for_progress()?;
            set.restart(primary)?;
            writers.wait_for_progress()?;
        }
    }
    Ok(())
}

/// The proxy is killed and comes back.
pub(crate) fn proxy(proxy: &mut Proxy, writers: &Writers, measure: Measure) -> Result<()> {
    for _ in 0..measure.proxy_kills {
        proxy.kill()?;
        proxy.restart()?;
        writers.wait_for_progress()?;
    }
    Ok(())
}

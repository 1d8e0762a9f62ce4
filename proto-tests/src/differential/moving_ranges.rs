//! Ranges of a sharded collection that move, and shards that step down, during a run.

use anyhow::{Result, ensure};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt as _, SeedableRng as _};

use super::sides::COLLECTION;
use crate::cluster::{Cluster, Moves};

/// Operations between two stepdowns. The first is after half as many.
const STEPDOWNS_EVERY: u32 = 100;

/// When ranges move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangesMove {
    /// At any time. A move aborts open transactions on the sharded collection, and none on the plain one.
    AtAnyTime,
    /// Between two operations. Shards step down then, too.
    BetweenOperations,
}

/// The cluster, and when its ranges move.
#[derive(Clone, Copy)]
pub(super) struct MovingRanges<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) when: RangesMove,
}

impl<'a> MovingRanges<'a> {
    /// Begins with the moves of a seed.
    pub(super) fn of_seed(self, database: &str, seed: u64) -> RangeMoves<'a> {
        let namespace = format!("{database}.{COLLECTION}");
        let moves = (self.when == RangesMove::AtAnyTime).then(|| self.cluster.keep_moving(&namespace, seed));
        RangeMoves {
            cluster: self.cluster,
            namespace,
            moved: 0,
            random: ChaCha8Rng::seed_from_u64(seed),
            moves,
        }
    }
}

/// The moves of a seed.
pub(super) struct RangeMoves<'a> {
    cluster: &'a Cluster,
    namespace: String,
    /// The slots that have moved between operations.
    moved: u32,
    random: ChaCha8Rng,
    /// The moves at any time.
    moves: Option<Moves>,
}

impl RangeMoves<'_> {
    /// Moves a range after an operation, unless ranges move at any time.
    pub(super) fn after_operation(&mut self, number: u32) -> Result<()> {
        if self.moves.is_some() {
            return Ok(());
        }
        self.moved += u32::from(self.cluster.move_any(&self.namespace, &mut self.random)?);
        if number % STEPDOWNS_EVERY == STEPDOWNS_EVERY / 2 {
            let shard = self.random.random_range(0..self.cluster.shards().len());
            self.cluster.step_down(shard)?;
        }
        Ok(())
    }

    /// Ends the moves of a seed.
    pub(super) fn end(self) -> Result<()> {
        let moved = self.moves.map_or(Ok(self.moved), Moves::end)?;
        ensure!(moved > 0, "no range has moved");
        Ok(())
    }
}

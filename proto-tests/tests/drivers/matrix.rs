//! The driver matrix: one script, written for every driver (see `proto-tests/drivers`), on plain collections.
//! It runs without the proxy and then through it. The output must be the same, byte by byte.
//!
//! A part runs with all tests. `cargo xtask drivers` runs the whole matrix by the test [`whole`] and prints a
//! table.

mod cell;
mod program;
mod run;
mod servers;
mod table;

use std::io::Write as _;

use anyhow::{Result, ensure};

use cell::{Cell, Face, Variant};
use program::Driver;

/// Names in it, separated by commas, leave only the cells that have all of them.
const ONLY: &str = "DRIVER_MATRIX_ONLY";

fn equal(cells: &[Cell]) -> Result<()> {
    let outcomes = run::all(cells)?;
    let table = table::of(&outcomes);
    writeln!(std::io::stdout(), "{table}")?;
    ensure!(
        outcomes.iter().all(run::Outcome::is_equal),
        "not all cells are equal:\n{table}"
    );
    Ok(())
}

/// Some presentations with one driver: behind a standalone and for each member compressed, otherwise plain.
fn part(driver: Driver, faces: &[Face]) -> Result<()> {
    let is_part = |cell: &Cell| {
        let variant = match cell.face {
            Face::Standalone | Face::Members => Variant::Snappy,
            Face::Mongos | Face::ReplicaSet => Variant::Plain,
        };
        cell.driver == driver && cell.variant == variant && faces.contains(&cell.face)
    };
    let cells: Vec<_> = Cell::all().filter(is_part).collect();
    equal(&cells)
}

#[test]
fn pymongo() -> Result<()> {
    part(Driver::PyMongo, &[Face::Standalone, Face::ReplicaSet])
}

#[test]
fn node() -> Result<()> {
    part(Driver::Node, &[Face::Mongos, Face::Members])
}

#[test]
#[ignore = "takes ten minutes, and wants Go and Java; `cargo xtask drivers` runs it"]
fn whole() -> Result<()> {
    let only = std::env::var(ONLY).unwrap_or_default();
    let words: Vec<_> = only.split(',').filter(|word| !word.is_empty()).collect();
    let cells: Vec<_> = Cell::all().filter(|cell| cell.has(&words)).collect();
    ensure!(!cells.is_empty(), "no cell has all of these names: {only}");
    equal(&cells)
}

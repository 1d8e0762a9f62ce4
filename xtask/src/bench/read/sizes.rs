//! The sizes of the collections.

use std::net::SocketAddr;

use anyhow::Result;

use super::Loaded;
use crate::bench::place;
use crate::bench::table::{Row, print_group, print_heading};

/// A thousand bytes.
const KB: f64 = 1000.0;

pub(super) fn run(loaded: &Loaded, mongod: SocketAddr) -> Result<()> {
    println!(
        "\nwhat they take, in kB: data as it is, as it is stored (compressed), indexes; way/it: how many times as much as the \
         indexes of this mongoshape"
    );
    let ways: Vec<_> = loaded.places.iter().map(|place| place.way.clone()).collect();
    print_heading("", &["data", "stored", "indexes"], &ways);
    place::checkpoint(mongod)?;
    let mut rows = Vec::new();
    let mut indexes = Vec::new();
    for place in &loaded.places {
        let sizes = place.sizes(mongod)?;
        let all = sizes.all_indexes();
        let figures = [sizes.data, sizes.stored, all].map(|bytes| bytes / KB);
        rows.push(Row::of(&place.way, figures.to_vec(), vec![all]));
        indexes.push((place.way.name, sizes.indexes));
    }
    print_group("", &rows);
    println!("\ntheir indexes, each in kB\n  way                  index                         size");
    for (way, indexes) in indexes {
        for (number, (index, bytes)) in indexes.iter().enumerate() {
            let way = if number == 0 { way } else { "" };
            println!("  {way:<21}{index:<24}{:>10.1}", bytes / KB);
        }
    }
    Ok(())
}

//! The sizes of the collections.

use std::net::SocketAddr;

use anyhow::Result;

use super::Loaded;
use crate::bench::place;
use crate::bench::table::{Quantity, Row, print_group, print_heading};

/// A thousand bytes.
const KB: f64 = 1000.0;

pub(super) fn run(loaded: &Loaded, mongod: SocketAddr) -> Result<()> {
    println!("\nsizes in kB: data uncompressed, stored (compressed), indexes; comparisons are of the indexes");
    let variants: Vec<_> = loaded.places.iter().map(|place| place.variant.clone()).collect();
    print_heading("", &["data", "stored", "indexes"], &variants);
    place::checkpoint(mongod)?;
    let mut rows = Vec::new();
    let mut indexes = Vec::new();
    for place in &loaded.places {
        let sizes = place.sizes(mongod)?;
        let all = sizes.all_indexes();
        let figures = [sizes.data, sizes.stored, all].map(|bytes| bytes / KB);
        rows.push(Row::of(&place.variant, figures.to_vec(), vec![all]));
        indexes.push((place.variant.name, sizes.indexes));
    }
    print_group("", &rows, Quantity::Space);
    println!("\nindexes, each in kB\n  variant              index                         size");
    for (variant, indexes) in indexes {
        for (number, (index, bytes)) in indexes.iter().enumerate() {
            let variant = if number == 0 { variant } else { "" };
            println!("  {variant:<21}{index:<24}{:>10.1}", bytes / KB);
        }
    }
    Ok(())
}

//! Outliers that were split by hand, as the pattern's page shows it.

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::books::{BUYERS, COLLECTION, EXTRA_BUYERS, EXTRAS};

use crate::world::{World, book, buyers, says};

/// A book with its first buyers, flagged; and the document of the others.
fn by_hand(id: i32, (first, count): (i32, i32)) -> [Document; 2] {
    let mut base = book(id, first);
    base.insert("has_extras", true);
    [base, doc! { "book_id": id, EXTRA_BUYERS: buyers(first..count) }]
}

/// One as the page shows it, one with a base that is too long, and one without extras yet.
fn leave(world: &mut World) -> Result<Vec<Document>> {
    let [one, extras] = by_hand(1, (5, 300));
    let [long, others] = by_hand(2, (9, 40));
    let more = doc! { "book_id": 2, EXTRA_BUYERS: buyers(40..44) };
    let [none, _] = by_hand(3, (5, 5));
    world.write(COLLECTION, &[one, long, none, book(4, 2)])?;
    world.write(EXTRAS, &[extras, others, more])?;
    Ok(vec![book(1, 300), book(2, 44), book(3, 5), book(4, 2)])
}

#[test]
fn they_are_adopted_by_setup() -> Result<()> {
    let mut world = World::new()?;
    let whole = leave(&mut world)?;
    says(&world.proxy.run("check")?, 1, &["3 documents were split by hand"])?;
    says(&world.proxy.run_with("setup", &["--split"])?, 0, &["3 documents split"])?;
    ensure!(world.read()? == whole, "they read otherwise");
    world.is_clean()?;
    for id in 1..5 {
        world.push(id, "new")?;
        ensure!(
            world
                .read()?
                .iter()
                .any(|book| book.get_array(BUYERS).is_ok_and(|buyers| buyers.len() > 2)),
            "lost"
        );
    }
    world.is_clean()
}

#[test]
fn what_was_adopted_is_left_over_nowhere() -> Result<()> {
    let mut world = World::new()?;
    let whole = leave(&mut world)?;
    let extras = world
        .direct
        .find(&world.books.database, EXTRAS, doc! { "book_id": 1 })?;
    says(&world.proxy.run_with("setup", &["--split"])?, 0, &["3 documents split"])?;
    // As somebody leaves it who dies before he removes what he has adopted.
    world.write(EXTRAS, &extras)?;
    ensure!(world.read()? == whole, "they read otherwise");
    says(&world.proxy.run("setup")?, 0, &["1 pages that nobody counts"])?;
    world.is_clean()
}

//! The marks that a time change sets on pages, and how later writes keep them.

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::ItemIds;

use crate::time_changes::fixture::{COLLECTION, Sides, at, controls, item, set_time, shape};

struct Fixture {
    sides: Sides,
    database: String,
}

impl Fixture {
    /// Of a key with so many items, four on a page.
    fn with(items: i32) -> Result<Self> {
        let sides = Sides::on_a_standalone(shape(ItemIds::Unique))?;
        let database = sides.shaped_database();
        let mut fixture = Self { sides, database };
        fixture.insert(0..items)?;
        Ok(fixture)
    }

    fn insert(&mut self, numbers: std::ops::Range<i32>) -> Result<()> {
        let items: Vec<Document> = numbers.map(|n| item(0, n)).collect();
        self.run(doc! { "insert": COLLECTION, "documents": items })?;
        Ok(())
    }

    fn run(&mut self, mut command: Document) -> Result<Document> {
        command.insert("$db", &self.database);
        self.sides.shaped.command_ok(&command)
    }

    fn shift(&mut self, number: i32, seconds: i64) -> Result<Document> {
        self.run(set_time(doc! { "n": number }, seconds))
    }

    fn delete(&mut self, filter: Document, limit: i32) -> Result<()> {
        self.run(doc! { "delete": COLLECTION, "deletes": [{ "q": filter, "limit": limit }] })?;
        Ok(())
    }

    /// The marks of each page, in order; the layout is checked.
    fn marks(&mut self) -> Result<Vec<String>> {
        self.sides.check_layout()?;
        let controls = controls(&mut self.sides.plain, &self.database, 0)?;
        let marks = controls.iter().map(|control| {
            let marks = ["late", "unordered", "unsteady", "anchor"];
            let marks = marks.into_iter().filter(|mark| control.contains_key(mark));
            marks.collect::<Vec<_>>().join(" ")
        });
        Ok(marks.collect())
    }

    /// The numbers of the newest items.
    fn newest(&mut self, limit: i32) -> Result<Vec<i32>> {
        let find = doc! {
            "find": COLLECTION, "filter": { "k": 0 }, "sort": { "at": -1 }, "limit": limit, "$db": &self.database,
        };
        let found = self.sides.shaped.all(&find)?;
        Ok(found.iter().flat_map(|item| item.get_i32("n")).collect())
    }
}

#[test]
fn time_change_marks_the_first_page_and_the_highest_page() -> Result<()> {
    let mut fixture = Fixture::with(18)?;
    ensure!(fixture.marks()? == ["", "", "", "", ""]);
    fixture.shift(5, 90_000)?;
    ensure!(
        fixture.marks()? == ["unordered unsteady", "late", "", "", "unordered anchor"],
        "{:?}",
        fixture.marks()?
    );
    let control = controls(&mut fixture.sides.plain, &fixture.database, 0)?.swap_remove(1);
    ensure!(
        control.get_datetime("from")? == &at(4_000) && control.get_datetime("to")? == &at(90_000),
        "{control}"
    );
    ensure!(
        control.get_document("kept")? == &doc! { "from": at(4_000), "to": at(7_000) },
        "{control}"
    );
    ensure!(fixture.newest(3)? == [5, 17, 16]);
    // Pages begun since know it.
    fixture.insert(18..23)?;
    let expected = ["unordered unsteady", "late", "", "", "unordered anchor", "unordered"];
    ensure!(fixture.marks()? == expected, "{:?}", fixture.marks()?);
    // Bounds never shrink.
    fixture.shift(5, 100)?;
    let control = controls(&mut fixture.sides.plain, &fixture.database, 0)?.swap_remove(1);
    ensure!(
        control.get_datetime("from")? == &at(100) && control.get_datetime("to")? == &at(90_000),
        "{control}"
    );
    ensure!(fixture.marks()? == expected);
    Ok(())
}

#[test]
fn time_change_on_the_highest_page_marks_that_page() -> Result<()> {
    let mut fixture = Fixture::with(2)?;
    fixture.shift(1, -5)?;
    ensure!(
        fixture.marks()? == ["late unordered unsteady"],
        "{:?}",
        fixture.marks()?
    );
    let mut fixture = Fixture::with(6)?;
    fixture.shift(4, 7_500)?;
    ensure!(
        fixture.marks()? == ["unordered unsteady", "late"],
        "{:?}",
        fixture.marks()?
    );
    fixture.insert(6..10)?;
    ensure!(
        fixture.marks()? == ["unordered unsteady", "late", "unordered"],
        "{:?}",
        fixture.marks()?
    );
    Ok(())
}

#[test]
fn time_between_its_neighbours_sets_no_mark() -> Result<()> {
    let mut fixture = Fixture::with(10)?;
    fixture.shift(5, 5_500)?;
    fixture.shift(9, 50_000)?;
    ensure!(fixture.marks()? == ["", "", ""]);
    Ok(())
}

/// When the highest page is removed, the new highest page gets its marks.
#[test]
fn removing_the_highest_page_marks_the_page_before_it() -> Result<()> {
    for one_by_one in [true, false] {
        let mut fixture = Fixture::with(24)?;
        fixture.shift(5, 90_000)?;
        for highest in (2..6).rev() {
            ensure!(fixture.marks()?.len() == highest + 1);
            let first = i32::try_from(highest * 4)?;
            if one_by_one {
                for number in first..first + 4 {
                    fixture.delete(doc! { "n": number }, 1)?;
                }
            } else {
                fixture.delete(doc! { "n": { "$gte": first } }, 0)?;
            }
            ensure!(fixture.marks()?.len() == highest, "{:?}", fixture.marks()?);
            let newest = if highest == 2 {
                vec![5, 7, 6]
            } else {
                vec![5, first - 1, first - 2]
            };
            ensure!(fixture.newest(3)? == newest, "{:?}", fixture.newest(3)?);
        }
        fixture.delete(doc! { "k": 0 }, 0)?;
        ensure!(fixture.marks()?.is_empty());
    }
    Ok(())
}

/// After a reservation, another writer may begin the next page at any time, and may not know of the change.
#[test]
fn time_change_does_not_happen_while_a_page_is_reserved() -> Result<()> {
    let mut fixture = Fixture::with(12)?;
    let database = fixture.database.clone();
    let change = |fixture: &mut Fixture, change: Document| {
        let update = doc! { "q": { "k": 0, "control.page": 2 }, "u": change };
        fixture
            .sides
            .plain
            .command_ok(&doc! { "update": COLLECTION, "updates": [update], "$db": &database })
    };
    change(&mut fixture, doc! { "$push": { "control.next": 77_i64 } })?;
    for (number, seconds) in [(1, 90_000), (9, 90_000)] {
        let mut update = set_time(doc! { "n": number }, seconds);
        update.insert("$db", &database);
        let reply = fixture.sides.shaped.command(&update)?;
        let code = match reply.get_array("writeErrors") {
            Ok(errors) => errors
                .first()
                .and_then(|error| error.as_document()?.get_i32("code").ok()),
            Err(_) => reply.get_i32("code").ok(),
        };
        ensure!(code == Some(112), "{reply}");
    }
    ensure!(fixture.newest(3)? == [11, 10, 9]);
    change(&mut fixture, doc! { "$pull": { "control.next": 77_i64 } })?;
    fixture.shift(1, 90_000)?;
    fixture.shift(9, 95_000)?;
    ensure!(fixture.newest(3)? == [9, 1, 11]);
    ensure!(
        fixture.marks()? == ["late unordered unsteady", "", "late unordered anchor"],
        "{:?}",
        fixture.marks()?
    );
    Ok(())
}

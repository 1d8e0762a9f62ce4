//! Every command in the documents is run, in the order in which a reader would, against a real mongod: or it
//! is named in [`not_run`] with the reason.
//!
//! A document is a session in a folder of its own. Its addresses (127.0.0.1:27017, :27018 and :9216) stand
//! for free ports. `toml` blocks are the configuration from there on; `mongoshape serve` stays, until it is
//! served anew or the document ends; `mongosh URI` opens the shell that `js` blocks behind it are typed into.
//! A `text` block is what the block before it prints, see [`output`].

mod blocks;
mod comparison;
mod not_run;
mod operations;
mod output;
mod programs;
mod session;
mod spans;
mod support_matrix;
mod views;

use anyhow::{Result, ensure};
use bson::{DateTime, doc};
use proto_tests::invariants::read_all;

use blocks::{Block, Document, Kind};
use session::Session;

/// Makes a test of each document, and the list of them. Some want something to be there, or to be seen
/// afterwards.
macro_rules! sessions {
    ($($name:ident: $path:literal $(, with $with:path)? $(, then $then:path)?;)*) => {
        const SESSIONS: &[&str] = &[$($path),*];
        $(
            #[test]
            fn $name() -> Result<()> {
                let mut session = Session::start($path)?;
                $($with(&mut session)?;)?
                go_through(&mut session, $path)?;
                $($then(&session)?;)?
                session.end()
            }
        )*
    };
}

sessions! {
    readme: "README.md";
    getting_started: "docs/getting-started.md", then is_back;
    choosing_shapes: "docs/choosing-shapes.md", with trades;
    hand_written_buckets: "docs/hand-written-buckets.md";
    packing: "docs/packing.md", with trades_with_a_shape;
    outliers: "docs/outliers.md";
    storage_layout: "docs/storage-layout.md", then views::compare;
}

fn go_through(session: &mut Session, path: &str) -> Result<()> {
    for block in Document::read(path)?.blocks {
        let line = block.line;
        session
            .block(&block)
            .map_err(|error| error.context(format!("{path}:{line}")))?;
    }
    Ok(())
}

/// The documents after packing and copying back equal the original ones, byte by byte, with one trade more.
fn is_back(session: &Session) -> Result<()> {
    let mut direct = session.direct()?;
    let mut sorted = |name: &str| -> Result<Vec<_>> {
        let mut documents = read_all(&mut direct, &doc! { "find": name, "batchSize": 50_000, "$db": "shop" })?;
        documents.sort_by(|one, other| one.as_bytes().cmp(other.as_bytes()));
        Ok(documents)
    };
    let (plain, mut back) = (sorted("trades.mongoshape_plain")?, sorted("trades")?);
    ensure!(back.len() == plain.len() + 1, "{} are back", back.len());
    back.retain(|document| {
        plain
            .binary_search_by(|one| one.as_bytes().cmp(document.as_bytes()))
            .is_err()
    });
    ensure!(
        plain.len() == 50_001 && back.len() == 1,
        "{} were there, and {back:?} are new",
        plain.len()
    );
    ensure!(
        back[0].get_datetime("date")?.timestamp_millis() == 1_710_000_060_000,
        "{back:?}"
    );
    Ok(())
}

/// Enough plain documents for a proposal.
fn trades(session: &mut Session) -> Result<()> {
    let trade = |number: i32| doc! { "customerId": number % 100, "date": DateTime::from_millis(number.into()), "quantity": number };
    let trades: Vec<_> = (0..2_000).map(trade).collect();
    let index = doc! { "key": { "customerId": 1, "date": 1 }, "name": "reading" };
    let mut direct = session.direct()?;
    direct.command_ok(&doc! { "insert": "trades", "documents": trades, "$db": "shop" })?;
    direct.command_ok(&doc! { "createIndexes": "trades", "indexes": [index], "$db": "shop" })?;
    Ok(())
}

/// The same with a shape, and a shell on mongod.
fn trades_with_a_shape(session: &mut Session) -> Result<()> {
    trades(session)?;
    let taken_for_granted = [
        (
            Kind::Toml,
            "[[bucket]]\nnamespace = \"shop.trades\"\nkey = \"customerId\"\ntime = \"date\"\n",
        ),
        (Kind::Sh, "mongosh \"mongodb://127.0.0.1:27017/shop\""),
    ];
    for (kind, text) in taken_for_granted {
        session.block(&Block {
            kind,
            text: text.to_owned(),
            line: 0,
        })?;
    }
    Ok(())
}

#[test]
fn every_code_block_is_executed_or_listed() -> Result<()> {
    let documents = blocks::all()?;
    let mut left_out = not_run::stale(&documents);
    for document in &documents {
        if SESSIONS.contains(&document.path.as_str()) {
            continue;
        }
        for block in &document.blocks {
            if block.kind != Kind::Text && !not_run::is_all_named(&document.path, block) {
                left_out.push(format!(
                    "{}:{}: is neither run nor named in not_run.rs",
                    document.path, block.line
                ));
            }
        }
    }
    ensure!(left_out.is_empty(), "{}", left_out.join("\n"));
    Ok(())
}

//! Runs an unchanged application on mongod and then through the proxy, and compares.

use std::fmt::Write as _;
use std::process::Command;

use anyhow::{Result, ensure};
use bson::doc;
use proto_tests::{Mongod, Proxy, ProxyOptions, Shape, database_name, invariants, raw};

use crate::printed;

/// As often as the mongod of these tests deletes expired documents.
const EXPIRE_INTERVAL_MS: u32 = 1000;

/// An application with one collection that is stored in buckets behind the proxy.
pub(super) struct Application {
    pub(super) collection: &'static str,
    pub(super) shape: Shape,
    /// Lines that it prints at least: a program that ended early would compare nothing.
    pub(super) steps: usize,
}

impl Application {
    /// Runs the program that `command` makes for a connection string, first on mongod itself, then through the
    /// proxy in a database of the same name, as errors name it. Fails for a line that differs, for stored
    /// documents that are not pages, and for pages that break the layout.
    pub(super) fn compare(&self, mongod: &Mongod, command: impl Fn(&str) -> Command) -> Result<()> {
        let database = database_name();
        let uri = |uri: &str| uri.replacen("/?", &format!("/{database}?"), 1);
        let plain = printed(command(&uri(&mongod.uri())))?;
        ensure!(plain.lines().count() >= self.steps, "too few steps:\n{plain}");
        let mut direct = raw::Connection::open(mongod.address())?;
        let drop = doc! { "dropDatabase": 1, "$db": &database };
        direct.command_ok(&drop)?;

        let shapes = self.shape.toml(&format!("{database}.{}", self.collection));
        let options = ProxyOptions::new(&mongod.uri()).config(&shapes);
        let proxy = Proxy::start(&options.expire_every(EXPIRE_INTERVAL_MS))?;
        let through_proxy = printed(command(&uri(&proxy.uri())))?;
        check_pages(&mut direct, &database, self.collection, &self.shape)?;
        let differing = differing(&plain, &through_proxy)?;
        ensure!(differing.is_empty(), "steps differ:\n{differing}");
        direct.command_ok(&drop)?;
        Ok(())
    }
}

/// Fails for stored documents that are not pages, and for pages that break the layout.
pub(super) fn check_pages(direct: &mut raw::Connection, database: &str, collection: &str, shape: &Shape) -> Result<()> {
    invariants::check(direct, database, collection, shape)?;
    let pages = doc! { &shape.items: { "$type": "array" } };
    let count = doc! { "count": collection, "query": pages, "$db": database };
    let pages = direct.command_ok(&count)?.get_i32("n")?;
    ensure!(
        pages > 1,
        "{pages} pages are left: the application is to leave documents"
    );
    Ok(())
}

/// The lines that differ: of each, the plain one and the shaped one.
fn differing(plain: &str, shaped: &str) -> Result<String> {
    let lines = plain.lines().count();
    ensure!(lines == shaped.lines().count(), "not {lines} steps:\n{shaped}");
    let mut differing = String::new();
    for (plain, shaped) in plain
        .lines()
        .zip(shaped.lines())
        .filter(|(plain, shaped)| plain != shaped)
    {
        writeln!(differing, "  plain:  {plain}\n  shaped: {shaped}")?;
    }
    Ok(differing)
}

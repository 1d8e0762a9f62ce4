//! Observe mode counts every refusal of a document's rows, and nothing else.

use anyhow::{Result, ensure};
use bson::doc;
use proto_tests::raw::Connection;
use proto_tests::sides::{COLLECTION, Sides};
use proto_tests::{Proxy, ProxyOptions, mongod};

use crate::support_matrix::answer;
use crate::support_matrix::document::{Class, Support};
use crate::support_matrix::probe::{Compared, Probe};
use crate::support_matrix::tried::Tried;

/// mongod's code for a field that a command does not have.
const UNKNOWN_FIELD: i32 = 40415;

/// A command and its option.
pub(crate) type Row = (&'static str, &'static str);

/// Sends the probes in order through a proxy in observe mode, on the plain collection. `unplanned`: the rows
/// whose refusal depends on stored documents or on mongod's replies.
pub(crate) fn all<P: Tried>(sides: &Sides<P>, probes: &[Probe], unplanned: &[Row]) -> Result<()> {
    let support = Support::read(P::DOCUMENT)?;
    let database = sides.plain_database();
    let table = sides.shape.table(&format!("{database}.{COLLECTION}"));
    let options = ProxyOptions::new(&mongod::shared_replica_set().uri());
    let proxy = Proxy::start(&options.config(&format!("{table}mode = \"observe\"\n")))?;
    let mut application = Connection::open(proxy.address())?;
    let mut wrong = Vec::new();
    let mut cursor = 0;
    for probe in probes {
        let is_refused = match support.class(probe.command, probe.option) {
            // mongod does not know the option, so the error is mongod's.
            Some(Class::Refused(UNKNOWN_FIELD)) => false,
            Some(Class::Refused(_)) => true,
            _ => probe.compared == Compared::Refused,
        };
        let before = refusals(&proxy)?;
        let reply = application.command(&answer::prepared(&probe.sent, &database, cursor))?;
        cursor = answer::cursor(&reply);
        // A command is observed before the next one is read.
        application.command_ok(&doc! { "ping": 1, "$db": "admin" })?;
        let is_counted = refusals(&proxy)? - before > 0.5;
        let may_be_missed = unplanned.contains(&(probe.command, probe.option));
        if is_counted != is_refused && !(may_be_missed && is_refused) {
            let row = format!("{} {}", probe.command, probe.option);
            wrong.push(format!("{row}: observed is {is_counted}: {} {reply}", probe.sent));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// The number of observed refusals.
fn refusals(proxy: &Proxy) -> Result<f64> {
    let text = proxy.admin_get("/metrics")?.body;
    let lines = text
        .lines()
        .filter(|line| line.starts_with("mongoshape_observed_rejected_total{"));
    let values = lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
    Ok(values.sum())
}

//! Clients that send requests and do not read replies.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bson::doc;
use proto_tests::shaped::COLLECTION;
use proto_tests::{Level, frame};

use super::{SLOW, beside_a_healthy_client, check_limits, line_of, shaped};

const CLIENTS: u32 = 8;
const DOCUMENT_BYTES: usize = 10_000_000;

/// Each requests ten megabytes a hundred times: eight gigabytes, if the proxy kept them.
#[test]
fn client_that_never_reads_buffers_one_reply_and_is_disconnected() -> Result<()> {
    let shaped = shaped("send_timeout_ms = 1500")?;
    shaped.proxy.expect_log(Level::Warn, SLOW);
    let mut writer = shaped.application()?;
    for collection in ["plain", COLLECTION] {
        let document = doc! { "_id": 1, "k": 1, "text": "x".repeat(DOCUMENT_BYTES) };
        let insert = doc! { "insert": collection, "documents": [document], "$db": &shaped.database };
        writer.command_ok(&insert)?;
    }
    let before = shaped.proxy.peak_kib()?;
    beside_a_healthy_client(&shaped.proxy, || {
        let mut clients = Vec::new();
        for number in 0..CLIENTS {
            let mut connection = shaped.application()?;
            let collection = if number % 2 == 0 { "plain" } else { COLLECTION };
            let find = doc! { "find": collection, "filter": { "k": 1 }, "$db": &shaped.database };
            let frames = (0..100)
                .map(|request| frame::command(request, 0, &find))
                .collect::<Result<Vec<_>>>()?;
            connection.send(&frames.concat())?;
            clients.push(connection);
        }
        let series = "mongoshape_limits_hit_total{limit=\"send_timeout\"}";
        let deadline = Instant::now() + Duration::from_secs(30);
        while shaped.proxy.metric(series) < f64::from(CLIENTS) - 0.5 {
            ensure!(
                Instant::now() < deadline,
                "only {} were cut",
                shaped.proxy.metric(series)
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        for client in &clients {
            let line = line_of(&shaped.proxy, client.stream().local_addr()?)?;
            ensure!(line.text.contains(SLOW), "{}", line.text);
        }
        check_limits(&shaped.proxy, &[("send_timeout", CLIENTS)])?;
        // For each: an answer, twice while it is made of another one or its buffer grows.
        let grown = shaped.proxy.peak_kib()?.saturating_sub(before);
        let most = u64::from(CLIENTS) * 3 * DOCUMENT_BYTES as u64 / 1024;
        ensure!(grown < most, "{grown} kB for {CLIENTS} clients");
        Ok(())
    })
}

//! The operator's page in a real Chromium, with JavaScript and without: its numbers equal those of `/metrics`, it says
//! what to do, and it fits on a phone.
#![expect(clippy::print_stdout, reason = "reports that the test was not run")]

use anyhow::{Context as _, Result, ensure};
use bson::doc;
use proto_tests::raw::Connection;
use proto_tests::{Browser, Level, Proxy, ProxyOptions, Scripts, browser, database_name, mongod};

const TOKEN: &str = "a-token-of-this-test";

/// The health, the upstream, shapes, the refused command with the alternative, and the warning.
const SHOWN: [&str; 10] = [
    "<b>Ready</b>",
    "Upstream: ",
    ", used</li>",
    "items",
    "books",
    "rewrite",
    "pages of 10",
    "Refused commands: 1.",
    "docs/support.md",
    "violates the protocol",
];

/// Some of everything that the page shows. The connection stays open.
fn work(proxy: &Proxy, database: &str) -> Result<Connection> {
    let mut connection = Connection::open(proxy.address())?;
    let documents: Vec<_> = (0..95)
        .map(|number| doc! { "_id": number, "k": number % 3, "n": number })
        .collect();
    connection.command_ok(&doc! { "insert": "items", "documents": documents, "$db": database })?;
    let book = doc! { "_id": 1, "buyers": (0..30).collect::<Vec<_>>() };
    connection.command_ok(&doc! { "insert": "books", "documents": [book], "$db": database })?;
    for _ in 0..3 {
        connection.command_ok(&doc! { "find": "items", "filter": { "k": 1 }, "limit": 5, "$db": database })?;
        connection.command_ok(&doc! { "find": "books", "$db": database })?;
        connection.command_ok(&doc! { "ping": 1, "$db": database })?;
    }
    let refused =
        connection.command(&doc! { "mapReduce": "items", "map": "", "reduce": "", "out": "o", "$db": database })?;
    ensure!(refused.get_f64("ok")? < 0.5, "{refused}");
    // A closed connection is a warning, whose text is a client's: an opcode that there is none of.
    let mut other = Connection::open(proxy.address())?;
    other.send(&[16, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0])?;
    ensure!(other.is_closed()?);
    proxy.wait_for_log("violates the protocol")?;
    Ok(connection)
}

/// The cells of the page that name their series: (selector, number shown).
fn cells(html: &str) -> Result<Vec<(String, f64)>> {
    let number = |part: &str| {
        let (selector, rest) = part.split_once("\">").context("a cell begins")?;
        let (shown, _) = rest.split_once('<').context("a cell ends")?;
        let digits: String = shown.chars().filter(|character| *character != '\u{202f}').collect();
        Ok((selector.replace("&quot;", "\""), digits.parse()?))
    };
    html.split("data-series=\"").skip(1).map(number).collect()
}

/// The sum of the series that a selector means.
fn sum(metrics: &str, selector: &str) -> f64 {
    let (name, labels) = selector.split_once('{').unwrap_or((selector, ""));
    let labels: Vec<_> = labels
        .trim_end_matches('}')
        .split(',')
        .filter(|label| !label.is_empty())
        .collect();
    let values = metrics.lines().filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let (own_name, own_labels) = series.split_once('{').unwrap_or((series, ""));
        let own_labels: Vec<_> = own_labels.trim_end_matches('}').split(',').collect();
        let is_meant = own_name == name && labels.iter().all(|label| own_labels.contains(label));
        is_meant.then(|| value.parse::<f64>().ok()).flatten()
    });
    values.sum()
}

fn shows_the_metrics(html: &str, proxy: &Proxy, database: &str) -> Result<()> {
    let metrics = proxy.admin_get("/metrics")?.body;
    let cells = cells(html)?;
    for (selector, shown) in cells.iter().filter(|(selector, _)| !selector.is_empty()) {
        ensure!(
            (sum(&metrics, selector) - *shown).abs() < 0.5,
            "{selector}: {shown} is shown\n{metrics}"
        );
    }
    let of =
        |name: &str, collection: &str, label: &str| format!("{name}{{namespace=\"{database}.{collection}\"{label}}}");
    let some = [
        "mongoshape_commands_total{command=\"find\",outcome=\"rewritten\"}".to_owned(),
        "mongoshape_client_connections".to_owned(),
        "mongoshape_command_duration_seconds_count{outcome=\"relayed\"}".to_owned(),
        "mongoshape_buckets_opened_total".to_owned(),
        of("mongoshape_bucket_items_inserted_total", "items", ""),
        of("mongoshape_reads_total", "items", ",strategy=\"page\""),
        of("mongoshape_rejected_total", "items", ""),
        of("mongoshape_outlier_spills_total", "books", ""),
    ];
    for selector in &some {
        let there = cells.iter().any(|(shown, number)| shown == selector && *number > 0.0);
        ensure!(there, "no {selector} above zero in {cells:?}");
    }
    for words in SHOWN {
        ensure!(html.contains(words), "no {words} in {html}");
    }
    for words in ["Some(", "None<", "\\u{", "Other(", "::"] {
        let (page, _) = html.split_once("<script").context("a script")?;
        let (_, page) = page.split_once("<body>").context("a body")?;
        ensure!(!page.contains(words), "{words} in {page}");
    }
    Ok(())
}

/// The charts have values at the time that the reader points at, and a phone scrolls tables, not the page.
fn charts_and_widths(browser: &mut Browser) -> Result<()> {
    browser.evaluate(
        "void document.querySelector('figure svg').dispatchEvent(new PointerEvent('pointermove', { clientX: 0 }))",
    )?;
    browser.wait(
        "document.querySelectorAll('line.pointer').length === 8 \
         && document.querySelector('figcaption span').textContent.endsWith(' s ago')",
    )?;
    for width in [390, 1440] {
        browser.screen("light", width)?;
        browser.wait(&format!("document.documentElement.scrollWidth <= {width}"))?;
    }
    Ok(())
}

#[test]
fn page_without_shapes_says_what_to_configure() -> Result<()> {
    let proxy = Proxy::start(&ProxyOptions::new(&mongod::shared().uri()))?;
    let page = proxy.admin_get("/")?.body;
    for words in [
        "Ready",
        "No shape is configured",
        "[[bucket]]",
        "docs/getting-started.md",
    ] {
        ensure!(page.contains(words), "no {words} in {page}");
    }
    for words in ["Bucket shapes", "Outlier shapes", "Refused", "Limits", "Pages"] {
        ensure!(!page.contains(&format!("<h2>{words}")), "{words} in {page}");
    }
    Ok(())
}

#[test]
fn operators_page_shows_metrics_with_and_without_javascript() -> Result<()> {
    let Some(mut browser) = Browser::start()? else {
        println!("not run, there is no Chromium here: {}", browser::INSTALL);
        return Ok(());
    };
    let database = database_name();
    let shapes = format!(
        "[[bucket]]\nnamespace = \"{database}.items\"\nkey = \"k\"\n\n\
         [[outlier]]\nnamespace = \"{database}.books\"\narray = \"buyers\"\nthreshold = 10"
    );
    let options = ProxyOptions::new(&mongod::shared().uri()).config(&shapes).token(TOKEN);
    let proxy = Proxy::start(&options)?;
    proxy.expect_log(Level::Warn, "violates the protocol");
    ensure!(proxy.admin_get_as(None, "/")?.status == 401);
    let _connection = work(&proxy, &database)?;
    browser.password(TOKEN)?;
    browser.open(proxy.admin_address(), Scripts::Off)?;
    let html = browser.html()?;
    shows_the_metrics(&html, &proxy, &database)?;
    ensure!(
        html.contains("data-patterns=\"bucket outlier\" hidden"),
        "there are no plots without JavaScript"
    );
    browser.open(proxy.admin_address(), Scripts::On)?;
    shows_the_metrics(&browser.html()?, &proxy, &database)?;
    // Polled, drawn, and the tables fetched anew.
    browser.evaluate("void (document.getElementById('tables').firstChild.dataset.old = 'yes')")?;
    browser.wait("Number(document.getElementById('plots').dataset.samples) >= 2")?;
    browser.wait("document.querySelector('[data-old]') === null")?;
    browser.wait("document.querySelectorAll('path.series').length >= 4")?;
    shows_the_metrics(&browser.html()?, &proxy, &database)?;
    charts_and_widths(&mut browser)?;
    ensure!(browser.complaints().is_empty(), "{:?}", browser.complaints());
    Ok(())
}

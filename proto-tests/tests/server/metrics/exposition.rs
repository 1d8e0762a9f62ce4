//! `/metrics` as series and values, and the expected ones.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use proto_tests::Proxy;

/// Every series of the proxy's own, named as printed, without `mongoshape_`.
pub(crate) type Series = BTreeMap<String, f64>;

/// What there is now.
pub(crate) fn scrape(proxy: &Proxy) -> Result<Series> {
    let text = proxy.admin_get("/metrics")?.body;
    let ours = text.lines().filter_map(|line| line.strip_prefix("mongoshape_"));
    ours.map(|line| {
        let (name, value) = line.rsplit_once(' ').context("a series has a value")?;
        Ok((name.to_owned(), value.parse()?))
    })
    .collect()
}

/// What is expected: everything else is 0.
#[derive(Debug, Default)]
pub(crate) struct Expected(Series);

impl Expected {
    pub(crate) fn add(&mut self, series: impl Into<String>, count: f64) {
        *self.0.entry(series.into()).or_default() += count;
    }

    /// Compares every counter and gauge exactly, every histogram by its count, and those of items by their
    /// buckets too.
    pub(crate) fn check(&self, is: &Series) -> Result<()> {
        let mut wrong = Vec::new();
        for (name, value) in is {
            if name.contains("_seconds_") && !name.contains("_seconds_count") {
                continue;
            }
            let expected = self.0.get(name).copied().unwrap_or_default();
            if (value - expected).abs() > 0.01 {
                wrong.push(format!("{name} is {value}, not {expected}"));
            }
        }
        let missing = self.0.keys().filter(|name| !is.contains_key(*name));
        wrong.extend(missing.map(|name| format!("{name} is not there")));
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
        Ok(())
    }
}

/// Whether the histograms of seconds hold together: the two parts of the commands' time are all of it.
pub(crate) fn check_seconds(is: &Series) -> Result<()> {
    let value = |name: &str| is.get(name).copied().with_context(|| format!("no series {name}"));
    let sum = |part: &str| -> f64 {
        let of_part = is.iter().filter(|(name, _)| name.starts_with(part));
        of_part.map(|(_, value)| value).sum()
    };
    let whole = sum("command_duration_seconds_sum");
    let (upstream, overhead) = (
        sum("upstream_duration_seconds_sum"),
        value("proxy_overhead_seconds_sum")?,
    );
    ensure!(upstream > 0.0 && overhead > 0.0, "{upstream} s and {overhead} s");
    ensure!(
        (whole - upstream - overhead).abs() < 1e-6,
        "{upstream} s and {overhead} s are not {whole} s"
    );
    for (name, bucket) in is.iter().filter(|(name, _)| name.contains("le=\"+Inf\"")) {
        let count = name.replace("_bucket{", "_count{").replace("le=\"+Inf\"", "");
        let count = count.replace(",}", "}").replace("{}", "");
        ensure!((bucket - value(&count)?).abs() < 0.01, "{name} is not {count}");
    }
    Ok(())
}

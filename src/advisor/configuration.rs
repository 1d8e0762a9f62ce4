//! Formats proposals as configuration to paste. Pure.
//!
//! In comments, text that comes from a server is quoted as TOML.

use std::fmt::Write as _;

use toml::Value;

use super::bucket::BucketProposal;
use super::outlier::OutlierProposal;

#[derive(Debug)]
pub(super) enum Proposal {
    Bucket(BucketProposal),
    Outlier(OutlierProposal),
}

/// A complete configuration: the listener, the upstream, and the shapes in observe mode.
pub(super) fn configuration(uri: &str, proposals: &[(String, Proposal)]) -> String {
    let mut text = String::from(
        "# Proposed by `mongoshape advise`. With mode = \"observe\" nothing is rewritten: the proxy relays commands, and counts \
         those\n# that it would rewrite or refuse. docs/choosing-shapes.md lists the steps before mode = \"rewrite\".\n",
    );
    let _ = write!(
        text,
        "[listen]\naddress = \"127.0.0.1:27018\"\n\n[upstream]\n# Without the user and the password. Add them if `check` needs \
         them.\nuri = {}\n",
        quoted(uri)
    );
    for (namespace, proposal) in proposals {
        match proposal {
            Proposal::Bucket(bucket) => add_bucket(&mut text, namespace, bucket),
            Proposal::Outlier(outlier) => add_outlier(&mut text, namespace, outlier),
        }
    }
    text
}

fn add_bucket(text: &mut String, namespace: &str, bucket: &BucketProposal) {
    let key = match bucket.key.as_slice() {
        [field] => quoted(field),
        fields => {
            let fields: Vec<String> = fields.iter().map(|field| quoted(field)).collect();
            format!("[{}]", fields.join(", "))
        }
    };
    let _ = write!(text, "\n[[bucket]]\nnamespace = {}\nkey = {key}\n", quoted(namespace));
    if let Some(time) = &bucket.time {
        let _ = writeln!(text, "time = {}", quoted(time));
    }
    let _ = writeln!(text, "max_items = {}", bucket.max_items);
    if !bucket.renames.names.is_empty() {
        let pair = |(name, short): (&String, &String)| format!("{} = {}", quoted(name), quoted(short));
        let pairs: Vec<String> = bucket.renames.names.iter().map(pair).collect();
        let _ = writeln!(text, "#rename = {{ {} }}", pairs.join(", "));
    }
    // Change streams require unique `_id`s.
    text.push_str(if bucket.change_streams {
        "change_streams = true\n"
    } else {
        "#item_ids = \"stored\"\n"
    });
    text.push_str("mode = \"observe\"\n");
}

fn add_outlier(text: &mut String, namespace: &str, outlier: &OutlierProposal) {
    let _ = write!(
        text,
        "\n[[outlier]]\nnamespace = {}\narray = {}\nthreshold = {}\n",
        quoted(namespace),
        quoted(&outlier.array),
        outlier.threshold
    );
    if let Some(extras) = &outlier.extras {
        let _ = writeln!(text, "extras = {{ collection = {} }}", quoted(extras));
    }
    text.push_str("mode = \"observe\"\n");
}

/// A connection string without possible secrets: the hosts, and options that describe the servers.
pub(super) fn public(uri: &str) -> String {
    let (scheme, rest) = uri.split_once("://").unwrap_or(("mongodb", uri));
    let (before, options) = rest.split_once('?').unwrap_or((rest, ""));
    let hosts = before.rsplit_once('@').map_or(before, |(_, hosts)| hosts);
    let hosts = hosts.split_once('/').map_or(hosts, |(hosts, _)| hosts);
    let is_public = |option: &&str| {
        let name = option.split_once('=').map_or(*option, |(name, _)| name).to_lowercase();
        ["replicaset", "directconnection", "tls", "ssl", "tlscafile"].contains(&name.as_str())
    };
    let options: Vec<&str> = options.split('&').filter(is_public).collect();
    let options = if options.is_empty() {
        String::new()
    } else {
        format!("?{}", options.join("&"))
    };
    format!("{scheme}://{hosts}/{options}")
}

/// A TOML string on one line.
fn quoted(text: &str) -> String {
    let quoted = Value::String(text.to_owned()).to_string();
    // TOML writes a multi-line string over several lines, which a comment cannot contain.
    if quoted.contains('\n') {
        format!("{text:?}")
    } else {
        quoted
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{books, trades};
    use super::*;
    use crate::config::Config;
    use crate::pattern::shapes::{Mode, Shape};

    fn parsed(text: &str) -> Config {
        Config::parse(text, "m.toml", &|_| None).unwrap_or_else(|errors| panic!("{errors}\n{text}"))
    }

    #[test]
    fn proposal_is_a_valid_configuration() {
        let proposals = [
            ("shop.trades".to_owned(), Proposal::Bucket(trades())),
            ("shop.sales".to_owned(), Proposal::Outlier(books())),
        ];
        let text = configuration("mongodb://a:1/", &proposals);
        let config = parsed(&text);
        assert_eq!(config.shapes.iter().count(), 2);
        assert!(config.shapes.iter().all(|shape| shape.mode() == Mode::Observe));
        // The options in comments are valid, too.
        let config = parsed(
            &text
                .replace("\n#rename", "\nrename")
                .replace("\n#item_ids", "\nitem_ids"),
        );
        let renames = config.shapes.iter().filter_map(|shape| match &**shape {
            Shape::Bucket(shape) => Some(shape.rename().pairs().count()),
            Shape::Outlier(_) => None,
        });
        assert_eq!(renames.collect::<Vec<_>>(), [4]);
        parsed(&configuration("mongodb://a:1/", &[]));
    }

    #[test]
    fn no_secret_of_the_connection_string_is_shown() {
        let check = |uri: &str, expected: &str| assert_eq!(public(uri), expected);
        check("mongodb://a:1", "mongodb://a:1/");
        check(
            "mongodb://me:se%40cret@a:1,b:2/shop?replicaSet=rs0",
            "mongodb://a:1,b:2/?replicaSet=rs0",
        );
        check(
            "mongodb+srv://me:secret@a.b/?tls=true&tlsCertificateKeyFilePassword=x",
            "mongodb+srv://a.b/?tls=true",
        );
        check(
            "mongodb://a:1/?authMechanismProperties=AWS_SESSION_TOKEN:x@y&directConnection=true",
            "mongodb://a:1/?directConnection=true",
        );
    }

    #[test]
    fn names_are_quoted_for_toml() {
        for name in ["a\nmode = \"off\"", "a\"b", "'''", "\u{1b}[2J", "a'\"\\\r\nb"] {
            let line = format!("x = {}", quoted(name));
            assert_eq!(line.lines().count(), 1, "{line}");
            let table: toml::Table = line.parse().unwrap_or_else(|error| panic!("{error}: {line}"));
            assert_eq!(table["x"].as_str(), Some(name));
        }
    }
}

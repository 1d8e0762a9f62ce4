use super::*;
use crate::config::{DefaultValue, Holds, OptionReference, reference};

const SHAPES: &str = "[[bucket]]\nnamespace = \"shop.trades\"\nkey = \"customerId\"\n\
    [[outlier]]\nnamespace = \"shop.sales\"\narray = \"buyers\"\nthreshold = 50\n\
    [traces]\nendpoint = \"http://a:4318\"\n";
const ONE: &str = "[listen]\naddress = \"127.0.0.1:27018\"\npresent_as = \"replica-set\"\n";
const MEMBERS: &str = "[[listen.member]]\naddress = \"127.0.0.1:27018\"\nupstream = \"db:27017\"\n";

/// A value other than that of the configuration above.
fn another(option: &OptionReference) -> String {
    if option.kind == "percentage" {
        return "50.5".to_owned();
    }
    if let DefaultValue::Number(default) = option.default {
        return if default == 0 { 1 } else { default - 1 }.to_string();
    }
    let word = |word: &str| word.trim_matches('`').to_owned();
    match option.path.rsplit('.').next().unwrap_or_default() {
        "address" => "127.0.0.1:1".to_owned(),
        "advertise" | "upstream" => "other:1".to_owned(),
        "uri" => "mongodb://other".to_owned(),
        "filter" => "warn".to_owned(),
        "endpoint" => "http://other:4318".to_owned(),
        "namespace" => "other.c".to_owned(),
        "token" => "0123456789abcdef".to_owned(),
        "threshold" => "51".to_owned(),
        _ if option.values.starts_with('`') => option.values.split(", ").map(word).nth(1).unwrap_or_default(),
        _ => "other".to_owned(),
    }
}

#[test]
fn reload_names_exactly_the_options_that_need_a_restart() {
    for option in reference().into_iter().flat_map(|table| table.options) {
        let Some(variable) = &option.variable else { continue };
        let listen = if option.path.starts_with("listen.member") {
            MEMBERS
        } else {
            ONE
        };
        let tls = if option.path.contains(".tls.") {
            let section = option.path.split('.').next().unwrap_or_default();
            format!("[{section}.tls]\ncert = \"c.pem\"\n")
        } else {
            String::new()
        };
        let text = format!("upstream.uri = \"mongodb://db\"\n{listen}{tls}{SHAPES}");
        let read = |value: Option<&str>| {
            let lookup = |name: &str| (name == variable).then(|| value.map(str::to_owned)).flatten();
            Config::parse(&text, "m.toml", &lookup).unwrap_or_else(|errors| panic!("{errors}"))
        };
        let changed = fixed(&read(None), &read(Some(&another(&option))));
        assert_eq!(
            changed.is_empty(),
            option.holds == Holds::FromReload,
            "{}: {changed:?}",
            option.path
        );
    }
}

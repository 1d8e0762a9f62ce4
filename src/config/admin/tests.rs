use super::super::error::ConfigErrors;
use super::super::model::Config;
use super::*;

const TOKEN: &str = "0123456789abcdef";

fn parse(admin: &str, variables: &[(&str, &str)]) -> Result<AdminConfig, ConfigErrors> {
    let lookup = |name: &str| {
        let found = variables.iter().find(|(variable, _)| *variable == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    let text = format!("listen.address = \"127.0.0.1:27018\"\nupstream.uri = \"mongodb://db\"\n[admin]\n{admin}");
    Config::parse(&text, "/etc/m.toml", &lookup).map(|config| config.admin)
}

#[test]
fn the_token_is_given_or_in_a_file() {
    let check = |admin: &str, variables: &[(&str, &str)], expected: &str| {
        let config = parse(admin, variables).unwrap_or_else(|errors| panic!("{errors}"));
        assert_eq!(format!("{:?}", config.token), expected);
    };
    check("", &[], "None");
    check(&format!("token = \"{TOKEN}\""), &[], "Some(Given(Token(<redacted>)))");
    check(
        "",
        &[("MONGOSHAPE_ADMIN_TOKEN", TOKEN)],
        "Some(Given(Token(<redacted>)))",
    );
    check("token_file = \"token\"", &[], "Some(File(\"/etc/token\"))");
}

#[test]
fn token_error_does_not_show_the_token() {
    let report = |admin: &str| parse(admin, &[]).unwrap_err().to_string();
    let remedy = "write one such as `openssl rand -hex 32` gives";
    assert_eq!(
        report("token = \"hush\""),
        format!("/etc/m.toml:4: `admin.token`: it must have 16 to 1024 characters; {remedy}")
    );
    assert_eq!(
        report(&format!("token = \"{TOKEN}\"\ntoken_file = \"t\"")),
        "/etc/m.toml:4: `admin.token`: `token_file` is set as well; remove one of them"
    );
    assert_eq!(
        report("token_file = \"\""),
        "/etc/m.toml:4: `admin.token_file`: it is empty; name a file that contains the token"
    );
}

#[test]
fn remotely_reachable_admin_address_is_reported() {
    let check = |admin: &str, expected: Option<&str>| {
        let config = parse(admin, &[]).unwrap_or_else(|errors| panic!("{errors}"));
        let exposure = config.exposure();
        assert_eq!(exposure.is_some(), expected.is_some(), "{admin}: {exposure:?}");
        assert!(
            exposure.unwrap_or_default().contains(expected.unwrap_or_default()),
            "{exposure:?}"
        );
    };
    let anywhere = "address = \"0.0.0.0:9216\"\n";
    let token = format!("token = \"{TOKEN}\"\n");
    let tls = "tls = { cert = \"a.pem\" }\n";
    let mutual = "tls = { cert = \"a.pem\", client_ca = \"ca.pem\" }\n";
    check("", None);
    check("address = \"[::1]:9216\"", None);
    check(anywhere, Some("every client that reaches this address"));
    check(
        &format!("{anywhere}{tls}"),
        Some("every client that reaches this address"),
    );
    check(&format!("{anywhere}{token}"), Some("unencrypted"));
    check(&format!("{anywhere}{token}{tls}"), None);
    check(&format!("{anywhere}{mutual}"), None);
}

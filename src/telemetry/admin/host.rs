//! Protects against DNS rebinding: a web page whose host name was changed to resolve to this
//! machine could read the endpoints. Its browser sends that host name.

use std::net::IpAddr;

use hyper::HeaderMap;
use hyper::header::HOST;
use hyper::http::uri::Authority;

/// Whether a request is addressed to an IP address or `localhost`, which no foreign page can be. A
/// request without a host does not come from a browser.
pub(super) fn is_local(headers: &HeaderMap) -> bool {
    headers.get_all(HOST).iter().all(|host| {
        let authority = Authority::try_from(host.as_bytes());
        authority.is_ok_and(|authority| is_local_name(authority.host()))
    })
}

fn is_local_name(host: &str) -> bool {
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    host.eq_ignore_ascii_case("localhost") || address.unwrap_or(host).parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_localhost_are_local() {
        let check = |host: &str, expected: bool| {
            let headers = HeaderMap::from_iter([(HOST, host.parse().unwrap())]);
            assert_eq!(is_local(&headers), expected, "{host}");
        };
        check("127.0.0.1:9216", true);
        check("127.0.0.1", true);
        check("[::1]:9216", true);
        check("192.0.2.7", true);
        check("localhost:8080", true);
        check("LocalHost", true);
        check("127.0.0.1.example.com", false);
        check("localhost.example.com:9216", false);
        check("example.com", false);
        check("user@example.com", false);
        check("", false);
        let both = [
            (HOST, "localhost".parse().unwrap()),
            (HOST, "example.com".parse().unwrap()),
        ];
        assert!(!is_local(&HeaderMap::from_iter(both)));
        assert!(is_local(&HeaderMap::new()));
    }
}

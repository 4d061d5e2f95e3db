//! Host names of Ingresses, and the ids of resources that belong to one.

use std::net::IpAddr;

use yumen_base::local_address::is_local_address;

/// Bytes of a host name (RFC 1035 §2.3.4).
const HOST_MAX: usize = 253;

/// A host name in lower case, exact or `*.` and a name; `None` if a scope cannot have it.
pub(super) fn host_name(written: &str) -> Option<String> {
    let host = written.to_ascii_lowercase();
    let name = host.strip_prefix("*.").unwrap_or(&host);
    let is_label = |label: &str| {
        let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        label.bytes().all(is_inner) && !label.is_empty() && !label.starts_with('-') && !label.ends_with('-')
    };
    (name.split('.').all(is_label) && host.len() <= HOST_MAX).then_some(host)
}

/// Names of the machine itself in the files of common systems, beside `localhost` and names under it (RFC 6761 §6.3).
const OWN_NAMES: [&str; 7] = [
    "localhost.localdomain",
    "localhost4",
    "localhost4.localdomain4",
    "localhost6",
    "localhost6.localdomain6",
    "ip6-localhost",
    "ip6-loopback",
];

/// Whether a host is the gateway's own machine or its link, whose listeners are no services of the cluster.
pub(super) fn is_inner(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.').to_ascii_lowercase();
    let address = host.split('%').next().unwrap_or_default();
    if let Ok(address) = address.parse::<IpAddr>() {
        return is_local_address(address);
    }
    // Resolvers read 127.1, 2130706433 and 0x7f.1 as addresses; no name ends in a number.
    let last = host.rsplit('.').next().unwrap_or_default();
    let is_number = last.bytes().all(|byte| byte.is_ascii_digit()) || last.starts_with("0x");
    is_number || last == "localhost" || OWN_NAMES.contains(&&*host)
}

/// The host as a part of ids, in which a star is no character; `_` alone stands for every host.
pub(super) fn id_part(host: &str) -> String {
    match host.strip_prefix('*') {
        Some(suffix) => format!("_{suffix}"),
        None if host.is_empty() => "_".to_owned(),
        None => host.to_owned(),
    }
}

/// The id of the scope of a host.
pub(super) fn scope_id(host: &str) -> String {
    format!("ingress!host!{}", id_part(host))
}

/// The wildcard of the parent domain of an exact host.
pub(super) fn wildcard_of(host: &str) -> Option<String> {
    let (label, parent) = host.split_once('.')?;
    (label != "*" && parent.contains('.')).then(|| format!("*.{parent}"))
}

/// Whether a name of a certificate covers the host.
pub(super) fn covers(name: &str, host: &str) -> bool {
    let name = name.to_ascii_lowercase();
    match name.strip_prefix("*.") {
        _ if name == host => true,
        Some(parent) => host.split_once('.').is_some_and(|(label, rest)| label != "*" && rest == parent),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_covers_one_label_per_star() {
        let check = |name: &str, host: &str, expected: bool| {
            assert_eq!(covers(name, host), expected, "{name} and {host}");
        };
        check("a.example.com", "a.example.com", true);
        check("*.example.com", "a.example.com", true);
        check("*.Example.com", "*.example.com", true);
        check("*.example.com", "a.b.example.com", false);
        check("*.example.com", "example.com", false);
        check("a.example.com", "b.example.com", false);
        check("*.b.example.com", "*.example.com", false);
    }

    #[test]
    fn the_machine_itself_and_its_link_are_inner() {
        for inner in [
            "",
            "localhost",
            "LOCALHOST.",
            "a.localhost",
            "localhost.localdomain",
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "::",
            "[::1]",
            "::ffff:127.0.0.1",
            "169.254.169.254",
            "fe80::1",
            "fe80::1%eth0",
            "127.1",
            "2130706433",
            "0x7f000001",
            "ip6-localhost",
        ] {
            assert!(is_inner(inner), "{inner:?}");
        }
        for outer in
            ["a.example.com", "localhost.example.com", "10.0.0.1", "128.0.0.1", "fd00::1", "::ffff:10.0.0.1"]
        {
            assert!(!is_inner(outer), "{outer:?}");
        }
    }

    #[test]
    fn hosts_that_no_scope_can_have_are_refused() {
        for bad in ["", "*", "a..b", "-a.com", "a.*.com", "a/b", "http://a", "a:80", "\u{e9}.com"] {
            assert_eq!(host_name(bad), None, "{bad}");
        }
        assert_eq!(host_name("*.A.com").as_deref(), Some("*.a.com"));
    }
}

//! Host names of Ingresses, and the ids of resources that belong to one.

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
    fn hosts_that_no_scope_can_have_are_refused() {
        for bad in ["", "*", "a..b", "-a.com", "a.*.com", "a/b", "http://a", "a:80", "\u{e9}.com"] {
            assert_eq!(host_name(bad), None, "{bad}");
        }
        assert_eq!(host_name("*.A.com").as_deref(), Some("*.a.com"));
    }
}

//! URLs of HTTP sinks in settings.

use yumen_config::schema::InvalidSettings;
use yumen_plugin::{SinkAddress, SinkTls};

/// A URL as an origin and a target.
#[derive(Debug)]
pub(crate) struct SinkUrl {
    /// `https://host:port`, as written.
    pub(crate) origin: String,
    /// Path and query; `/` without a path.
    pub(crate) target: String,
}

impl SinkUrl {
    /// Parses the setting at `path`. The message does not repeat the URL, which may have a password in it.
    pub(crate) fn parse(path: &str, url: &str) -> Result<SinkUrl, InvalidSettings> {
        let refused =
            || InvalidSettings::at(path, "not an http or https URL such as http://127.0.0.1:8080/logs");
        let (scheme, rest) = url.split_once("://").ok_or_else(refused)?;
        let scheme = scheme.to_ascii_lowercase();
        if !matches!(scheme.as_str(), "http" | "https") {
            return Err(refused());
        }
        let (authority, target) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        if authority.contains('@') {
            let message = "a URL with a user is not supported; use the setting for credentials instead";
            return Err(InvalidSettings::at(path, message));
        }
        let port = authority.rsplit_once(':').filter(|_| !authority.ends_with(']'));
        let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
        let is_plain = url.bytes().all(|byte| byte.is_ascii_graphic());
        if authority.is_empty() || !is_plain || port.is_some_and(|(_, port)| !is_port(port)) {
            return Err(refused());
        }
        let target = target.split('#').next().unwrap_or_default();
        let slash = if target.starts_with('/') { "" } else { "/" };
        Ok(SinkUrl { origin: format!("{scheme}://{authority}"), target: format!("{slash}{target}") })
    }

    /// Parses several URLs of servers that have the same path, and returns their origins and this path.
    pub(crate) fn parse_all(path: &str, urls: &[String]) -> Result<(Vec<String>, String), InvalidSettings> {
        let mut origins = Vec::new();
        let mut target = None;
        for (index, url) in urls.iter().enumerate() {
            let at = if urls.len() == 1 { path.to_owned() } else { format!("{path}[{index}]") };
            let url = SinkUrl::parse(&at, url)?;
            let known = target.get_or_insert_with(|| url.target.clone());
            if *known != url.target {
                return Err(InvalidSettings::at(at, "all addresses must have the same path"));
            }
            origins.push(url.origin);
        }
        Ok((origins, target.unwrap_or_default().trim_end_matches('/').to_owned()))
    }

    /// [`SinkUrl::parse_all`] of `endpoint_addr`, or else of `endpoint_addrs`.
    pub(crate) fn parse_either(
        one: Option<String>,
        several: Option<Vec<String>>,
    ) -> Result<(Vec<String>, String), InvalidSettings> {
        match one {
            Some(url) => SinkUrl::parse_all("endpoint_addr", &[url]),
            None => SinkUrl::parse_all("endpoint_addrs", &several.unwrap_or_default()),
        }
    }
}

/// The address of HTTP servers, whose certificates are verified or not.
pub(crate) fn http_servers(
    endpoints: Vec<String>,
    verify: bool,
    timeout_ms: u64,
    idle_ms: u64,
) -> SinkAddress {
    SinkAddress::Http { endpoints, tls: SinkTls { verify, ..SinkTls::default() }, timeout_ms, idle_ms }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_an_origin_and_a_target() {
        fn check(url: &str, expected: Option<(&str, &str)>) {
            let parsed = SinkUrl::parse("uri", url).ok();
            let parsed = parsed.as_ref().map(|url| (url.origin.as_str(), url.target.as_str()));
            assert_eq!(parsed, expected, "{url}");
        }
        check("http://127.0.0.1:8080/logs?a=1", Some(("http://127.0.0.1:8080", "/logs?a=1")));
        check("HTTPS://logs.example", Some(("https://logs.example", "/")));
        check("http://[::1]:80?x", Some(("http://[::1]:80", "/?x")));
        check("http://[::1]", Some(("http://[::1]", "/")));
        for refused in
            ["ftp://a/", "http://", "http://a:0/", "http://a:b/", "http://u:p@a/", "http://a b/", "a"]
        {
            check(refused, None);
        }
    }
}

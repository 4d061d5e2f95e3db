//! Lines of NGINX's access log, read by their format.

use std::collections::BTreeMap;

/// The format of ingress-nginx without `log-format-upstream`.
pub(super) const INGRESS_NGINX_FORMAT: &str = "$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent \
    \"$http_referer\" \"$http_user_agent\" $request_length $request_time [$proxy_upstream_name] \
    [$proxy_alternative_upstream_name] $upstream_addr $upstream_response_length $upstream_response_time $upstream_status \
    $req_id";

/// The combined format of NGINX and Apache.
pub(super) const COMBINED_FORMAT: &str = "$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent \"$http_referer\" \"$http_user_agent\"";

enum FormatPart {
    Literal(String),
    Variable(String),
}

/// A format of lines.
pub(super) struct LogLineFormat(Vec<FormatPart>);

impl LogLineFormat {
    /// Reads a format: text with `$name` and `${name}`.
    pub(super) fn parse(format: &str) -> LogLineFormat {
        let mut parts = Vec::new();
        let mut rest = format;
        while let Some(at) = rest.find('$') {
            push_literal(&mut parts, &rest[..at]);
            let after = &rest[at + 1..];
            let braced = after.strip_prefix('{').and_then(|inner| inner.split_once('}'));
            let (name, next) = braced.unwrap_or_else(|| {
                let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
                after.split_at(after.bytes().position(|byte| !is_name(byte)).unwrap_or(after.len()))
            });
            parts.push(FormatPart::Variable(name.to_owned()));
            rest = next;
        }
        push_literal(&mut parts, rest);
        LogLineFormat(parts)
    }

    /// The values of a line by variable; `None` if the line has another format.
    pub(super) fn read<'l>(&self, line: &'l str) -> Option<BTreeMap<&str, &'l str>> {
        let mut values = BTreeMap::new();
        let mut rest = line;
        let mut parts = self.0.iter().peekable();
        while let Some(part) = parts.next() {
            match part {
                FormatPart::Literal(text) => rest = rest.strip_prefix(text.as_str())?,
                FormatPart::Variable(name) => {
                    let end = match parts.peek() {
                        Some(FormatPart::Literal(text)) => value_end(name, rest, text)?,
                        // Without a text between them, two values have no boundary.
                        Some(FormatPart::Variable(_)) => return None,
                        None => rest.len(),
                    };
                    values.insert(name.as_str(), &rest[..end]);
                    rest = &rest[end..];
                }
            }
        }
        Some(values)
    }
}

fn push_literal(parts: &mut Vec<FormatPart>, text: &str) {
    if !text.is_empty() {
        parts.push(FormatPart::Literal(text.to_owned()));
    }
}

/// The end of a value before the text that follows it.
fn value_end(name: &str, rest: &str, follows: &str) -> Option<usize> {
    let mut from = 0;
    loop {
        let end = from + rest[from..].find(follows)?;
        // Values of several attempts are separated by `, `, those of internal redirects by ` : `.
        let goes_on = name.starts_with("upstream_")
            && (rest[..end].ends_with([',', ':']) || rest[end..].starts_with(" : "));
        // A quote in a value is escaped.
        let is_escaped = follows.starts_with('"') && rest[..end].ends_with('\\');
        if !goes_on && !is_escaped {
            return Some(end);
        }
        from = end + follows.chars().next().map_or(1, char::len_utf8);
    }
}

/// A request of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LoggedRequest {
    pub(super) method: String,
    /// Path and query.
    pub(super) target: String,
    pub(super) status: u16,
    /// The host, if the format has it.
    pub(super) host: Option<String>,
    /// The scheme, if the format has it.
    pub(super) scheme: Option<String>,
    pub(super) client: Option<String>,
    pub(super) user_agent: Option<String>,
    /// `namespace-service-port` of the services that may have got the request; empty if the format has none.
    pub(super) upstreams: Vec<String>,
    /// Whether a service responded, if the format has its address.
    pub(super) was_proxied: Option<bool>,
    /// The field `Location` of the response, if the format has it.
    pub(super) location: Option<String>,
}

impl LoggedRequest {
    /// The request of a line's values; `None` without a request and a status.
    pub(super) fn of(values: &BTreeMap<&str, &str>) -> Option<LoggedRequest> {
        let value = |name: &str| values.get(name).copied().filter(|value| !value.is_empty() && *value != "-");
        let first = |names: &[&str]| names.iter().find_map(|name| value(name)).map(str::to_owned);
        let (method, target) = match value("request") {
            Some(request) => {
                let mut words = request.split(' ');
                (words.next()?.to_owned(), words.next()?.to_owned())
            }
            None => (first(&["request_method"])?, first(&["request_uri", "uri"])?),
        };
        let (host_of_target, target) = split_target(&target)?;
        let is_method = !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase());
        let scheme = first(&["scheme", "pass_access_scheme"]).or_else(|| match values.get("server_port") {
            Some(&"443") => Some("https".to_owned()),
            Some(&"80") => Some("http".to_owned()),
            _ => None,
        });
        is_method.then_some(())?;
        Some(LoggedRequest {
            method,
            target,
            status: value("status")?.parse().ok()?,
            host: host_of_target.or_else(|| first(&["host", "http_host", "best_http_host", "server_name"])),
            scheme,
            client: first(&["remote_addr", "the_real_ip"]),
            user_agent: first(&["http_user_agent"]),
            upstreams: ["proxy_upstream_name", "proxy_alternative_upstream_name"]
                .iter()
                .filter_map(|name| value(name).map(str::to_owned))
                .collect(),
            was_proxied: values.get("upstream_addr").map(|address| *address != "-" && !address.is_empty()),
            location: first(&["sent_http_location"]),
        })
    }
}

/// Splits a target in absolute form (RFC 9112 §3.2.2).
fn split_target(target: &str) -> Option<(Option<String>, String)> {
    if target.starts_with('/') {
        return Some((None, target.to_owned()));
    }
    let (_, rest) = target.split_once("://")?;
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    Some((Some(host.to_owned()), if path.is_empty() { "/".to_owned() } else { path.to_owned() }))
}

#[cfg(test)]
mod tests;

//! Warnings about values that are valid and match nothing: paths, hosts and nodes in the notation of another program.
//!
//! Works on decoded objects, since every object passes here.

use yumen_base::Problem;
use yumen_config::resource as config;

use super::names::ObjectName;

/// Sources of services, as `discovery_type` names them.
const SOURCES: [&str; 4] = ["dns", "consul", "consul_kv", "nacos"];

/// Warnings about the paths and hosts of a route. `has_parameters`: whether `:name` segments are parameters.
pub(super) fn of_route(name: &ObjectName, route: &config::RouteSpec, has_parameters: bool) -> Vec<Problem> {
    let paths = fields("uri", route.uri.as_deref(), "uris", route.uris.as_deref());
    let mut problems: Vec<Problem> = paths
        .filter_map(|(path, uri)| {
            let (message, remedy) = path_flaw(uri, has_parameters)?;
            Some(Problem::warning(name.to_string(), path, message).hint(remedy))
        })
        .collect();
    problems.extend(of_hosts(name, fields("host", route.host.as_deref(), "hosts", route.hosts.as_deref())));
    problems
}

/// Warnings about the hosts of a service.
pub(super) fn of_service(name: &ObjectName, service: &config::ServiceSpec) -> Vec<Problem> {
    of_hosts(name, fields("host", None, "hosts", service.hosts.as_deref())).collect()
}

/// Warnings about server names.
pub(super) fn of_server_names(name: &ObjectName, one: Option<&str>, many: Option<&[String]>) -> Vec<Problem> {
    of_hosts(name, fields("sni", one, "snis", many)).collect()
}

/// Warnings about the upstream inside an object.
pub(super) fn of_target(
    name: &ObjectName,
    inline: Option<&config::UpstreamSpec>,
    names_upstream: bool,
) -> Vec<Problem> {
    let Some(inline) = inline else { return Vec::new() };
    if names_upstream {
        let message = "\"upstream\" has no effect beside \"upstream_id\"";
        return vec![Problem::warning(name.to_string(), "upstream", message).hint("remove one of the two")];
    }
    of_upstream(name, "upstream", inline)
}

/// Warnings about an upstream at `path`.
pub(super) fn of_upstream(name: &ObjectName, path: &str, upstream: &config::UpstreamSpec) -> Vec<Problem> {
    let at = |member: &str| if path.is_empty() { member.to_owned() } else { format!("{path}.{member}") };
    let nodes = upstream.nodes.iter().flat_map(|nodes| &nodes.0);
    let mut problems: Vec<Problem> = nodes
        .filter_map(node_flaw)
        .map(|(message, remedy)| Problem::warning(name.to_string(), at("nodes"), message).hint(remedy))
        .collect();
    let mut unused = |member: &str, reason: &str, remedy: &str| {
        let message = format!("\"{member}\" has no effect {reason}");
        problems.push(Problem::warning(name.to_string(), at(member), message).hint(remedy));
    };
    if upstream.upstream_host.is_some() && upstream.pass_host != config::PassHostMode::Rewrite {
        unused("upstream_host", "without pass_host \"rewrite\"", "set pass_host to \"rewrite\"");
    }
    if upstream.key.is_some() && upstream.balance != config::BalancerType::Chash {
        unused("key", "without type \"chash\"", "set type to \"chash\"");
    }
    let is_configured = |tls: &config::UpstreamTlsSpec| {
        tls.verify
            || tls.server_name.is_some()
            || tls.client_cert.is_some()
            || tls.client_cert_id.is_some()
            || tls.ca.is_some()
    };
    if let Some(source) = upstream.discovery_type.as_deref().filter(|source| !SOURCES.contains(source)) {
        let remedy = yumen_config::suggestion(source, SOURCES);
        let remedy = remedy.unwrap_or_else(|| format!("known: {}", SOURCES.join(", ")));
        unused("discovery_type", &format!("as \"{source}\": no source of services has this name"), &remedy);
    }
    let has_tls = upstream.scheme.is_tls() || upstream.scheme == config::SchemeSpec::Kafka;
    if upstream.tls.as_ref().is_some_and(is_configured) && !has_tls {
        unused("tls", "with a scheme without TLS", "set scheme to \"https\", \"grpcs\" or \"tls\"");
    }
    let flaws = upstream.checks.iter().flat_map(|checks| checks.active.probe_field_flaws());
    problems.extend(flaws.map(|flaw| {
        let path = at(&format!("checks.active.req_headers[{}]", flaw.at));
        Problem::warning(name.to_string(), path, flaw.message).hint(flaw.remedy)
    }));
    problems
}

/// The reason why a node cannot be reached, with the remedy.
fn node_flaw(node: &config::UpstreamNode) -> Option<(String, String)> {
    let (scheme, host) = node.host.split_once("://").unwrap_or(("", &node.host));
    if scheme.is_empty() && !host.contains('/') {
        return host_flaw(&node.host);
    }
    let message = format!("no host has the name \"{}\": a node is a host and a port", node.host);
    let host = host.split('/').next().unwrap_or(host);
    let scheme = if scheme.is_empty() { "" } else { ", and the protocol in scheme" };
    Some((message, format!("write \"{host}:{}\"{scheme}", node.port)))
}

/// The reason why no host can have a name.
fn host_flaw(host: &str) -> Option<(String, String)> {
    let never = |reason: &str| format!("no host has the name \"{host}\": {reason}");
    if host.contains("${{") {
        let remedy = "close it by }}, as in ${{NAME}}".to_owned();
        return Some((never("the variable is not closed"), remedy));
    }
    if host.contains('$') {
        let name = host.trim_matches(|c: char| !c.is_alphanumeric() && c != '_');
        return Some((never("a variable has two braces"), format!("write ${{{{{name}}}}}")));
    }
    // The brackets of an IPv6 address (RFC 3986 §3.2.2) are part of the decoded host.
    let (bare, port) = host.rsplit_once(':').filter(|_| !host.ends_with(']')).unwrap_or((host, ""));
    if !port.is_empty() && !bare.contains(':') {
        return Some((
            never("the port has its own member"),
            format!("write \"{bare}\" in host, and {port} in port"),
        ));
    }
    let is_foreign = |c: char| c.is_whitespace() || "{}#?@,;\"'<>|\\".contains(c);
    let found = host.find(is_foreign).and_then(|at| host[at..].chars().next())?;
    Some((never(&format!("it has {}", shown(found))), "write a host name or an address".to_owned()))
}

/// A character in words.
fn shown(character: char) -> String {
    if character.is_whitespace() { "white space".to_owned() } else { format!("the character {character}") }
}

/// The values of a field with one value and of a field with several, with their paths.
fn fields<'v>(
    one: &'static str,
    value: Option<&'v str>,
    many: &'static str,
    values: Option<&'v [String]>,
) -> impl Iterator<Item = (String, &'v str)> {
    let several = values.unwrap_or_default().iter().enumerate();
    let several = several.map(move |(at, value)| (format!("{many}[{at}]"), value.as_str()));
    value.map(|value| (one.to_owned(), value)).into_iter().chain(several)
}

fn of_hosts<'v>(
    name: &ObjectName,
    hosts: impl Iterator<Item = (String, &'v str)>,
) -> impl Iterator<Item = Problem> {
    hosts.filter_map(move |(path, host)| {
        // An IPv6 address has its port behind the bracket (RFC 3986 §3.2.2).
        let (bare, port) = host.rsplit_once(':')?;
        let has_port = bare.ends_with(']') || !bare.contains(':');
        if !has_port || port.is_empty() || !port.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let message = format!("no request matches \"{host}\": a host is compared without its port");
        let remedy = match path.starts_with("sni") {
            true => format!("write \"{bare}\""),
            false => {
                format!("write \"{bare}\"; vars can match the port: [\"server_port\", \"==\", \"{port}\"]")
            }
        };
        Some(Problem::warning(name.to_string(), path, message).hint(remedy))
    })
}

/// The reason why a path matches no request, or not those that were probably meant, with the remedy.
fn path_flaw(uri: &str, has_parameters: bool) -> Option<(String, String)> {
    let never = |reason: &str| format!("no request matches \"{uri}\": {reason}");
    if let Some((_, rest)) = uri.split_once("://") {
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        return Some((never("a path begins with /"), format!("write \"/{path}\", and \"{host}\" in host")));
    }
    if uri.starts_with(['~', '^']) || has_pattern(uri) {
        let remedy = "write the constant begin of the path, as in \"/api/*\", and the pattern in vars: [\"uri\", \"~~\", \"^/api/v[0-9]+\"]";
        return Some((
            format!("\"{uri}\" is compared as text: a path is no regular expression"),
            remedy.into(),
        ));
    }
    if !uri.starts_with(['/', '*']) {
        return Some((never("a path begins with /"), format!("write \"/{uri}\"")));
    }
    if let Some((path, query)) = uri.split_once('?') {
        let argument = query.split(['=', '&']).next().unwrap_or_default();
        let remedy =
            format!("write \"{path}\", and match the query in vars: [\"arg_{argument}\", \"==\", \"...\"]");
        return Some((format!("the ? in \"{uri}\" is compared as text: a path has no query"), remedy));
    }
    if let Some((path, _)) = uri.split_once('#') {
        return Some((never("clients do not send a # and the part behind it"), format!("write \"{path}\"")));
    }
    // A space ends the target of a request (RFC 9112 §3), so clients send %20, which is decoded.
    if uri.ends_with(char::is_whitespace) || uri.starts_with("/ ") {
        let remedy = format!("write \"{}\"", uri.replace(' ', ""));
        return Some((format!("the path \"{uri}\" has white space at its end"), remedy));
    }
    if let Some(segment) = uri.split('/').find(|part| part.starts_with('{') && part.ends_with('}')) {
        let parameter = segment.trim_matches(['{', '}']);
        let meant = match has_parameters {
            true => uri.replace(segment, &format!(":{parameter}")),
            false => format!("{}*", uri.split('{').next().unwrap_or(uri)),
        };
        return Some((format!("{segment} in \"{uri}\" is compared as text"), format!("write \"{meant}\"")));
    }
    if let Some(found) = odd_name(uri, has_parameters) {
        return Some(found);
    }
    // The router matches the path without escapes and without empty and dot segments (decision 51).
    if let Some(escape) = escape_in(uri) {
        let remedy = "write the character itself".to_owned();
        return Some((never(&format!("{escape} is decoded before paths are compared")), remedy));
    }
    let rest = uri.strip_prefix('/')?;
    let is_removed = |segment: &&str| matches!(*segment, "." | "..");
    if rest.contains("//") || rest.starts_with('/') || rest.split('/').any(|one| is_removed(&one)) {
        let kept: Vec<&str> = rest.split('/').filter(|one| !one.is_empty() && !is_removed(one)).collect();
        let remedy = format!("write the path without them, as in \"/{}\"", kept.join("/"));
        return Some((never("paths are compared without empty and dot segments"), remedy));
    }
    None
}

/// A segment such as `*.php` or `:id.json`: APISIX reads the text behind the mark as a name, not as a part of the path.
fn odd_name(uri: &str, has_parameters: bool) -> Option<(String, String)> {
    let is_of_name = |character: char| character.is_alphanumeric() || matches!(character, '_' | '-');
    let mut segments = uri.split('/').skip(1);
    let (segment, name) = segments.find_map(|segment| {
        let name =
            segment.strip_prefix('*').or_else(|| segment.strip_prefix(':').filter(|_| has_parameters))?;
        (!name.chars().all(is_of_name)).then_some((segment, name))
    })?;
    let before = uri.split_once(segment).map_or(uri, |(before, _)| before);
    let tail = name.trim_start_matches(is_of_name);
    let (matched, mark) = match segment.starts_with('*') {
        true => ("any text", "*".to_owned()),
        false => ("any segment", format!(":{}", name.strip_suffix(tail).unwrap_or(name))),
    };
    let message = format!("{segment} in \"{uri}\" matches {matched}: \"{name}\" is the name of a parameter");
    // A dot in a condition is a pattern of one character.
    let ending = tail.strip_prefix('.').filter(|extension| extension.chars().all(char::is_alphanumeric));
    let condition = ending.map(|extension| {
        format!(", and match the end of the path in vars: [\"uri\", \"~~\", \"\\\\.{extension}$\"]")
    });
    Some((message, format!("write \"{before}{mark}\"{}", condition.unwrap_or_default())))
}

/// The first escape of a path that the router decodes: every one but that of a slash.
fn escape_in(uri: &str) -> Option<&str> {
    let escapes = uri.match_indices('%').filter_map(|(at, _)| uri.get(at..at + 3));
    let is_hex = |escape: &&str| escape[1..].bytes().all(|byte| byte.is_ascii_hexdigit());
    escapes.filter(is_hex).find(|escape| !escape.eq_ignore_ascii_case("%2f"))
}

/// Whether a path looks like a regular expression. Parentheses and dots alone are frequent in paths.
fn has_pattern(uri: &str) -> bool {
    ["\\d", "\\w", "\\.", "[0-9", "[a-z", "[^", ".*", ".+", ")?", "(?", ")$"]
        .iter()
        .any(|part| uri.contains(part))
        || (uri.ends_with('$') && uri.len() > 1)
}

#[cfg(test)]
mod tests;

//! Conditions of a route: attributes of routes if there are any, expressions otherwise.

use serde_json::{Value, json};
use yumen_plugin::{PatternOptions, RegexPattern};

use super::super::entity::KongEntity;
use super::super::expression;
use super::super::paths::{KongPath, escape};
use super::super::precedence::{KongPathCandidate, KongRouteRank};
use crate::report::{ImportReport, different, dropped};

/// Methods that a route can name.
const METHODS: [&str; 10] =
    ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "CONNECT", "TRACE", "PURGE"];

/// The variables of one end of a connection.
#[derive(Clone, Copy)]
struct EndVariables {
    address: &'static str,
    port: &'static str,
}

const SOURCE: EndVariables = EndVariables { address: "remote_addr", port: "remote_port" };
const DESTINATION: EndVariables = EndVariables { address: "server_addr", port: "server_port" };

/// A host, optionally with a port.
#[derive(Debug, Clone)]
struct KongHost {
    name: String,
    port: Option<u16>,
}

impl KongHost {
    fn parse(text: &str) -> KongHost {
        let text = text.to_ascii_lowercase();
        match text.rsplit_once(':').map(|(name, port)| (name, port.parse())) {
            // An IPv6 address without brackets has no port.
            Some((name, Ok(port))) if !name.ends_with(':') => {
                KongHost { name: name.to_owned(), port: Some(port) }
            }
            _ => KongHost { name: text, port: None },
        }
    }

    /// Whether the router supports the host; a trailing wildcard it does not.
    fn is_routable(&self) -> bool {
        !self.name.ends_with('*')
    }

    fn condition(&self) -> Value {
        let regex = match (self.name.strip_prefix('*'), self.name.strip_suffix('*')) {
            (Some(suffix), _) => format!("{}$", escape(suffix)),
            (_, Some(prefix)) => format!("^{}", escape(prefix)),
            _ => format!("^{}$", escape(&self.name)),
        };
        let host = json!(["host", "~*", regex]);
        match self.port {
            // Kong compares the port of a host with that of the connection.
            Some(port) => json!(["AND", host, ["server_port", "==", port]]),
            None => host,
        }
    }
}

/// Fields with conditions whose absence would match more requests, or give the route another rank.
const CONDITIONS: [&str; 4] = ["expression", "priority", "protocols", "regex_priority"];

/// Fields with a list of conditions, of which one must be met.
const ALTERNATIVES: [&str; 6] = ["destinations", "headers", "hosts", "methods", "snis", "sources"];

/// The field of a route whose conditions are lost with variables that are not set. The remaining values of a list still
/// restrict the route.
pub(in super::super) fn unset_condition(entity: &KongEntity) -> Option<&'static str> {
    let is_lost = |field: &&&str| match entity.peek(field) {
        // An address without its port would match more clients.
        Some(Value::Array(values)) => values.iter().all(|value| value.is_null() || value.is_object()),
        // Header fields without values would match an empty value.
        _ => true,
    };
    let lists = ALTERNATIVES.iter().filter(is_lost);
    CONDITIONS.iter().chain(lists).find(|field| entity.lacks_any(&[**field])).copied()
}

/// The conditions of a route.
#[derive(Debug, Default, Clone)]
pub(super) struct KongRouteMatch {
    pub(super) paths: Vec<KongPath>,
    hosts: Vec<KongHost>,
    methods: Vec<String>,
    remote_addrs: Vec<String>,
    /// Expressions that apply wherever the route is placed.
    conditions: Vec<Value>,
    /// Rank without the path.
    rank: KongRouteRank,
    regex_priority: u64,
    /// The path among the conditions of an expression.
    pub(super) expressed_path: Option<KongPath>,
    /// Patterns that cannot be used, as patterns of their literal prefixes; `/` if there is none.
    pub(super) unusable: Vec<KongPath>,
}

impl KongRouteMatch {
    /// The conditions of an expression. Kong sorts such routes by their priority.
    pub(super) fn expressed(
        found: expression::ExpressionMatch,
        priority: u64,
        only_http: bool,
    ) -> KongRouteMatch {
        let mut conditions = found.conditions;
        if only_http {
            // Kong refuses encrypted requests on a route for `http` only.
            conditions.push(json!(["scheme", "==", "http"]));
        }
        let rank = KongRouteRank { regex_priority: priority, ..KongRouteRank::default() };
        KongRouteMatch { conditions, rank, expressed_path: found.path, ..KongRouteMatch::default() }
    }

    /// Reads the conditions; `None` if the route cannot match anything.
    pub(super) fn read(
        entity: &mut KongEntity,
        only_http: bool,
        marks_patterns: bool,
        report: &mut ImportReport,
    ) -> Option<KongRouteMatch> {
        let mut found = KongRouteMatch {
            hosts: entity.texts("hosts", report).iter().map(|host| KongHost::parse(host)).collect(),
            methods: entity.texts("methods", report),
            regex_priority: entity.count("regex_priority", report).unwrap_or(0),
            ..KongRouteMatch::default()
        };
        let has_paths = entity.peek("paths").and_then(Value::as_array).is_some_and(|all| !all.is_empty());
        found.read_paths(entity, marks_patterns, report);
        // Without its paths the route would match everything.
        if has_paths && found.paths.is_empty() {
            report.add(
                dropped(&entity.label, "", "the route is left out").why("none of its paths can be matched"),
            );
            if found.unusable.is_empty() {
                return None;
            }
        }
        if only_http {
            found.conditions.push(json!(["scheme", "==", "http"]));
        }
        // The schema allows registered methods only; the others become a condition.
        if found.methods.iter().any(|method| !METHODS.contains(&method.as_str())) {
            found.conditions.push(json!(["request_method", "in", found.methods]));
        }
        let headers = found.read_headers(entity, report);
        let snis = found.read_server_names(entity, report);
        found.read_addresses(entity, "sources", SOURCE, report);
        found.read_addresses(entity, "destinations", DESTINATION, report);
        let kinds = [!found.methods.is_empty(), !found.hosts.is_empty(), headers > 0, snis, has_paths];
        found.rank = KongRouteRank {
            kinds: kinds.into_iter().map(u8::from).sum(),
            has_plain_hosts: !found.hosts.is_empty()
                && found.hosts.iter().all(|host| !host.name.contains('*')),
            header_count: headers.min(255) as u8,
            ..KongRouteRank::default()
        };
        if let Some(condition) = found.unroutable_hosts() {
            found.conditions.push(condition);
        }
        Some(found)
    }

    fn read_paths(&mut self, entity: &mut KongEntity, marks_patterns: bool, report: &mut ImportReport) {
        for text in entity.texts("paths", report) {
            let path = KongPath::parse(&text, marks_patterns);
            if let KongPath::Pattern(_) = &path
                && let Err(reason) = RegexPattern::new(&path.condition(), PatternOptions::default())
            {
                let line = dropped(&entity.label, "paths", format!("{text} is left out"));
                report.add(line.why(format!("the pattern cannot be used: {reason}")));
                self.unusable.push(KongPath::Pattern(escape(&path.literal())));
                continue;
            }
            if path.resembles_pattern() {
                let line =
                    different(&entity.label, "paths", format!("{text} is matched as a literal prefix"));
                let line = line.why(
                    "since format 3.0 a pattern begins with ~, and this path has characters of a pattern",
                );
                report.add(line.hint(format!("write ~{text} if it is a pattern")));
            }
            if !self.paths.contains(&path) {
                self.paths.push(path);
            }
        }
    }

    /// Adds a condition per header field; returns the number of fields.
    fn read_headers(&mut self, entity: &mut KongEntity, report: &mut ImportReport) -> usize {
        let Some(Value::Object(headers)) = entity.take("headers") else { return 0 };
        for (name, values) in &headers {
            let values: Vec<&str> = match values {
                Value::Array(values) => values.iter().filter_map(Value::as_str).collect(),
                one => one.as_str().into_iter().collect(),
            };
            let pattern = match values.as_slice() {
                // Kong treats a single value with this prefix as a pattern.
                [one] if one.starts_with("~*") => one[2..].to_owned(),
                many => {
                    let texts: Vec<String> = many.iter().map(|value| escape(value)).collect();
                    format!("^(?:{})$", texts.join("|"))
                }
            };
            if values.len() > 1 && values.iter().any(|value| value.starts_with("~*")) {
                let line = different(&entity.label, &format!("headers.{name}"), "all values are literal");
                report.add(line.why("Kong takes ~* for the mark of a pattern only in a single value"));
            }
            if name.contains('_') {
                let line =
                    different(&entity.label, &format!("headers.{name}"), "- is looked for instead of _");
                report.add(line.why("names of fields in conditions have dashes"));
            }
            let variable = format!("http_{}", name.to_lowercase().replace('-', "_"));
            // A condition that cannot be checked must not be dropped: the route would match more requests.
            if RegexPattern::new(&pattern, PatternOptions::default()).is_err() {
                let line = dropped(&entity.label, &format!("headers.{name}"), "no request matches");
                report.add(line.why(format!("the pattern {pattern} cannot be used")));
                // A contradiction: the route matches no request.
                self.conditions.push(json!([variable, "==", null]));
                self.conditions.push(json!([variable, "~=", null]));
                continue;
            }
            self.conditions.push(json!([variable, "~*", pattern]));
        }
        headers.len()
    }

    fn read_server_names(&mut self, entity: &mut KongEntity, report: &mut ImportReport) -> bool {
        let names = entity.texts("snis", report);
        // A final dot is not part of a server name (RFC 6066 §3).
        let names: Vec<&str> = names.iter().map(|name| name.trim_end_matches('.')).collect();
        if !names.is_empty() {
            // Plain requests have no server name, and Kong does not require one of them.
            self.conditions.push(json!(["OR", ["scheme", "==", "http"], ["ssl_server_name", "in", names]]));
        }
        !names.is_empty()
    }

    fn read_addresses(
        &mut self,
        entity: &mut KongEntity,
        field: &str,
        variables: EndVariables,
        report: &mut ImportReport,
    ) {
        let mut any_of = Vec::new();
        let mut bare = Vec::new();
        for one in entity.list(field, report) {
            let ip = one["ip"].as_str();
            let number = one["port"].as_u64();
            let in_network = ip.map(|ip| json!([variables.address, "ipmatch", [ip]]));
            let on_port = number.map(|number| json!([variables.port, "==", number]));
            match (in_network, on_port) {
                (Some(ip), Some(port)) => any_of.push(json!(["AND", ip, port])),
                (Some(one), None) => {
                    bare.extend(ip.map(str::to_owned));
                    any_of.push(one);
                }
                (None, Some(one)) => any_of.push(one),
                (None, None) => {
                    report.add(
                        dropped(&entity.label, field, "left out")
                            .why(format!("{one} names neither ip nor port")),
                    );
                }
            }
        }
        // Addresses alone fit the attribute of the route, which is cheaper than an expression.
        if field == "sources" && !bare.is_empty() && bare.len() == any_of.len() {
            self.remote_addrs = bare;
        } else if any_of.len() > 1 {
            any_of.insert(0, json!("OR"));
            self.conditions.push(any_of.into());
        } else {
            self.conditions.extend(any_of);
        }
    }

    /// The hosts of the resulting route; empty for any host.
    pub(super) fn hosts_with_paths(&self) -> Vec<String> {
        // One host that the router does not support moves the route to those of any host.
        match self.hosts.iter().all(KongHost::is_routable) {
            true => {
                let mut names: Vec<String> = self.hosts.iter().map(|host| host.name.clone()).collect();
                names.sort();
                names.dedup();
                names
            }
            false => Vec::new(),
        }
    }

    /// The condition on hosts that the attributes of a route cannot express.
    fn unroutable_hosts(&self) -> Option<Value> {
        // Ports are conditions even if the names are routable.
        let is_unroutable = |host: &KongHost| host.port.is_some() || !host.is_routable();
        self.hosts.iter().any(is_unroutable).then(|| self.host_condition()).flatten()
    }

    fn host_condition(&self) -> Option<Value> {
        let mut any_of: Vec<Value> = self.hosts.iter().map(KongHost::condition).collect();
        match any_of.len() {
            0 | 1 => any_of.pop(),
            _ => {
                any_of.insert(0, json!("OR"));
                Some(any_of.into())
            }
        }
    }

    /// The same conditions on the prefixes of the patterns that cannot be used; `None` without a known prefix.
    pub(super) fn of_unusable(&self) -> Option<KongRouteMatch> {
        let paths: Vec<KongPath> =
            self.unusable.iter().filter(|path| path.literal() != "/").cloned().collect();
        (!paths.is_empty()).then(|| KongRouteMatch { paths, unusable: Vec::new(), ..self.clone() })
    }

    /// All conditions; with those on hosts if the route is placed among the routes of any host.
    pub(super) fn conditions(&self, any_host: bool) -> Vec<Value> {
        let mut all = self.conditions.clone();
        // Otherwise the condition is in `conditions` already.
        if any_host && self.unroutable_hosts().is_none() {
            all.extend(self.host_condition());
        }
        all
    }

    /// Sets methods and addresses of the route.
    pub(super) fn write(&self, value: &mut Value) {
        if !self.methods.is_empty() && self.methods.iter().all(|method| METHODS.contains(&method.as_str())) {
            value["methods"] = json!(self.methods);
        }
        if !self.remote_addrs.is_empty() {
            value["remote_addrs"] = json!(self.remote_addrs);
        }
    }

    /// One candidate per path, or one for any path.
    pub(super) fn candidates(&self, route: usize) -> Vec<KongPathCandidate> {
        let candidate = |path: Option<&KongPath>| {
            let mut rank = self.rank;
            match path {
                Some(KongPath::Pattern(_)) => {
                    rank.is_pattern = true;
                    rank.regex_priority = self.regex_priority;
                }
                Some(KongPath::Prefix(prefix)) => rank.path_length = prefix.len(),
                None => {}
            }
            let prefix = path.map_or_else(|| "/".to_owned(), KongPath::literal);
            let (hosts, methods) = (self.hosts_with_paths(), self.methods.clone());
            KongPathCandidate { route, rank, hosts, prefix, methods }
        };
        match self.paths.is_empty() {
            true => vec![candidate(None)],
            false => self.paths.iter().map(|path| candidate(Some(path))).collect(),
        }
    }
}

//! Requests of an access log, explained by the translation.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;

use yumen_config::Kind;
use yumen_snapshot::{ExplainContext, ExplainResult, Question, RequestExplanation, explain_any};

use super::access_log_line::{COMBINED_FORMAT, INGRESS_NGINX_FORMAT, LogLineFormat, LoggedRequest};
use super::assessment::MigrationAssessment;
use super::migration_source::MigrationSource;
use super::replay_report::{ReplayDifference, ReplayReport};
use crate::commands::explain::choose_listener;

/// Hosts that are tried for a request whose line has none.
const HOSTS_MAX: usize = 16;

/// Statuses that depend on more than the request and the configuration: credentials, services, limits, clients.
const UNFORESEEABLE: [u16; 13] = [400, 401, 403, 408, 413, 414, 429, 431, 499, 500, 502, 503, 504];

/// Explains each request of a log.
pub(super) fn run(
    log: &Path,
    format: Option<&str>,
    source: &MigrationSource,
    assessment: &MigrationAssessment<'_>,
) -> anyhow::Result<ReplayReport> {
    let file = std::fs::File::open(log).with_context(|| format!("cannot read {}", log.display()))?;
    let formats: Vec<LogLineFormat> = match format {
        Some(format) => vec![LogLineFormat::parse(format)],
        None => source
            .log_format
            .iter()
            .map(String::as_str)
            .chain([INGRESS_NGINX_FORMAT, COMBINED_FORMAT])
            .map(LogLineFormat::parse)
            .collect(),
    };
    let replay = LogReplay { source, assessment };
    let mut report = ReplayReport::default();
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    loop {
        line.clear();
        if reader.read_until(b'\n', &mut line).with_context(|| format!("cannot read {}", log.display()))? == 0
        {
            return Ok(report);
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end();
        if text.is_empty() {
            continue;
        }
        let values = formats.iter().find_map(|format| LoggedRequest::of(&format.read(text)?));
        match values {
            Some(request) => replay.compare(&request, &mut report),
            None => report.add_unread(text),
        }
    }
}

struct LogReplay<'r> {
    source: &'r MigrationSource,
    assessment: &'r MigrationAssessment<'r>,
}

impl LogReplay<'_> {
    /// Compares a request with its explanation. Without host or scheme in the line, one that fits suffices.
    fn compare(&self, request: &LoggedRequest, report: &mut ReplayReport) {
        if request.method == "OPTIONS" && request.target == "*" {
            return report.add_unread(&request.target);
        }
        let hosts = self.hosts(request);
        if hosts.is_empty() {
            return report.unknown += 1;
        }
        let schemes: &[&str] = match request.scheme.as_deref() {
            Some("https") => &["https"],
            Some("http") => &["http"],
            _ => &["https", "http"],
        };
        let mut first = None;
        for host in &hosts {
            for scheme in schemes {
                match self.difference(request, scheme, host) {
                    None => return report.same += 1,
                    Some(difference) => drop(first.get_or_insert(difference)),
                }
            }
        }
        if let Some(difference) = first {
            report.add(difference);
        }
    }

    /// The host of the line, or those of Ingresses with the service of the line.
    fn hosts(&self, request: &LoggedRequest) -> Vec<String> {
        if let Some(host) = &request.host {
            return vec![host.clone()];
        }
        let mut hosts = BTreeSet::new();
        for ingress in &self.source.ingresses {
            let namespace = &ingress.meta.namespace;
            for rule in ingress.object["spec"]["rules"].as_array().into_iter().flatten() {
                let host = rule["host"].as_str().unwrap_or("unknown.invalid").replacen("*.", "any.", 1);
                let paths = rule["http"]["paths"].as_array().into_iter().flatten();
                let mut services = paths.filter_map(|path| path["backend"]["service"]["name"].as_str());
                let is_of_line = |service: &str| {
                    let prefix = format!("{namespace}-{service}-");
                    request.upstreams.iter().any(|upstream| upstream.starts_with(&prefix))
                };
                if request.upstreams.is_empty() || services.any(is_of_line) {
                    hosts.insert(host);
                }
            }
        }
        hosts.into_iter().take(HOSTS_MAX).collect()
    }

    fn difference(&self, request: &LoggedRequest, scheme: &str, host: &str) -> Option<ReplayDifference> {
        let url = format!("{scheme}://{host}{}", request.target);
        let found = match self.explain(request, url.clone()) {
            Ok(explained) => explained,
            Err(error) => {
                return Some(ReplayDifference::new(request, &url, "explained", "-", &error.to_string()));
            }
        };
        let upstream = found.upstream.as_ref().map(|upstream| &*upstream.view.origin);
        let written = request.upstreams.first().map_or("-", String::as_str);
        if let Some(answer) = &found.answer {
            return answer_difference(request, &url, answer.status, &answer.headers);
        }
        let Some(upstream) = upstream else {
            // Without a route the default backend answers 404.
            let is_same = request.status == 404 || written == "upstream-default-backend";
            return (!is_same).then(|| ReplayDifference::new(request, &url, "route", written, "no route"));
        };
        if request.was_proxied == Some(false) && !UNFORESEEABLE.contains(&request.status) {
            let logged = request.status.to_string();
            return Some(ReplayDifference::new(
                request,
                &url,
                "status",
                &logged,
                &format!("that of {upstream}"),
            ));
        }
        let service = service_of(upstream);
        let is_same = request.upstreams.is_empty()
            || request.upstreams.iter().any(|logged| is_service(&service, logged))
            || found.remarks.iter().any(|remark| remark.contains("weighted backends"));
        let is_unreached = request.was_proxied == Some(false);
        (!is_same && !is_unreached).then(|| ReplayDifference::new(request, &url, "route", written, &service))
    }

    fn explain(&self, request: &LoggedRequest, url: String) -> anyhow::Result<RequestExplanation> {
        let mut question = Question {
            method: request.method.clone(),
            url,
            client_ip: request.client.as_deref().and_then(|client| client.parse().ok()),
            ..Question::default()
        };
        if let Some(agent) = &request.user_agent {
            question.headers.insert("user-agent".to_owned(), agent.clone());
        }
        let snapshot = &self.assessment.snapshot;
        question.listener = Some(choose_listener(snapshot, &question)?.to_owned());
        let resources = &self.assessment.resources;
        let text = |kind: Kind, id: &str| -> Option<Arc<str>> {
            let found = resources.iter().find(|one| one.kind == kind && *one.id == *id);
            found.map(|one| one.json.clone())
        };
        let now = yumen_proxy::clock::exact();
        let defects = &self.assessment.defects;
        let context =
            ExplainContext { now, problems: defects, text: Some(&text), ..ExplainContext::default() };
        match explain_any(snapshot, &question, &context) {
            Ok(ExplainResult::Request(explained)) => Ok(*explained),
            Ok(ExplainResult::Stream(_)) => anyhow::bail!("the listener passes the connection through"),
            Err(invalid) => anyhow::bail!("{}: {}", invalid.path, invalid.message),
        }
    }
}

/// The difference of a response that the gateway makes itself.
fn answer_difference(
    request: &LoggedRequest,
    url: &str,
    status: u16,
    headers: &BTreeMap<String, String>,
) -> Option<ReplayDifference> {
    // Whether credentials or addresses admit a request is in the status of the log only.
    let is_guard = matches!(status, 401 | 403) && request.was_proxied == Some(true);
    if status != request.status && !is_guard {
        let logged = request.status.to_string();
        return Some(ReplayDifference::new(request, url, "status", &logged, &status.to_string()));
    }
    let location = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("location"));
    match (&request.location, location) {
        (Some(logged), Some((_, found))) if logged != found => {
            Some(ReplayDifference::new(request, url, "Location", logged, found))
        }
        _ => None,
    }
}

/// The name that ingress-nginx gives to the service of `upstreams/shop/cart!svc!80.http`.
fn service_of(origin: &str) -> String {
    let id = origin.strip_prefix("upstreams/").unwrap_or(origin);
    let mut parts = id.split('!');
    let service = parts.next().unwrap_or_default().replacen('/', "-", 1);
    let port = parts.nth(1).and_then(|port| port.split('.').next()).unwrap_or_default();
    format!("{service}-{port}")
}

/// Whether both names are of one service. A port may be a name there.
fn is_service(service: &str, logged: &str) -> bool {
    let split = |name: &str| -> (String, String) {
        let (service, port) = name.rsplit_once('-').unwrap_or((name, ""));
        (service.to_owned(), port.to_owned())
    };
    let ((service, port), (logged, logged_port)) = (split(service), split(logged));
    let is_number = logged_port.bytes().all(|byte| byte.is_ascii_digit());
    service == logged && (port == logged_port || !is_number)
}

#[cfg(test)]
mod tests {
    use super::{is_service, service_of};

    #[test]
    fn upstreams_have_the_names_of_ingress_nginx() {
        assert_eq!(service_of("upstreams/shop/cart!svc!80.http"), "shop-cart-80");
        assert!(is_service("shop-cart-80", "shop-cart-80"));
        assert!(is_service("shop-cart-80", "shop-cart-http"));
        assert!(!is_service("shop-cart-80", "shop-cart-8080"));
        assert!(!is_service("shop-cart-80", "shop-cart-next-80"));
    }
}

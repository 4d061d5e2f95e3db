//! Runs the policy tests of a configuration: requests with expected outcomes.
//!
//! Uses the engine of `explain`. Decides nothing: the caller that activates a snapshot evaluates the
//! problems.

use yumen_base::{Now, Problem};
use yumen_config::masking::{HIDDEN, hide_in_urls, is_secret_field};
use yumen_config::resource::{Expectation, Question, Test};
use yumen_config::{Kind, Resource, decode};

use crate::explain::{SimulatedRequest, follow};
use crate::{ExplainContext, Snapshot, explain};

#[cfg(test)]
mod tests;

/// Runs the tests among `resources`; each failure is an error. The compiler reports tests that cannot be
/// decoded.
pub fn run(snapshot: &Snapshot, resources: &[Resource], now: Now) -> Vec<Problem> {
    let tests = resources.iter().filter(|resource| resource.kind == Kind::Tests);
    let decoded = tests.filter_map(|resource| Some((resource, decode::<Test>(&resource.json).ok()?)));
    decoded.flat_map(|(resource, test)| check(snapshot, &resource.to_string(), &test, now)).collect()
}

fn check(snapshot: &Snapshot, object: &str, test: &Test, now: Now) -> Vec<Problem> {
    let followed = match follow(snapshot, &test.request, now) {
        Ok(followed) => followed,
        Err(invalid) => {
            let invalid = invalid.under("request");
            return vec![Problem::error(object, invalid.path, invalid.message)];
        }
    };
    let problem = |failed: FailedExpectation| {
        let route = test.expect.route.as_ref().and_then(|route| route.as_ref()).map(|id| id.as_str());
        let failed_route = route.filter(|_| failed.path == "route");
        let why = failed_route.and_then(|route| why_not(snapshot, &test.request, route, now));
        let why = why.map_or_else(String::new, |why| format!(" ({why})"));
        let message = format!("expected {}, found {}{why}", failed.expected, failed.found);
        let command = command(&without_secrets(&test.request), failed_route);
        Problem::error(object, format!("expect.{}", failed.path), message).hint(format!("see why: {command}"))
    };
    failures(&followed, &test.expect).into_iter().map(problem).collect()
}

struct FailedExpectation {
    path: String,
    expected: String,
    found: String,
}

/// Expectations that are not met.
#[derive(Default)]
struct PolicyFailures(Vec<FailedExpectation>);

impl PolicyFailures {
    fn compare(
        &mut self,
        path: &str,
        what: &str,
        expected: Option<&str>,
        found: Option<&str>,
        instead: &str,
    ) {
        let Some(expected) = expected.filter(|expected| Some(*expected) != found) else { return };
        // Viewers see the problem.
        let shown = |value: &str| match what.strip_suffix(':').is_some_and(is_secret_field) {
            true => format!("{what} {HIDDEN}"),
            false => {
                let mut text = format!("{what} {value}");
                hide_in_urls(&mut text);
                text
            }
        };
        let found = found.map_or_else(|| instead.to_owned(), shown);
        self.0.push(FailedExpectation { path: path.into(), expected: shown(expected), found });
    }
}

fn failures(followed: &SimulatedRequest, expect: &Expectation) -> Vec<FailedExpectation> {
    let mut failed = PolicyFailures::default();
    let route = followed.route.as_deref();
    match &expect.route {
        Some(Some(id)) => failed.compare("route", "route", Some(id.as_str()), route, "no route (404)"),
        // The path names the expectation, so a found route is worth its id.
        Some(None) => failed.compare("route", "route", route.map(|_| "null (404)"), route, ""),
        None => {}
    }
    // On an unexpected route, further differences are mere consequences.
    if failed.0.is_empty() {
        compare_outcome(followed, expect, &mut failed);
    }
    failed.0
}

fn compare_outcome(followed: &SimulatedRequest, expect: &Expectation, failed: &mut PolicyFailures) {
    let instead = instead(followed);
    let answer = followed.answer.as_ref();
    let status = answer.map(|answer| answer.status.to_string());
    let expected = expect.status.map(|status| status.to_string());
    failed.compare("status", "status", expected.as_deref(), status.as_deref(), &instead);
    let plugin = answer.and_then(|answer| answer.plugin);
    failed.compare("plugin", "a response of", expect.plugin.as_deref(), plugin, &instead);
    // A plugin may still respond after an upstream was chosen; the request then does not reach it.
    let upstream = followed.upstream.as_ref().filter(|_| answer.is_none());
    let origin = upstream.map(|upstream| short(&upstream.view.origin));
    failed.compare("upstream", "upstream", expect.upstream.as_deref().map(short), origin, &instead);
    let path = upstream.map(|upstream| &*upstream.path);
    failed.compare("path", "path", expect.path.as_deref(), path, &instead);
    for (name, value) in &expect.headers {
        let found = upstream.and_then(|_| followed.field(name));
        let instead = if upstream.is_some() { "no such field" } else { &instead };
        failed.compare(
            &format!("headers.{name}"),
            &format!("{name}:"),
            Some(value),
            found.as_deref(),
            instead,
        );
    }
    let (expected, shown) = (expect.certificate.as_deref(), followed.certificate.as_deref());
    failed.compare("certificate", "certificate", expected, shown, "the node's own certificate");
}

/// An upstream object by its id, that of a route or service by `kind/id`.
fn short(origin: &str) -> &str {
    origin.strip_prefix("upstreams/").unwrap_or(origin)
}

/// The outcome of a request in one phrase.
fn instead(followed: &SimulatedRequest) -> String {
    match (&followed.answer, &followed.upstream) {
        (Some(answer), _) => match (answer.plugin, &answer.origin) {
            (Some(plugin), Some(origin)) => format!("a response {} of {plugin} ({origin})", answer.status),
            _ => format!("a response {} of the gateway", answer.status),
        },
        (None, Some(upstream)) => format!("the request going to {}", upstream.view.origin),
        (None, None) => "neither a response nor an upstream".to_owned(),
    }
}

fn why_not(snapshot: &Snapshot, question: &Question, route: &str, now: Now) -> Option<String> {
    let question = Question { why_not: Some(route.to_owned()), ..question.clone() };
    let explanation =
        explain(snapshot, &question, &ExplainContext { now, ..ExplainContext::default() }).ok()?;
    Some(format!("{route}: {}", explanation.why_not?.why))
}

/// The question without the secrets in its fields and its URL.
fn without_secrets(question: &Question) -> Question {
    let mut shown = question.clone();
    hide_in_urls(&mut shown.url);
    for (name, value) in &mut shown.headers {
        if is_secret_field(name) {
            HIDDEN.clone_into(value);
        } else {
            hide_in_urls(value);
        }
    }
    shown
}

/// The command that explains a question.
pub fn command(question: &Question, why_not: Option<&str>) -> String {
    let mut words = vec!["yumen explain".to_owned(), quoted(&question.method), quoted(&question.url)];
    let mut option = |name: &str, value: &str| words.push(format!("{name} {}", quoted(value)));
    for (name, value) in &question.headers {
        option("-H", &format!("{name}: {value}"));
    }
    if let Some(ip) = question.client_ip {
        option("--client-ip", &ip.to_string());
    }
    let texts = [("--consumer", question.consumer.as_deref()), ("--sni", question.sni.as_deref())];
    for (name, value) in texts.into_iter().chain([("--why-not", why_not)]) {
        if let Some(value) = value {
            option(name, value);
        }
    }
    // The file is unknown here, so the command has a placeholder.
    words.push("--file FILE".to_owned());
    words.join(" ")
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=,%@+".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        return word.to_owned();
    }
    // A single-quoted text ends before each quote and continues after an escaped one.
    format!("'{}'", word.replace('\'', r"'\''"))
}

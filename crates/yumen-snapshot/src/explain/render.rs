//! Explanations as text for terminals.

use std::fmt::{self, Display, Formatter};

use super::{
    CertificateChoice, ExplainResult, ExplainedResponse, ExplainedStep, PluginDecision, RequestExplanation,
    ScopeSelection, StreamExplanation, UpstreamChoice, UpstreamView,
};

impl Display for ExplainResult {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            ExplainResult::Request(explanation) => explanation.fmt(f),
            ExplainResult::Stream(explanation) => explanation.fmt(f),
        }
    }
}

impl Display for StreamExplanation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let question = &self.stream;
        let name = question.sni.as_ref().map_or_else(String::new, |sni| format!(" for {sni}"));
        writeln!(f, "{} to {}{name} from {}", question.protocol, question.server, question.client_ip)?;
        fmt_scope(self.scope.as_ref(), f)?;
        fmt_certificate(self.certificate.as_ref(), question.sni.as_deref(), f)?;
        writeln!(f, "\nStream route")?;
        match &self.stream_route {
            None => writeln!(f, "  no match: the connection is closed")?,
            Some(route) => {
                let of = OriginText(route.origin.as_deref());
                match route.matched.is_empty() {
                    true => writeln!(f, "  {}{of}, which has no conditions", route.id)?,
                    false => writeln!(f, "  {}{of} by {}", route.id, route.matched.join(", "))?,
                }
            }
        }
        for candidate in &self.candidates {
            writeln!(f, "  not {}: {}", candidate.stream_route, candidate.why)?;
        }
        if self.others > 0 {
            writeln!(f, "  further stream routes: {}", self.others)?;
        }
        if let Some(question) = &self.why_not {
            writeln!(f, "\nWhy not {}\n  {}", question.stream_route, question.why)?;
        }
        fmt_plugins(&self.plugins, f)?;
        if let Some(upstream) = &self.upstream {
            fmt_upstream(upstream, f)?;
        }
        for remark in &self.remarks {
            writeln!(f, "\nNote: {remark}")?;
        }
        Ok(())
    }
}

impl Display for RequestExplanation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let question = &self.request;
        let host = if question.host.is_empty() { "(no host)" } else { &question.host };
        writeln!(f, "{} {host}{} from {}", question.method, question.path, question.client_ip)?;
        fmt_scope(self.scope.as_ref(), f)?;
        fmt_certificate(self.certificate.as_ref(), self.request.sni.as_deref(), f)?;
        self.fmt_route(f)?;
        if let Some(question) = &self.why_not {
            writeln!(f, "\nWhy not {}\n  {}", question.route, question.why)?;
        }
        fmt_plugins(&self.plugins, f)?;
        if let Some(upstream) = &self.upstream {
            fmt_upstream(&upstream.view, f)?;
            fmt_choice(upstream, f)?;
        }
        if let Some(answer) = &self.answer {
            fmt_answer(answer, f)?;
        }
        for remark in &self.remarks {
            writeln!(f, "\nNote: {remark}")?;
        }
        Ok(())
    }
}

impl RequestExplanation {
    fn fmt_route(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nRoute")?;
        match &self.route {
            None => writeln!(f, "  none matches")?,
            Some(route) => {
                let name = if route.name.is_empty() { String::new() } else { format!(" ({})", route.name) };
                let host = if route.matched_host.is_empty() { "any host" } else { &route.matched_host };
                let of = OriginText(route.origin.as_deref());
                writeln!(f, "  {}{name}{of} by path {} and {host}", route.id, route.matched_uri)?;
                for (name, value) in &route.params {
                    writeln!(f, "    :{name} is {value}")?;
                }
            }
        }
        for candidate in &self.candidates {
            writeln!(f, "  not {}: {}", candidate.route, candidate.why)?;
        }
        if self.other_hosts + self.other_paths > 0 {
            writeln!(
                f,
                "  routes for other paths: {}, for other hosts: {}",
                self.other_paths, self.other_hosts
            )?;
        }
        Ok(())
    }
}

/// The Kubernetes object of a translated route.
struct OriginText<'o>(Option<&'o str>);

impl Display for OriginText<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |origin| write!(f, " of {origin}"))
    }
}

fn fmt_scope(scope: Option<&ScopeSelection>, f: &mut Formatter<'_>) -> fmt::Result {
    let Some(ScopeSelection { listener, id }) = scope else { return Ok(()) };
    match id {
        Some(id) => writeln!(f, "\nScope\n  {id} of listener {listener}"),
        None => writeln!(f, "\nScope\n  none of listener {listener} matches"),
    }
}

fn fmt_certificate(
    certificate: Option<&CertificateChoice>,
    sni: Option<&str>,
    f: &mut Formatter<'_>,
) -> fmt::Result {
    let Some(certificate) = certificate else { return Ok(()) };
    let sni = sni.filter(|sni| !sni.is_empty()).unwrap_or("no server name");
    match (&certificate.id, &certificate.matched) {
        (Some(id), Some(name)) => writeln!(f, "\nCertificate\n  ssls/{id}: its name {name} matches {sni}"),
        _ => writeln!(f, "\nCertificate\n  the node's own: no ssl object matches {sni}"),
    }
}

fn fmt_plugins(plugins: &[ExplainedStep], f: &mut Formatter<'_>) -> fmt::Result {
    if plugins.is_empty() {
        return Ok(());
    }
    writeln!(f, "\nPlugins, in running order")?;
    for ExplainedStep { plugin, origin, phase, decision, says, .. } in plugins {
        let says = says.as_ref().map_or_else(String::new, |says| format!(": {says}"));
        writeln!(f, "  {phase:<16} {plugin:<20} of {origin:<24} {}{says}", word(*decision))?;
    }
    Ok(())
}

fn word(decision: PluginDecision) -> &'static str {
    match decision {
        PluginDecision::Continues => "continues",
        PluginDecision::Answers => "responds",
        PluginDecision::Assumed => "assumed",
        PluginDecision::Unknown => "unknown",
        PluginDecision::Skipped => "skipped",
        PluginDecision::NotReached => "not reached",
        PluginDecision::StepsBack => "replaced by the route's",
        PluginDecision::Later => "runs later",
    }
}

fn fmt_upstream(upstream: &UpstreamView, f: &mut Formatter<'_>) -> fmt::Result {
    writeln!(f, "\nUpstream\n  {}, {}, {}", upstream.origin, upstream.scheme, upstream.balancer)?;
    for endpoint in &upstream.endpoints {
        let health = match endpoint.healthy {
            Some(true) => ", healthy",
            Some(false) => ", unhealthy",
            None => "",
        };
        let next = if upstream.next.as_ref() == Some(&endpoint.address) { " <- next" } else { "" };
        let rotation = if endpoint.in_rotation { "" } else { ", not in rotation" };
        let ejected = if endpoint.ejected == Some(true) { ", ejected" } else { "" };
        let (address, weight) = (&endpoint.address, endpoint.weight);
        writeln!(f, "  {address} weight {weight}{health}{ejected}{rotation}{next}")?;
    }
    for host in &upstream.unresolved {
        writeln!(f, "  {host}, addresses not resolved here")?;
    }
    Ok(())
}

fn fmt_choice(upstream: &UpstreamChoice, f: &mut Formatter<'_>) -> fmt::Result {
    let rewritten = if upstream.is_rewritten { " (rewritten)" } else { "" };
    writeln!(f, "\nUpstream request\n  {} {}{rewritten}", upstream.method, upstream.path)?;
    if let Some(host) = &upstream.host {
        writeln!(f, "  Host: {host}")?;
    }
    for (name, value) in &upstream.headers_set {
        writeln!(f, "  {name}: {value}")?;
    }
    for name in &upstream.headers_removed {
        writeln!(f, "  without {name}")?;
    }
    Ok(())
}

fn fmt_answer(answer: &ExplainedResponse, f: &mut Formatter<'_>) -> fmt::Result {
    let by = match (answer.plugin, &answer.origin) {
        (Some(plugin), Some(origin)) => format!("{plugin} of {origin}"),
        _ => "the gateway".to_owned(),
    };
    writeln!(f, "\nResponse\n  {} by {by}", answer.status)?;
    for (name, value) in &answer.headers {
        writeln!(f, "  {name}: {value}")?;
    }
    let body = answer.body.trim_end();
    if body.is_empty() { Ok(()) } else { writeln!(f, "  {body}") }
}

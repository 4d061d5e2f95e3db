//! Annotations of paths, redirects, canaries, mirrors, errors, logs and snippets.

use std::sync::Arc;

use super::AnnotationConsequence::{Differs, HostDenied, IngressDenied, LeftOut, NoEffect};
use super::reader::AnnotationReader;
use super::value_rule::parse_statuses;
use crate::ingress_nginx::nginx_text::NginxText;
use crate::ingress_nginx::settings::{
    CanaryHeaderRule, FixedRedirect, IngressCanary, IngressMirror, IngressRewriteTarget, IngressSettings,
    LocationForm, ServerSnippet, SslRedirectRule,
};
use crate::ingress_nginx::snippet::{SnippetPlace, SnippetPlan, SnippetRefusal, translate_snippet};
use crate::model::ClusterKind;

/// The smallest whole of a canary's weight.
const WEIGHT_TOTAL_MIN: u32 = 100;

pub(super) fn read_paths(reader: &mut AnnotationReader<'_>, settings: &mut IngressSettings) {
    let redirects = &mut settings.redirects;
    let with_tls = reader.switch("ssl-redirect").unwrap_or(redirects.ssl != SslRedirectRule::Off);
    let always = reader.switch("force-ssl-redirect").unwrap_or(redirects.ssl == SslRedirectRule::Always);
    redirects.ssl = match (always, with_tls) {
        (true, _) => SslRedirectRule::Always,
        (false, true) => SslRedirectRule::WithTls,
        (false, false) => SslRedirectRule::Off,
    };
    if let Some(keeps) = reader.switch("preserve-trailing-slash") {
        redirects.keeps_trailing_slash = keeps;
    }
    redirects.from_to_www = reader.switch("from-to-www-redirect").unwrap_or(false);
    let relative = reader.switch("relative-redirects").unwrap_or(redirects.form == LocationForm::Relative);
    let with_port =
        reader.switch("use-port-in-redirects").unwrap_or(redirects.form == LocationForm::WithPort);
    redirects.form = match (relative, with_port) {
        (true, _) => LocationForm::Relative,
        (false, true) => LocationForm::WithPort,
        (false, false) => LocationForm::Absolute,
    };
    redirects.fixed = fixed_redirect(reader, "temporal-redirect", 302, 307)
        .or_else(|| fixed_redirect(reader, "permanent-redirect", 301, 308));
    if let Some(root) = reader.shared("app-root") {
        match root.starts_with('/') {
            true => settings.redirects.app_root = Some(root),
            false => reader.leave_out("app-root", "the value must begin with a slash"),
        }
    }
    let rewrite = &mut settings.rewrite;
    rewrite.use_regex = reader.switch("use-regex").unwrap_or(false);
    rewrite.forwarded_prefix = reader.shared("x-forwarded-prefix");
    rewrite.target = reader.shared("rewrite-target").map(|target| {
        // NGINX answers with a redirect if the replacement begins with a scheme.
        let is_url = ["http://", "https://", "$scheme"].iter().any(|scheme| target.starts_with(scheme));
        if is_url { IngressRewriteTarget::Redirect(target) } else { IngressRewriteTarget::Path(target) }
    });
    if let Some(IngressRewriteTarget::Path(path)) = &rewrite.target
        && !path.starts_with(['/', '$'])
    {
        // NGINX sends such a path as it is, which no service understands.
        let slashed: Arc<str> = format!("/{path}").into();
        reader.push("rewrite-target", Differs, format!("the path begins with a slash: {slashed}"), None);
        rewrite.target = Some(IngressRewriteTarget::Path(slashed));
    }
}

/// A redirect with the status of `{name}-code`, or `status` if that is not from 300 to `status_max`.
fn fixed_redirect(
    reader: &mut AnnotationReader<'_>,
    name: &str,
    status: u16,
    status_max: u16,
) -> Option<FixedRedirect> {
    let location = reader.shared(name)?;
    if !location.starts_with("http") || !location.contains(':') {
        reader.leave_out(name, "the value must be a URL of http or https");
        return None;
    }
    let code = format!("{name}-code");
    let written = reader.number(&code).and_then(|code| u16::try_from(code).ok());
    let status = written.filter(|code| (300..=status_max).contains(code)).unwrap_or(status);
    Some(FixedRedirect { location, status })
}

pub(super) fn read_canary(reader: &mut AnnotationReader<'_>, settings: &mut IngressSettings) {
    let rule_names = ["canary-weight", "canary-weight-total", "canary-by-header", "canary-by-cookie"];
    if !reader.switch("canary").unwrap_or(false) {
        for name in rule_names {
            if reader.text(name).is_some() {
                reader.leave_out(name, "the Ingress is no canary: the annotation canary is not true");
            }
        }
        return;
    }
    let rule = match (reader.shared("canary-by-header-value"), reader.shared("canary-by-header-pattern")) {
        (Some(value), _) => CanaryHeaderRule::Value(value),
        (None, Some(pattern)) => CanaryHeaderRule::Pattern(pattern),
        (None, None) => CanaryHeaderRule::Words,
    };
    // Only a whole above 100 is honored.
    let total = reader.number("canary-weight-total").unwrap_or(WEIGHT_TOTAL_MIN).max(WEIGHT_TOTAL_MIN);
    settings.canary = Some(IngressCanary {
        header: reader.shared("canary-by-header").map(|name| (name, rule)),
        cookie: reader.shared("canary-by-cookie"),
        weight: reader.number("canary-weight").unwrap_or(0).min(total),
        weight_total: total,
    });
}

pub(super) fn read_others(reader: &mut AnnotationReader<'_>, settings: &mut IngressSettings) {
    settings.headers.custom = reader.reference("custom-headers", ClusterKind::ConfigMap);
    settings.mirror = read_mirror(reader);
    if let Some(statuses) = reader.text("custom-http-errors").and_then(parse_statuses) {
        settings.errors.statuses = statuses;
    }
    if reader.switch("disable-proxy-intercept-errors") == Some(true) {
        settings.errors.statuses.clear();
    }
    settings.errors.backend = reader.shared("default-backend");
    if let Some(access) = reader.switch("enable-access-log") {
        settings.log.access = access;
    }
}

fn read_mirror(reader: &mut AnnotationReader<'_>) -> Option<IngressMirror> {
    let target = reader.nginx_text("mirror-target", LeftOut)?;
    let url = reader.text("mirror-target").unwrap_or_default();
    let host_of = |url: &str| {
        let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"))?;
        rest.split(['/', '$', '?']).next().filter(|host| !host.is_empty()).map(str::to_owned)
    };
    let Some(own_host) = host_of(url) else {
        reader.leave_out("mirror-target", "the value must be a URL of http or https with a host");
        return None;
    };
    let host = reader.nginx_text("mirror-host", LeftOut);
    let host = host.or_else(|| Some(NginxText::literal(own_host.split(':').next().unwrap_or_default())));
    Some(IngressMirror { target, host, has_body: reader.text("mirror-request-body") != Some("off") })
}

pub(super) fn read_snippets(reader: &mut AnnotationReader<'_>, settings: &mut IngressSettings) {
    settings.snippets.location = read_snippet(reader, "configuration-snippet", SnippetPlace::Location);
    settings.snippets.server = match translate(reader, "server-snippet", SnippetPlace::Server) {
        Some(Ok(plan)) => Some(ServerSnippet::Translated(plan)),
        // NGINX applies the snippet to all paths of the host, so that those of other Ingresses are unprotected too.
        Some(Err(refusal)) if refusal.guards => {
            reader.push("server-snippet", HostDenied, &refusal, refusal.way_over);
            Some(ServerSnippet::Denying)
        }
        Some(Err(refusal)) => {
            reader.push("server-snippet", LeftOut, &refusal, refusal.way_over);
            None
        }
        None => None,
    };
}

/// A translated snippet. A refused one is reported and left out.
pub(super) fn read_snippet(
    reader: &mut AnnotationReader<'_>,
    name: &str,
    place: SnippetPlace,
) -> Option<Arc<SnippetPlan>> {
    match translate(reader, name, place)? {
        Ok(plan) => Some(plan),
        Err(refusal) => {
            // Without a directive that refuses requests, those would pass.
            let consequence = match refusal.guards || place == SnippetPlace::Auth {
                true => IngressDenied,
                false => LeftOut,
            };
            reader.push(name, consequence, &refusal, refusal.way_over);
            None
        }
    }
}

/// Translates the value of an annotation and reports directives without effect.
fn translate(
    reader: &mut AnnotationReader<'_>,
    name: &str,
    place: SnippetPlace,
) -> Option<Result<Arc<SnippetPlan>, SnippetRefusal>> {
    let translated = translate_snippet(reader.text(name)?, place);
    for note in translated.iter().flat_map(|plan| &plan.notes) {
        reader.push(name, NoEffect, note, None);
    }
    Some(translated.map(Arc::new))
}

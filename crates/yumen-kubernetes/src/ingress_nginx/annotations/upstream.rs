//! Annotations of services, sessions, and responses of services.

use std::sync::Arc;

use super::AnnotationConsequence::{IngressDenied, IngressRefused, LeftOut};
use super::reader::AnnotationReader;
use super::value_rule::parse_size;
use crate::ingress_nginx::nginx_text::NginxText;
use crate::ingress_nginx::settings::{
    CanaryStickiness, FieldReplacement, IngressSession, IngressSettings, IngressUpstreamProtocol,
    NextUpstreamCondition, SameSiteRule, SessionSpread, UpstreamBalance, UpstreamHashKey,
};

pub(super) fn read_services(reader: &mut AnnotationReader<'_>, settings: &mut IngressSettings) {
    if let Some(protocol) = reader.text("backend-protocol") {
        match protocol.to_ascii_uppercase().as_str() {
            "HTTPS" => settings.upstream.protocol = IngressUpstreamProtocol::Https,
            "AUTO_HTTP" => settings.upstream.protocol = IngressUpstreamProtocol::AutoHttp,
            "GRPC" => settings.upstream.protocol = IngressUpstreamProtocol::Grpc,
            "GRPCS" => settings.upstream.protocol = IngressUpstreamProtocol::Grpcs,
            "FCGI" => {
                let way = "put a web server beside the FastCGI process, and name its port";
                reader.push(
                    "backend-protocol",
                    IngressDenied,
                    "the gateway does not send FastCGI",
                    Some(way),
                );
            }
            _ => settings.upstream.protocol = IngressUpstreamProtocol::Http,
        }
    }
    let upstream = &mut settings.upstream;
    if let Some(uses) = reader.switch("service-upstream") {
        upstream.uses_service_address = uses;
    }
    match reader.text("load-balance") {
        Some("ewma") => upstream.balance = UpstreamBalance::Ewma,
        Some(_) => upstream.balance = UpstreamBalance::RoundRobin,
        None => {}
    }
    upstream.host = reader.nginx_text("upstream-vhost", IngressRefused);
    let key = reader.nginx_text("upstream-hash-by", IngressRefused);
    let has_subset = reader.switch("upstream-hash-by-subset").unwrap_or(false);
    let size = reader.number("upstream-hash-by-subset-size").filter(|size| *size > 0).unwrap_or(3);
    if let Some(key) = key {
        settings.upstream.hash = Some(UpstreamHashKey { key, subset: has_subset.then_some(size) });
    }
}

pub(super) fn read_session(reader: &mut AnnotationReader<'_>, settings: &mut IngressSettings) {
    if reader.text("affinity") != Some("cookie") {
        return;
    }
    let seconds = |name: &str| reader.text(name).and_then(|text| text.parse::<i64>().ok());
    let conditional = reader.switch("session-cookie-conditional-samesite-none").unwrap_or(false);
    let same_site = reader.text("session-cookie-samesite").map(|written| {
        match (written.to_ascii_lowercase().as_str(), conditional) {
            ("lax", _) => SameSiteRule::Lax,
            ("strict", _) => SameSiteRule::Strict,
            (_, true) => SameSiteRule::ConditionalNone,
            (_, false) => SameSiteRule::None,
        }
    });
    settings.upstream.session = Some(IngressSession {
        name: reader.shared("session-cookie-name").unwrap_or_else(|| "INGRESSCOOKIE".into()),
        path: reader.shared("session-cookie-path"),
        domain: reader.shared("session-cookie-domain"),
        max_age_s: seconds("session-cookie-max-age"),
        expires_s: seconds("session-cookie-expires"),
        same_site,
        secure: reader.switch("session-cookie-secure"),
        changes_on_failure: reader.switch("session-cookie-change-on-failure").unwrap_or(false),
        spread: match reader.text("affinity-mode") {
            Some("persistent") => SessionSpread::Persistent,
            _ => SessionSpread::Balanced,
        },
        canary: match reader.text("affinity-canary-behavior") {
            Some("legacy") => CanaryStickiness::Legacy,
            _ => CanaryStickiness::Sticky,
        },
    });
}

pub(super) fn read_proxy(reader: &mut AnnotationReader<'_>, settings: &mut IngressSettings) {
    let proxy = &mut settings.proxy;
    // NGINX counts 0 as a time that has passed; no gateway can serve with it.
    let time = |name: &str, before: u32| reader.number(name).filter(|time| *time > 0).unwrap_or(before);
    proxy.connect_timeout_s = time("proxy-connect-timeout", proxy.connect_timeout_s);
    proxy.send_timeout_s = time("proxy-send-timeout", proxy.send_timeout_s);
    proxy.read_timeout_s = time("proxy-read-timeout", proxy.read_timeout_s);
    let next = &mut proxy.next_upstream;
    if let Some(words) = reader.text("proxy-next-upstream") {
        next.conditions = next_upstream(words);
    }
    next.tries = reader.number("proxy-next-upstream-tries").unwrap_or(next.tries);
    next.timeout_s = reader.number("proxy-next-upstream-timeout").unwrap_or(next.timeout_s);
    if let Some(bytes) = reader.text("proxy-body-size").and_then(|size| parse_size(&size.replace(' ', ""))) {
        proxy.body_bytes_max = bytes;
    }
    if let Some(pairs) = replacements(reader, "proxy-cookie-domain") {
        settings.proxy.cookie_domains = pairs;
    }
    if let Some(pairs) = replacements(reader, "proxy-cookie-path") {
        settings.proxy.cookie_paths = pairs;
    }
    read_location(reader, settings);
}

/// Reads `error timeout http_502`.
pub(in crate::ingress_nginx) fn next_upstream(words: &str) -> Vec<NextUpstreamCondition> {
    let words: Vec<&str> = words.split_whitespace().collect();
    if words.contains(&"off") {
        return Vec::new();
    }
    let condition = |word: &&str| match *word {
        "error" => Some(NextUpstreamCondition::Error),
        "timeout" => Some(NextUpstreamCondition::Timeout),
        "invalid_header" => Some(NextUpstreamCondition::InvalidHeader),
        "non_idempotent" => Some(NextUpstreamCondition::NonIdempotent),
        _ => word.strip_prefix("http_").and_then(|code| code.parse().ok()).map(NextUpstreamCondition::Status),
    };
    words.iter().filter_map(condition).collect()
}

/// Reads `off` or `from to`.
fn replacements(reader: &mut AnnotationReader<'_>, name: &str) -> Option<Vec<FieldReplacement>> {
    let written = reader.text(name)?;
    match field_replacement(written) {
        Ok(pair) => Some(pair.into_iter().collect()),
        Err(reason) => {
            reader.push(name, LeftOut, reason, None);
            None
        }
    }
}

/// Reads `off`, which is `None`, or `from to`.
pub(in crate::ingress_nginx) fn field_replacement(written: &str) -> Result<Option<FieldReplacement>, String> {
    match written.split_whitespace().collect::<Vec<_>>()[..] {
        ["off"] => Ok(None),
        [from, to] => {
            let to = NginxText::parse(to).map_err(|defect| defect.to_string())?;
            Ok(Some(FieldReplacement { from: Arc::from(from), to }))
        }
        _ => Err(format!("{written:?} is neither `off` nor two texts")),
    }
}

fn read_location(reader: &mut AnnotationReader<'_>, settings: &mut IngressSettings) {
    let from = reader.text("proxy-redirect-from");
    let to = reader.nginx_text("proxy-redirect-to", LeftOut);
    match (from, to) {
        (None, None) => {}
        (Some("off"), _) => settings.proxy.location = None,
        // NGINX replaces the address of the upstream, which services behind ingress-nginx never send.
        (Some("default"), None) => settings.proxy.location = None,
        (Some(from), Some(to)) if to.as_literal() != Some("off") => {
            settings.proxy.location = Some(FieldReplacement { from: from.into(), to });
        }
        _ => reader
            .leave_out("proxy-redirect-from", "proxy-redirect-from and proxy-redirect-to need each other"),
    }
}

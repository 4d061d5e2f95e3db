//! Annotations that admit or refuse requests: passwords, addresses, limits, CORS.

use std::sync::Arc;

use super::reader::AnnotationReader;
use super::value_rule::parse_networks;
use crate::ingress_nginx::settings::{
    AuthSatisfaction, HtpasswdForm, IngressBasicAuth, IngressCors, IngressSettings, ResponseRateSettings,
};
use crate::model::ClusterKind;

const CORS_METHODS: &str = "GET, PUT, POST, DELETE, PATCH, OPTIONS";
const CORS_HEADERS: &str = "DNT,Keep-Alive,User-Agent,X-Requested-With,If-Modified-Since,Cache-Control,Content-Type,\
                            Range,Authorization";
const CORS_MAX_AGE_S: u32 = 1_728_000;

pub(super) fn read_auth(reader: &mut AnnotationReader<'_>, settings: &mut IngressSettings) {
    settings.auth.satisfy = match reader.text("satisfy") {
        Some("any") => AuthSatisfaction::Any,
        _ => AuthSatisfaction::All,
    };
    if reader.text("auth-type") != Some("basic") {
        return;
    }
    if reader.text("auth-secret").is_none() {
        return reader.deny("auth-type", "passwords need a Secret: auth-secret is missing or invalid");
    }
    let Some(secret) = reader.reference("auth-secret", ClusterKind::Secret) else { return };
    settings.auth.basic = Some(IngressBasicAuth {
        secret,
        form: match reader.text("auth-secret-type") {
            Some("auth-map") => HtpasswdForm::Map,
            _ => HtpasswdForm::File,
        },
        realm: reader.shared("auth-realm").unwrap_or_default(),
    });
}

pub(super) fn read_limits(reader: &mut AnnotationReader<'_>, settings: &mut IngressSettings) {
    if let Some(allow) = networks(reader, "allowlist-source-range") {
        settings.access.allow = allow;
    }
    if let Some(deny) = networks(reader, "denylist-source-range") {
        settings.access.deny = deny;
    }
    let positive = |number: Option<u32>| number.filter(|number| *number > 0);
    let limits = &mut settings.limits;
    limits.connections = positive(reader.number("limit-connections"));
    limits.per_second = positive(reader.number("limit-rps"));
    limits.per_minute = positive(reader.number("limit-rpm"));
    limits.burst_multiplier = reader.number("limit-burst-multiplier").unwrap_or(limits.burst_multiplier);
    limits.exempt = networks(reader, "limit-allowlist").unwrap_or_default();
    let rate = reader.number("limit-rate");
    let after = reader.number("limit-rate-after");
    if rate.is_some() || after.is_some() {
        let before = limits.response_rate;
        let bytes_per_second = rate.map_or(before.map_or(0, |before| before.bytes_per_second), |kilobytes| {
            u64::from(kilobytes) * 1024
        });
        let after_bytes = after
            .map_or(before.map_or(0, |before| before.after_bytes), |kilobytes| u64::from(kilobytes) * 1024);
        let is_limited = bytes_per_second > 0;
        limits.response_rate = is_limited.then_some(ResponseRateSettings { bytes_per_second, after_bytes });
    }
}

fn networks(reader: &AnnotationReader<'_>, name: &str) -> Option<Vec<Arc<str>>> {
    let entries = parse_networks(reader.text(name)?).ok()?;
    Some(entries.into_iter().map(Arc::from).collect())
}

pub(super) fn read_cors(reader: &mut AnnotationReader<'_>, settings: &mut IngressSettings) {
    if !reader.switch("enable-cors").unwrap_or(false) {
        return;
    }
    let mut origins: Vec<Arc<str>> = Vec::new();
    for origin in reader.text("cors-allow-origin").unwrap_or("*").split(',').map(str::trim) {
        match origin {
            "" => {}
            "*" => {
                origins = vec![origin.into()];
                break;
            }
            _ if origin == "null" || origin.contains("://") => origins.push(origin.into()),
            _ => reader
                .leave_out("cors-allow-origin", format!("{origin:?} has no scheme, so no origin equals it")),
        }
    }
    settings.cors = Some(IngressCors {
        origins,
        methods: reader.shared("cors-allow-methods").unwrap_or_else(|| CORS_METHODS.into()),
        headers: reader.shared("cors-allow-headers").unwrap_or_else(|| CORS_HEADERS.into()),
        expose_headers: reader.shared("cors-expose-headers").unwrap_or_default(),
        credentials: reader.switch("cors-allow-credentials").unwrap_or(true),
        max_age_s: reader.number("cors-max-age").unwrap_or(CORS_MAX_AGE_S),
    });
}

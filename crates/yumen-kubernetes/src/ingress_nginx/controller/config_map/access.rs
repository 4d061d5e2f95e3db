//! Keys of the class: rules for annotations, fields, clients, compression, TLS, authentication, snippets.

use std::sync::Arc;

use super::super::settings_reader::SettingsReader;
use super::super::types::{
    CompressionSettings, ControllerSettings, ForwardedTrust, HstsSettings, PathTypeRule,
};
use crate::ingress_nginx::annotations::{
    AnnotationRisk, REDIRECT_PARAM, cache_rules, cipher_suites, field_names, service_url,
};
use crate::ingress_nginx::nginx_text::NginxText;
use crate::ingress_nginx::settings::{AuthAnswerCache, AuthServiceSettings, AuthSigninSettings};
use crate::ingress_nginx::snippet::{SnippetPlace, SnippetPlan, translate_snippet};
use crate::ingress_nginx::variables::with_raw_arguments;
use crate::model::ClusterKind;

const GZIP_TYPES: &str = "application/atom+xml application/javascript application/x-javascript application/json \
    application/rss+xml application/vnd.ms-fontobject application/x-font-ttf application/x-web-app-manifest+json \
    application/xhtml+xml application/xml font/opentype image/svg+xml image/x-icon text/css text/javascript text/plain \
    text/x-component";

pub(super) fn read_policy(reader: &mut SettingsReader<'_>, settings: &mut ControllerSettings) {
    let policy = &mut settings.policy;
    policy.allows_snippets = reader.switch("allow-snippet-annotations").unwrap_or(false);
    policy.allows_cross_namespace = reader.switch("allow-cross-namespace-resources").unwrap_or(false);
    policy.risk_max = match reader.text("annotations-risk-level") {
        Some("Low") => AnnotationRisk::Low,
        Some("Medium") => AnnotationRisk::Medium,
        Some("Critical") => AnnotationRisk::Critical,
        Some("High") | None => AnnotationRisk::High,
        Some(other) => {
            let message = format!("{other:?} is no level; allowed: Low, Medium, High, Critical");
            reader.error("annotations-risk-level", message);
            AnnotationRisk::High
        }
    };
    policy.blocked_words = reader.list("annotation-value-word-blocklist").unwrap_or_default();
    policy.response_headers = reader.list("global-allowed-response-headers").unwrap_or_default();
    if reader.switch("strict-validate-path-type") == Some(false) {
        policy.path_types = PathTypeRule::Lenient;
    }
}

pub(super) fn read_headers(reader: &mut SettingsReader<'_>, settings: &mut ControllerSettings) {
    let headers = &mut settings.headers;
    headers.add = reader.reference("add-headers", ClusterKind::ConfigMap);
    headers.set_upstream = reader.reference("proxy-set-headers", ClusterKind::ConfigMap);
    headers.hidden = reader.list("hide-headers").unwrap_or_default();
    headers.keeps_server = reader.switch("allow-backend-server-header").unwrap_or(false);
    headers.adds_original_uri = reader.switch("proxy-add-original-uri-header").unwrap_or(false);
    if reader.switch("server-tokens") != Some(true) {
        reader.set_node("server-tokens", "server_header", "");
    }
}

pub(super) fn read_clients(reader: &mut SettingsReader<'_>, settings: &mut ControllerSettings) {
    let client = &mut settings.client;
    client.proxy_protocol = reader.switch("use-proxy-protocol").unwrap_or(false);
    let believes_fields = reader.switch("use-forwarded-headers").unwrap_or(false);
    let believes_address = reader.switch("enable-real-ip").unwrap_or(false);
    client.trust = match (believes_fields, believes_address) {
        (true, _) => ForwardedTrust::AllFields,
        (false, true) => ForwardedTrust::Address,
        (false, false) => ForwardedTrust::None,
    };
    client.appends = reader.switch("compute-full-forwarded-for").unwrap_or(false);
    if let Some(field) = reader.shared("forwarded-for-header") {
        client.field = field;
    }
    let networks = reader.networks("proxy-real-ip-cidr");
    if networks.is_none() && reader.text("proxy-real-ip-cidr").is_some() {
        // Without the list that was written any client could choose its address.
        client.trust = ForwardedTrust::None;
        return read_blocked(reader, settings);
    }
    if client.trust == ForwardedTrust::None {
        if let (Some(_), false) = (&networks, client.proxy_protocol) {
            let message =
                "no effect: neither use-forwarded-headers nor enable-real-ip nor use-proxy-protocol is true";
            reader.warn("proxy-real-ip-cidr", message, None);
        }
    } else {
        client.trusted = networks.unwrap_or_else(|| vec!["0.0.0.0/0".into(), "::/0".into()]);
        let trusted: Vec<&str> = client.trusted.iter().map(|network| &**network).collect();
        reader.set_node("proxy-real-ip-cidr", "trusted_addresses", trusted);
        if client.trusted.iter().any(|network| matches!(&**network, "0.0.0.0/0" | "::/0")) {
            let message = "any client can choose the address that it seems to come from";
            let way = "set proxy-real-ip-cidr to the networks of the load balancers";
            reader.warn("proxy-real-ip-cidr", message, Some(way));
        }
    }
    read_blocked(reader, settings);
}

fn read_blocked(reader: &mut SettingsReader<'_>, settings: &mut ControllerSettings) {
    let blocked = &mut settings.blocked;
    blocked.networks = reader.guarding_networks("block-cidrs").unwrap_or_default();
    blocked.user_agents = reader.list("block-user-agents").unwrap_or_default();
    blocked.referers = reader.list("block-referers").unwrap_or_default();
}

pub(super) fn read_compression(reader: &mut SettingsReader<'_>, settings: &mut ControllerSettings) {
    let types = |reader: &SettingsReader<'_>, key: &str| -> Vec<Arc<str>> {
        reader.text(key).unwrap_or(GZIP_TYPES).split_whitespace().map(Arc::from).collect()
    };
    if reader.switch("use-gzip") == Some(true) {
        settings.gzip = Some(CompressionSettings {
            level: reader.number("gzip-level").unwrap_or(1).clamp(1, 9),
            types: types(reader, "gzip-types"),
            bytes_min: reader.number("gzip-min-length").unwrap_or(256).into(),
        });
    }
    if reader.switch("enable-brotli") == Some(true) {
        settings.brotli = Some(CompressionSettings {
            level: reader.number("brotli-level").unwrap_or(4).min(11),
            types: types(reader, "brotli-types"),
            bytes_min: reader.number("brotli-min-length").unwrap_or(20).into(),
        });
    }
}

pub(super) fn read_tls(reader: &mut SettingsReader<'_>, settings: &mut ControllerSettings) {
    let tls = &mut settings.tls;
    for version in reader.text("ssl-protocols").unwrap_or_default().split_whitespace() {
        match version {
            "TLSv1.2" | "TLSv1.3" => tls.versions.push(version.into()),
            "TLSv1" | "TLSv1.1" | "SSLv2" | "SSLv3" => {
                let message = format!("{version} is not offered (RFC 8996, RFC 7568)");
                reader.warn("ssl-protocols", message, Some("update clients to TLS 1.2 or 1.3"));
            }
            _ => reader.error("ssl-protocols", format!("{version:?} is no version of TLS")),
        }
    }
    if let Some(written) = reader.text("ssl-ciphers") {
        tls.ciphers = cipher_suites(written);
        if tls.ciphers.is_empty() {
            reader.error("ssl-ciphers", "the list names no cipher suite");
        }
    }
    tls.rejects_unknown_names = reader.switch("ssl-reject-handshake").unwrap_or(false);
    if reader.switch("hsts") == Some(false) {
        tls.hsts = None;
    }
    let defaults = HstsSettings::default();
    if let Some(hsts) = &mut tls.hsts {
        *hsts = HstsSettings {
            max_age_s: reader.number("hsts-max-age").map_or(defaults.max_age_s, u64::from),
            include_subdomains: reader.switch("hsts-include-subdomains").unwrap_or(true),
            preload: reader.switch("hsts-preload").unwrap_or(false),
        };
    }
    if let Some(tickets) = reader.switch("ssl-session-tickets") {
        reader.set_node("ssl-session-tickets", "tls.session_tickets", tickets);
    }
    if let Some(staples) = reader.switch("enable-ocsp") {
        reader.set_node("enable-ocsp", "tls.ocsp_stapling", staples);
    }
}

pub(super) fn read_auth(reader: &mut SettingsReader<'_>, settings: &mut ControllerSettings) {
    let Some(written) = reader.text("global-auth-url") else { return };
    let Some(url) = service_url(written) else {
        return reader.deny("global-auth-url", "the value must be a URL with scheme and host", None);
    };
    let mut text = |key: &str| match NginxText::parse(reader.text(key)?) {
        Ok(text) => Some(with_raw_arguments(text)),
        Err(defect) => {
            reader.error(key, defect);
            None
        }
    };
    let (signin, request_redirect) = (text("global-auth-signin"), text("global-auth-request-redirect"));
    let key = text("global-auth-cache-key");
    let rules = match cache_rules(reader.text("global-auth-cache-duration").unwrap_or_default()) {
        Ok(rules) => rules,
        Err(reason) => {
            reader.error("global-auth-cache-duration", reason);
            Vec::new()
        }
    };
    let redirect_param = reader.shared("global-auth-signin-redirect-param");
    let service = AuthServiceSettings {
        url,
        method: reader.shared("global-auth-method"),
        signin: signin.map(|url| AuthSigninSettings {
            url,
            redirect_param: redirect_param.unwrap_or_else(|| REDIRECT_PARAM.into()),
        }),
        response_headers: field_names(reader.text("global-auth-response-headers").unwrap_or_default()),
        request_redirect,
        set_headers: None,
        always_sets_cookie: reader.switch("global-auth-always-set-cookie").unwrap_or(false),
        cache: key.filter(|_| !rules.is_empty()).map(|key| AuthAnswerCache { key, rules }),
        keepalive: None,
    };
    let exempt = reader.list("no-auth-locations");
    let exempt = exempt.unwrap_or_else(|| vec!["/.well-known/acme-challenge".into()]);
    settings.auth = Some((service, exempt));
    settings.defaults.snippets.auth = read_snippet(reader, "global-auth-snippet", SnippetPlace::Auth);
}

pub(super) fn read_snippets(reader: &mut SettingsReader<'_>, settings: &mut ControllerSettings) {
    let location = read_snippet(reader, "location-snippet", SnippetPlace::Location);
    let server = read_snippet(reader, "server-snippet", SnippetPlace::Server);
    settings.snippets = (location, server);
}

fn read_snippet(reader: &mut SettingsReader<'_>, key: &str, place: SnippetPlace) -> Option<Arc<SnippetPlan>> {
    match translate_snippet(reader.text(key)?, place) {
        Ok(plan) => Some(Arc::new(plan)),
        Err(refusal) => {
            match refusal.guards || place == SnippetPlace::Auth {
                true => reader.deny(key, &refusal, refusal.way_over),
                false => reader.warn(key, &refusal, refusal.way_over),
            }
            None
        }
    }
}

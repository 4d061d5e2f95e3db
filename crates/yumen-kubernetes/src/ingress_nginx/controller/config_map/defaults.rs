//! Keys that are defaults of annotations.

use std::sync::Arc;

use super::super::settings_reader::SettingsReader;
use super::super::types::ControllerSettings;
use crate::ingress_nginx::annotations::{field_replacement, next_upstream, parse_size, parse_statuses};
use crate::ingress_nginx::nginx_text::NginxText;
use crate::ingress_nginx::settings::{
    FieldReplacement, LocationForm, NextUpstreamCondition, ResponseRateSettings, SslRedirectRule,
    UpstreamBalance, UpstreamHashKey,
};

pub(super) fn read_redirects(reader: &mut SettingsReader<'_>, settings: &mut ControllerSettings) {
    let redirects = &mut settings.defaults.redirects;
    let with_tls = reader.switch("ssl-redirect").unwrap_or(true);
    let always = reader.switch("force-ssl-redirect").unwrap_or(false);
    redirects.ssl = match (always, with_tls) {
        (true, _) => SslRedirectRule::Always,
        (false, true) => SslRedirectRule::WithTls,
        (false, false) => SslRedirectRule::Off,
    };
    redirects.keeps_trailing_slash = reader.switch("preserve-trailing-slash").unwrap_or(false);
    redirects.app_root = reader.shared("app-root").filter(|root| root.starts_with('/'));
    let relative = reader.switch("relative-redirects").unwrap_or(false);
    let with_port = reader.switch("use-port-in-redirects").unwrap_or(false);
    redirects.form = match (relative, with_port) {
        (true, _) => LocationForm::Relative,
        (false, true) => LocationForm::WithPort,
        (false, false) => LocationForm::Absolute,
    };
    if let Some(status) = reader.number("http-redirect-code") {
        match u16::try_from(status).ok().filter(|status| matches!(status, 301 | 302 | 307 | 308)) {
            Some(status) => settings.redirects.status = status,
            None => reader.error("http-redirect-code", "the value must be 301, 302, 307 or 308"),
        }
    }
    if let Some(exempt) = reader.list("no-tls-redirect-locations") {
        settings.redirects.exempt = exempt;
    }
}

pub(super) fn read_proxy(reader: &mut SettingsReader<'_>, settings: &mut ControllerSettings) {
    let proxy = &mut settings.defaults.proxy;
    let mut time = |key: &str, before: u32| reader.number(key).filter(|time| *time > 0).unwrap_or(before);
    proxy.connect_timeout_s = time("proxy-connect-timeout", proxy.connect_timeout_s);
    proxy.send_timeout_s = time("proxy-send-timeout", proxy.send_timeout_s);
    proxy.read_timeout_s = time("proxy-read-timeout", proxy.read_timeout_s);
    if let Some(size) = reader.text("proxy-body-size") {
        match parse_size(size) {
            Some(bytes) => proxy.body_bytes_max = bytes,
            None => reader.error("proxy-body-size", format!("{size:?} is no size, such as 8m")),
        }
    }
    let next = &mut proxy.next_upstream;
    if let Some(words) = reader.text("proxy-next-upstream") {
        next.conditions = next_upstream(words);
    }
    if reader.switch("retry-non-idempotent") == Some(true) && !next.conditions.is_empty() {
        next.conditions.push(NextUpstreamCondition::NonIdempotent);
    }
    next.tries = reader.number("proxy-next-upstream-tries").unwrap_or(next.tries);
    next.timeout_s = reader.number("proxy-next-upstream-timeout").unwrap_or(next.timeout_s);
    proxy.cookie_domains = replacements(reader, "proxy-cookie-domain");
    proxy.cookie_paths = replacements(reader, "proxy-cookie-path");
    let is_on = |text: &&str| *text != "off" && *text != "default";
    let ends =
        (reader.text("proxy-redirect-from").filter(is_on), reader.text("proxy-redirect-to").filter(is_on));
    if let (Some(from), Some(to)) = ends {
        match NginxText::parse(to) {
            Ok(to) => proxy.location = Some(FieldReplacement { from: Arc::from(from), to }),
            Err(defect) => reader.error("proxy-redirect-to", defect),
        }
    }
}

fn replacements(reader: &mut SettingsReader<'_>, key: &str) -> Vec<FieldReplacement> {
    match reader.text(key).map(field_replacement) {
        Some(Ok(pair)) => pair.into_iter().collect(),
        Some(Err(reason)) => {
            reader.error(key, reason);
            Vec::new()
        }
        None => Vec::new(),
    }
}

pub(super) fn read_limits(reader: &mut SettingsReader<'_>, settings: &mut ControllerSettings) {
    let defaults = &mut settings.defaults;
    if let Some(allow) = reader.guarding_networks("whitelist-source-range") {
        defaults.access.allow = allow;
    }
    if let Some(deny) = reader.guarding_networks("denylist-source-range") {
        defaults.access.deny = deny;
    }
    let rate = reader.number("limit-rate").filter(|rate| *rate > 0);
    let after = reader.number("limit-rate-after").unwrap_or(0);
    defaults.limits.response_rate = rate.map(|kilobytes| ResponseRateSettings {
        bytes_per_second: u64::from(kilobytes) * 1024,
        after_bytes: u64::from(after) * 1024,
    });
    if let Some(written) = reader.text("custom-http-errors") {
        match parse_statuses(written) {
            Some(statuses) => defaults.errors.statuses = statuses,
            None => reader
                .error("custom-http-errors", format!("{written:?} is no list of statuses from 400 to 599")),
        }
    }
    if reader.switch("disable-proxy-intercept-errors") == Some(true) {
        defaults.errors.statuses.clear();
    }
    let mut status = |key: &str| reader.number(key).and_then(|status| u16::try_from(status).ok());
    let statuses = (status("limit-req-status-code"), status("limit-conn-status-code"));
    if statuses != (None, None) {
        let valid = |status: Option<u16>| status.filter(|status| (400..600).contains(status)).unwrap_or(503);
        settings.limit_statuses = Some((valid(statuses.0), valid(statuses.1)));
    }
    match reader.text("load-balance") {
        Some("ewma") => defaults.upstream.balance = UpstreamBalance::Ewma,
        Some("round_robin") | None => {}
        Some(other) => reader.error("load-balance", format!("{other:?} is neither round_robin nor ewma")),
    }
    defaults.upstream.uses_service_address = reader.switch("service-upstream").unwrap_or(false);
    if let Some(key) = reader.text("upstream-hash-by") {
        match NginxText::parse(key) {
            Ok(key) => defaults.upstream.hash = Some(UpstreamHashKey { key, subset: None }),
            Err(defect) => reader.error("upstream-hash-by", defect),
        }
    }
}

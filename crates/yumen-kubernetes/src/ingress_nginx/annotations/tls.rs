//! Annotations of names and TLS: towards clients and towards services.

use std::sync::Arc;

use yumen_config::resource::ClientCertMode;

use super::AnnotationConsequence::{HostDenied, LeftOut};
use super::reader::AnnotationReader;
use crate::ingress_nginx::settings::{IngressClientTls, IngressSettings, UpstreamTlsChoice};
use crate::model::ClusterKind;

pub(super) fn read_hosts(reader: &mut AnnotationReader<'_>, settings: &mut IngressSettings) {
    settings.server.aliases = read_aliases(reader);
    settings.server.ssl_passthrough = reader.switch("ssl-passthrough").unwrap_or(false);
    if let Some(suites) = reader.text("ssl-ciphers") {
        let suites = cipher_suites(suites);
        match suites.is_empty() {
            true => {
                let reason = "the list names no cipher suite of TLS 1.2 or 1.3";
                reader.push("ssl-ciphers", LeftOut, reason, Some("write cipher suites by their names"));
            }
            false => settings.server.ciphers = Some(suites),
        }
    }
    settings.server.client = read_client_tls(reader);
    // Also without the value, which the rule of the annotation refused.
    settings.server.is_denied = settings.server.client.is_none() && reader.is_requested("auth-tls-secret");
}

/// Cipher suites without the names of lists and the operators of OpenSSL.
pub(in crate::ingress_nginx) fn cipher_suites(written: &str) -> Vec<Arc<str>> {
    let names = written.split([':', ' ', ',']);
    let is_suite = |name: &&str| {
        let mut bytes = name.bytes();
        bytes.next().is_some_and(|byte| byte.is_ascii_uppercase())
            && name.contains(['-', '_'])
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    names.filter(is_suite).map(Arc::from).collect()
}

fn read_aliases(reader: &mut AnnotationReader<'_>) -> Vec<Arc<str>> {
    let mut aliases: Vec<Arc<str>> = Vec::new();
    for name in reader.text("server-alias").unwrap_or_default().split(',').map(str::trim) {
        let host = name.strip_prefix("*.").unwrap_or(name);
        let is_host = !host.is_empty()
            && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
            && !host.starts_with('.');
        match is_host {
            true if !aliases.iter().any(|alias| alias.eq_ignore_ascii_case(name)) => {
                aliases.push(name.to_ascii_lowercase().into());
            }
            false if !name.is_empty() => {
                let reason = format!("{name:?} is a pattern, not a host name");
                reader.push("server-alias", LeftOut, reason, Some("write each name, or `*.` and a name"));
            }
            _ => {}
        }
    }
    aliases.sort();
    aliases
}

fn read_client_tls(reader: &mut AnnotationReader<'_>) -> Option<IngressClientTls> {
    let value = reader.text("auth-tls-secret")?;
    let secret = match reader.resolve(value, ClusterKind::Secret) {
        Ok(secret) => secret,
        Err(reason) => {
            reader.push("auth-tls-secret", HostDenied, reason, None);
            return None;
        }
    };
    let mut client = IngressClientTls::new(secret);
    client.mode = match reader.text("auth-tls-verify-client") {
        Some("off") => None,
        Some("optional") => Some(ClientCertMode::Optional),
        Some("optional_no_ca") => Some(ClientCertMode::OptionalNoCa),
        _ => Some(ClientCertMode::Require),
    };
    client.depth = depth(reader, "auth-tls-verify-depth");
    client.error_page = reader.shared("auth-tls-error-page");
    if client.error_page.as_deref().is_some_and(|page| page.starts_with('@')) {
        let reason = "a named location exists in NGINX's configuration only";
        reader.push("auth-tls-error-page", LeftOut, reason, Some("write the URL of a page"));
        client.error_page = None;
    }
    client.match_cn = reader.shared("auth-tls-match-cn");
    client.passes_certificate = reader.switch("auth-tls-pass-certificate-to-upstream").unwrap_or(false);
    Some(client)
}

/// The number of intermediate certificates; 0 and an absent value mean 1.
fn depth(reader: &AnnotationReader<'_>, name: &str) -> u8 {
    let depth = reader.number(name).unwrap_or(1).max(1);
    u8::try_from(depth).unwrap_or(u8::MAX)
}

pub(super) fn read_upstream_tls(reader: &mut AnnotationReader<'_>, settings: &mut IngressSettings) {
    // Without a Secret ingress-nginx reads none of the others.
    let Some(secret) = reader.reference("proxy-ssl-secret", ClusterKind::Secret) else { return };
    let words = |text: Option<&str>| -> Vec<Arc<str>> {
        text.unwrap_or_default().split([' ', ':']).filter(|word| !word.is_empty()).map(Arc::from).collect()
    };
    settings.upstream.tls = Some(UpstreamTlsChoice {
        secret: Some(secret),
        verify: reader.text("proxy-ssl-verify") == Some("on"),
        depth: depth(reader, "proxy-ssl-verify-depth"),
        name: reader.shared("proxy-ssl-name"),
        protocols: words(reader.text("proxy-ssl-protocols")),
        ciphers: words(reader.text("proxy-ssl-ciphers")),
    });
}

//! TLS of a host: its certificate, and the rules for client certificates.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use yumen_base::problem::Problem;
use yumen_config::resource::ClientCertMode;

use super::effects::annotation_path;
use super::host_names::{covers, wildcard_of};
use super::members::{HostMembers, members_of};
use crate::derived::{IngressGroup, ParsedIngress};
use crate::engine::{ReferencedObject, TrackedView};
use crate::ingress_nginx::{ControllerSettings, IngressClientTls};
use crate::model::{ObjectKey, SecretObject};

/// TLS of a host.
#[derive(Debug, Default)]
pub(super) struct HostTls {
    /// Whether an Ingress of the host has TLS, with a certificate or the default one.
    pub(super) is_configured: bool,
    /// Certificate and key; `None`: the default certificate.
    pub(super) pair: Option<HostCertificate>,
    pub(super) problems: Vec<Problem>,
}

/// A certificate with its key, PEM.
#[derive(Debug, Clone)]
pub(super) struct HostCertificate {
    pub(super) cert: Arc<str>,
    pub(super) key: Arc<str>,
    /// DNS names of the certificate.
    pub(super) names: Vec<String>,
}

/// The TLS of a host by its first Ingress with TLS; without one, that of the wildcard of its parent domain.
pub(super) fn tls_of(
    view: &TrackedView<'_>,
    host: &str,
    members: &HostMembers<'_>,
    defaults: &ControllerSettings,
) -> HostTls {
    let mut tls = HostTls::default();
    let mut first = members.primary.iter().copied().find(|one| one.has_tls());
    if first.is_none()
        && let Some(wildcard) = wildcard_of(host)
    {
        let of_wildcard = members_of(view, &IngressGroup::Host(wildcard.into()));
        first = of_wildcard.primary.into_iter().find(|one| one.has_tls());
    }
    if let Some(first) = first {
        tls.is_configured = true;
        match certificate_of(view, host, first) {
            Ok(pair) => tls.pair = pair,
            Err(message) => {
                let problem = Problem::warning(first.key.to_string(), "spec.tls", message);
                tls.problems.push(problem.hint("the default certificate is served meanwhile"));
            }
        }
    }
    if tls.pair.is_none() {
        tls.pair = default_certificate(view, defaults, &mut tls.problems);
    }
    tls
}

/// The certificate that an Ingress has for a host: of the entry that lists the host, else of one that covers it.
fn certificate_of(
    view: &TrackedView<'_>,
    host: &str,
    parsed: &ParsedIngress,
) -> Result<Option<HostCertificate>, String> {
    let entries = &parsed.object.spec.tls;
    let namespace = &parsed.key.namespace;
    let listed = entries.iter().find(|entry| entry.hosts.iter().any(|name| name.eq_ignore_ascii_case(host)));
    if let Some(entry) = listed {
        let Some(name) = entry.secret_name.as_ref().filter(|name| !name.is_empty()) else { return Ok(None) };
        let found = read_pair(view, namespace, name)?;
        return match found.names.iter().any(|name| covers(name, host)) {
            true => Ok(Some(found)),
            false => Err(format!("Secret {namespace}/{name} has no certificate for {host}")),
        };
    }
    let secrets = entries.iter().filter_map(|entry| entry.secret_name.as_ref());
    let pairs =
        secrets.filter(|name| !name.is_empty()).filter_map(|name| read_pair(view, namespace, name).ok());
    Ok(pairs.into_iter().find(|pair| pair.names.iter().any(|name| covers(name, host))))
}

fn default_certificate(
    view: &TrackedView<'_>,
    defaults: &ControllerSettings,
    problems: &mut Vec<Problem>,
) -> Option<HostCertificate> {
    let key = defaults.tls.default_certificate.as_ref()?;
    match read_pair(view, &key.namespace, &key.name) {
        Ok(pair) => Some(pair),
        Err(message) => {
            problems.push(Problem::error(key.to_string(), "", format!("default certificate: {message}")));
            None
        }
    }
}

fn read_pair(
    view: &TrackedView<'_>,
    namespace: &Arc<str>,
    name: &Arc<str>,
) -> Result<HostCertificate, String> {
    let secret = match view.secret(namespace, name) {
        ReferencedObject::Found(secret) => secret,
        ReferencedObject::Missing | ReferencedObject::Pending => {
            return Err(format!("Secret {namespace}/{name} does not exist"));
        }
    };
    let text = |entry: &str| secret.text(entry).filter(|text| !text.trim().is_empty());
    let (Some(cert), Some(key)) = (text("tls.crt"), text("tls.key")) else {
        return Err(format!("Secret {namespace}/{name} has no text in tls.crt and tls.key"));
    };
    let names = view
        .certificates()
        .pair(cert, key)
        .map_err(|reason| format!("Secret {namespace}/{name} does not serve: {reason}"))?;
    Ok(HostCertificate { cert: cert.into(), key: key.into(), names: names.dns })
}

/// Rules for the client certificates of a host.
#[derive(Debug)]
pub(super) enum HostClientRules<'t> {
    /// The member `tls.client` of the scope, with the settings of routes.
    Verified(Value, &'t IngressClientTls),
    /// Every request is answered with 403.
    Denied(Problem),
}

/// The rules of the first Ingress of a host that has some.
pub(super) fn client_rules<'t>(
    view: &TrackedView<'_>,
    members: &HostMembers<'t>,
    defaults: &ControllerSettings,
) -> Option<HostClientRules<'t>> {
    let with_rules =
        |one: &&&'t Arc<ParsedIngress>| one.settings.server.client.is_some() || one.settings.server.is_denied;
    let owner = members.primary.iter().find(with_rules)?;
    let denied = |message: String| {
        let message = format!("{message}: the hosts of the Ingress answer 403");
        let path = annotation_path(defaults, "auth-tls-secret");
        Some(HostClientRules::Denied(Problem::error(owner.key.to_string(), path, message)))
    };
    let Some(client) = owner.settings.server.client.as_ref().filter(|_| !owner.settings.server.is_denied)
    else {
        return denied("client certificates cannot be verified".to_owned());
    };
    let mode = client.mode?;
    let ObjectKey { namespace, name, .. } = &client.secret;
    let secret = match view.secret(namespace, name) {
        ReferencedObject::Found(secret) => secret,
        ReferencedObject::Missing | ReferencedObject::Pending => {
            return denied(format!("Secret {namespace}/{name} does not exist"));
        }
    };
    match client_value(view, client, mode, secret) {
        Ok(value) => Some(HostClientRules::Verified(value, client)),
        Err(reason) => denied(format!("Secret {namespace}/{name}: {reason}")),
    }
}

fn client_value(
    view: &TrackedView<'_>,
    client: &IngressClientTls,
    mode: ClientCertMode,
    secret: &SecretObject,
) -> Result<Value, String> {
    let ca = secret.text("ca.crt").filter(|ca| !ca.trim().is_empty()).ok_or("ca.crt is empty")?;
    view.certificates().authorities(ca).map_err(|reason| format!("ca.crt: {reason}"))?;
    let mut members = Map::new();
    members.insert("ca".to_owned(), ca.into());
    if let Some(crl) = secret.text("ca.crl").filter(|crl| !crl.trim().is_empty()) {
        members.insert("crl".to_owned(), crl.into());
    }
    members.insert("depth".to_owned(), client.depth.into());
    // The routes answer with a status, as NGINX does, instead of an alert.
    let mode = match mode {
        ClientCertMode::Require | ClientCertMode::OptionalNoCa => "optional_no_ca",
        ClientCertMode::Optional => "optional",
        ClientCertMode::AllowInsecureFallback => "allow_insecure_fallback",
    };
    members.insert("mode".to_owned(), mode.into());
    Ok(members.into())
}

/// An `ssls` resource.
pub(super) fn certificate_value(pair: &HostCertificate, scope: &str, snis: &[String], origin: &str) -> Value {
    json!({
        "snis": snis,
        "cert": &*pair.cert,
        "key": &*pair.key,
        "scopes": [scope],
        "labels": { "origin": origin },
    })
}

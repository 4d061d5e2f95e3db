//! Validation of client certificates (`spec.tls.frontend`), by port.

use super::certificates::require_grant;
use crate::derived::ConditionReason;
use crate::engine::TrackedView;
use crate::model::{FrontendValidationSpec, GatewayObject, ObjectKey, ObjectReference};

/// The longest text of certificates that `scopes` take.
const AUTHORITIES_MAX: usize = 1 << 20;

/// Rules for client certificates of a section.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ClientRules {
    /// PEM, of all references that resolve.
    pub(super) authorities: String,
    pub(super) is_insecure: bool,
}

/// The outcome of a validation.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ResolvedClientRules {
    /// `None` if no reference resolves.
    pub(super) rules: Option<ClientRules>,
    /// The first reference that does not resolve.
    pub(super) unresolved: Option<ConditionReason>,
}

/// The validation of a port: that of `perPort`, which replaces the default as a whole.
pub(super) fn validation_of(gateway: &GatewayObject, port: u16) -> Option<&FrontendValidationSpec> {
    let frontend = &gateway.spec.tls.frontend;
    let of_port =
        frontend.per_port.iter().find(|per_port| per_port.port == port).map(|per_port| &per_port.tls);
    of_port.unwrap_or(&frontend.default).validation.as_ref()
}

pub(super) fn resolve_client_rules(
    view: &TrackedView<'_>,
    gateway: &ObjectKey,
    validation: &FrontendValidationSpec,
) -> ResolvedClientRules {
    let mut resolved = ResolvedClientRules::default();
    let mut authorities = String::new();
    for reference in &validation.ca_certificate_refs {
        match resolve_authorities(view, gateway, reference) {
            Ok(pem) => {
                authorities.push_str(pem.trim_end());
                authorities.push('\n');
            }
            Err(reason) => {
                resolved.unresolved.get_or_insert(reason);
            }
        }
    }
    if authorities.len() > AUTHORITIES_MAX {
        let message = format!(
            "The CA certificates have {} bytes in sum; at most {AUTHORITIES_MAX} are possible.",
            authorities.len()
        );
        resolved.unresolved.get_or_insert(ConditionReason::new("InvalidCACertificateRef", message));
        authorities.clear();
    }
    let is_insecure = validation.mode.as_deref() == Some("AllowInsecureFallback");
    if !authorities.is_empty() {
        resolved.rules = Some(ClientRules { authorities, is_insecure });
    }
    resolved
}

fn resolve_authorities<'t>(
    view: &TrackedView<'t>,
    gateway: &ObjectKey,
    reference: &ObjectReference,
) -> Result<&'t str, ConditionReason> {
    let kind = reference.kind_or("ConfigMap");
    if !reference.group().is_empty() || !matches!(kind, "ConfigMap" | "Secret") {
        let message = format!(
            "CA reference {:?} has kind {}/{kind}; allowed: ConfigMap and Secret of the core group.",
            reference.name,
            reference.group()
        );
        return Err(ConditionReason::new("InvalidCACertificateKind", message));
    }
    let namespace = reference.namespace_or(&gateway.namespace);
    require_grant(view, gateway, namespace, kind, &reference.name)?;
    let pem = match kind {
        "Secret" => {
            let secret = view.secret(namespace, &reference.name).found();
            secret.map(|secret| secret.text("ca.crt"))
        }
        _ => {
            let config_map = view.config_map(namespace, &reference.name).found();
            config_map.map(|config_map| config_map.data.get("ca.crt").map(|pem| &**pem))
        }
    };
    let name = format!("{kind} {namespace}/{}", reference.name);
    let invalid = |message: String| ConditionReason::new("InvalidCACertificateRef", message);
    let pem = pem.ok_or_else(|| invalid(format!("{name} does not exist.")))?;
    let pem = pem.ok_or_else(|| invalid(format!("{name} has no text in ca.crt.")))?;
    let checked = view.certificates().authorities(pem);
    checked.map_err(|reason| invalid(format!("ca.crt of {name} does not verify clients: {reason}.")))?;
    Ok(pem)
}

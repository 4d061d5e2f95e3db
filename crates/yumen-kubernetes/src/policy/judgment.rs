//! Validation of one policy: certificates, names, and the reasons of its conditions.

use std::sync::Arc;

use crate::derived::{BackendTlsRules, ConditionReason, PolicyVerdict};
use crate::engine::TrackedView;
use crate::model::{BackendTlsPolicyObject, ExtensionReference};

/// Key of a ConfigMap or Secret with certificates.
const CERTIFICATES_KEY: &str = "ca.crt";

/// The longest text of certificates that `upstreams` take.
const AUTHORITIES_MAX: usize = 1 << 20;

/// Findings about a policy by itself.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PolicyJudgment {
    pub(super) verdict: PolicyVerdict,
    /// Why the policy is not accepted.
    pub(super) refusal: Option<ConditionReason>,
    /// The first reference that does not resolve.
    pub(super) unresolved: Option<ConditionReason>,
}

pub(super) fn judge(view: &TrackedView<'_>, policy: &BackendTlsPolicyObject) -> PolicyJudgment {
    let mut unresolved = None;
    let rules = rules_of(view, policy, &mut unresolved);
    match rules {
        Ok(rules) => {
            PolicyJudgment { verdict: PolicyVerdict::Valid(Arc::new(rules)), refusal: None, unresolved }
        }
        Err(reason) => {
            let verdict = PolicyVerdict::Invalid(reason.message.clone());
            PolicyJudgment { verdict, refusal: Some(reason), unresolved }
        }
    }
}

fn rules_of(
    view: &TrackedView<'_>,
    policy: &BackendTlsPolicyObject,
    unresolved: &mut Option<ConditionReason>,
) -> Result<BackendTlsRules, ConditionReason> {
    let validation = &policy.spec.validation;
    let invalid = |message: String| ConditionReason::new("Invalid", message);
    let authorities =
        match (&*validation.ca_certificate_refs, validation.well_known_ca_certificates.as_deref()) {
            ([], Some("System")) => None,
            ([], Some(other)) => {
                let message = format!(
                    "validation.wellKnownCACertificates {other:?} is not supported; allowed: System."
                );
                return Err(invalid(message));
            }
            ([], None) => {
                let message = "validation needs caCertificateRefs or wellKnownCACertificates.";
                return Err(invalid(message.to_owned()));
            }
            (_, Some(_)) => {
                let message = "validation must not have both caCertificateRefs and wellKnownCACertificates.";
                return Err(invalid(message.to_owned()));
            }
            (references, None) => Some(authorities_of(view, policy, references, unresolved)?),
        };
    if validation.hostname.is_empty() {
        return Err(invalid("validation.hostname is empty.".to_owned()));
    }
    let mut names = Vec::with_capacity(validation.subject_alt_names.len());
    for name in &validation.subject_alt_names {
        names.push(match (&*name.kind, &name.hostname, &name.uri) {
            ("Hostname", Some(host), _) => format!("dns:{host}").into(),
            ("URI", _, Some(uri)) => format!("uri:{uri}").into(),
            (kind, ..) => {
                let message = format!(
                    "validation.subjectAltNames has an entry of type {kind:?} without a value of the type; allowed \
                     types: Hostname, URI."
                );
                return Err(invalid(message));
            }
        });
    }
    Ok(BackendTlsRules { authorities, server_name: validation.hostname.clone(), names })
}

/// The certificates of all references that resolve.
fn authorities_of(
    view: &TrackedView<'_>,
    policy: &BackendTlsPolicyObject,
    references: &[ExtensionReference],
    unresolved: &mut Option<ConditionReason>,
) -> Result<Arc<str>, ConditionReason> {
    let mut authorities = String::new();
    for reference in references {
        match authority_of(view, &policy.meta.namespace, reference) {
            Ok(pem) => {
                authorities.push_str(pem.trim_end());
                authorities.push('\n');
            }
            Err(reason) => {
                unresolved.get_or_insert(reason);
            }
        }
    }
    if authorities.is_empty() {
        let reason = unresolved.as_ref().map(|reason| format!(" {}", reason.message)).unwrap_or_default();
        let message = format!("No reference of validation.caCertificateRefs resolves.{reason}");
        return Err(ConditionReason::new("NoValidCACertificate", message));
    }
    if authorities.len() > AUTHORITIES_MAX {
        let message = format!(
            "The certificates of validation.caCertificateRefs have {} bytes in sum; at most {AUTHORITIES_MAX} are possible.",
            authorities.len()
        );
        return Err(ConditionReason::new("NoValidCACertificate", message));
    }
    Ok(authorities.into())
}

fn authority_of<'t>(
    view: &TrackedView<'t>,
    namespace: &Arc<str>,
    reference: &ExtensionReference,
) -> Result<&'t str, ConditionReason> {
    let ExtensionReference { group, kind, name } = reference;
    if !group.is_empty() || !matches!(&**kind, "ConfigMap" | "Secret") {
        let message = format!(
            "Reference {name:?} has kind {group}/{kind}; allowed: ConfigMap and Secret of the core group."
        );
        return Err(ConditionReason::new("InvalidKind", message));
    }
    let invalid = |message: String| ConditionReason::new("InvalidCACertificateRef", message);
    let missing = || invalid(format!("{kind} {namespace}/{name} does not exist."));
    let text = if &**kind == "ConfigMap" {
        view.config_map(namespace, name)
            .found()
            .ok_or_else(missing)?
            .data
            .get(CERTIFICATES_KEY)
            .map(|text| &**text)
    } else {
        view.secret(namespace, name).found().ok_or_else(missing)?.text(CERTIFICATES_KEY)
    };
    let text = text.filter(|text| !text.trim().is_empty());
    let text =
        text.ok_or_else(|| invalid(format!("{kind} {namespace}/{name} has no text in {CERTIFICATES_KEY}.")))?;
    let verified = view.certificates().authorities(text);
    verified
        .map_err(|reason| invalid(format!("{kind} {namespace}/{name} cannot verify a backend: {reason}.")))?;
    Ok(text)
}

//! ReferenceGrants: whether an object may refer to one of another namespace; Secrets by name.

use std::sync::Arc;

use crate::engine::{ReferencedObject, TrackedView};
use crate::model::{ClusterKind, ObjectKey, ReferenceGrantObject, SecretObject};

/// A reference across namespaces.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GrantQuestion<'q> {
    /// Kind of the Gateway API that refers, such as `Gateway` or `HTTPRoute`.
    pub(crate) from: ClusterKind,
    pub(crate) from_namespace: &'q Arc<str>,
    /// Group of the target; empty for the core group.
    pub(crate) to_group: &'q str,
    pub(crate) to_kind: &'q str,
    pub(crate) to_namespace: &'q Arc<str>,
    pub(crate) to_name: &'q str,
}

/// Whether the reference stays in its namespace, or a grant of the target's namespace permits it.
pub(crate) fn is_permitted(view: &TrackedView<'_>, question: GrantQuestion<'_>) -> bool {
    if question.from_namespace == question.to_namespace {
        return true;
    }
    let grants =
        view.list::<ReferenceGrantObject>(ClusterKind::ReferenceGrant, question.to_namespace).into_iter();
    grants.filter(|grant| !grant.meta.is_deleting).any(|grant| {
        let from_fits = grant.spec.from.iter().any(|from| {
            *from.group == *question.from.api().group
                && *from.kind == *question.from.name()
                && from.namespace == *question.from_namespace
        });
        let to_fits = grant.spec.to.iter().any(|to| {
            let name = to.name.as_deref().unwrap_or_default();
            *to.group == *question.to_group
                && *to.kind == *question.to_kind
                && (name.is_empty() || name == question.to_name)
        });
        from_fits && to_fits
    })
}

/// A Secret that `owner` names, or the reason why it cannot be used.
pub(crate) fn granted_secret<'t>(
    view: &TrackedView<'t>,
    owner: &ObjectKey,
    namespace: &Arc<str>,
    name: &Arc<str>,
) -> Result<&'t Arc<SecretObject>, String> {
    let question = GrantQuestion {
        from: owner.kind,
        from_namespace: &owner.namespace,
        to_group: "",
        to_kind: ClusterKind::Secret.name(),
        to_namespace: namespace,
        to_name: name,
    };
    if !is_permitted(view, question) {
        return Err(format!(
            "No ReferenceGrant in namespace {namespace} permits objects of {}/{} of namespace {} to refer to Secret {name}.",
            owner.kind.api().group,
            owner.kind,
            owner.namespace
        ));
    }
    match view.secret(namespace, name) {
        ReferencedObject::Found(secret) => Ok(secret),
        ReferencedObject::Missing | ReferencedObject::Pending => {
            Err(format!("Secret {namespace}/{name} does not exist."))
        }
    }
}

/// The certificate chain and the key of a Secret, in the entries of APISIX or of Kubernetes.
pub(crate) fn key_pair(secret: &SecretObject) -> Result<(&str, &str), String> {
    let name = format!("Secret {}/{}", secret.meta.namespace, secret.meta.name);
    let entries = if secret.data.contains_key("cert") { ["cert", "key"] } else { ["tls.crt", "tls.key"] };
    match entries.map(|entry| secret.text(entry).filter(|text| !text.trim().is_empty())) {
        [Some(cert), Some(key)] => Ok((cert, key)),
        _ => Err(format!("{name} has no text in {} and {}.", entries[0], entries[1])),
    }
}

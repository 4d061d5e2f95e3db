//! Responses with errors: their form, and the default backend that answers instead.

use std::sync::Arc;

use serde_json::json;

use super::super::backends::{first_port, plain_upstream};
use super::LocationDraft;
use crate::derived::UpstreamKey;
use crate::ingress_nginx::IngressUpstreamProtocol;
use crate::model::{ClusterKind, ObjectKey, ServiceObject};

pub(super) fn add(draft: &mut LocationDraft<'_, '_, '_>, service: Option<&Arc<str>>) {
    draft.set_action("errors", "format", "html".into());
    let errors = &draft.settings.errors;
    let is_grpc = matches!(
        draft.settings.upstream.protocol,
        IngressUpstreamProtocol::Grpc | IngressUpstreamProtocol::Grpcs
    );
    // gRPC clients read no pages.
    let statuses = if is_grpc { &[][..] } else { &errors.statuses[..] };
    let own = errors.backend.as_ref().and_then(|name| own_backend(draft, name));
    let backend = own.clone().or_else(|| controller_backend(draft).filter(|_| !statuses.is_empty()));
    let Some(backend) = backend else { return };
    if statuses.is_empty() && own.is_none() {
        return;
    }
    let mut fields = Vec::new();
    if let Some(owner) = draft.owner() {
        fields.push(json!(["X-Namespace", &*owner.key.namespace]));
        fields.push(json!(["X-Ingress-Name", &*owner.key.name]));
    }
    if let Some(service) = service {
        fields.push(json!(["X-Service-Name", &**service]));
    }
    let mut pages = json!({ "upstream_id": backend.to_string(), "statuses": statuses });
    if own.is_some() {
        pages["no_endpoint"] = true.into();
    }
    if !fields.is_empty() {
        pages["fields"] = fields.into();
    }
    draft.upstreams.push(backend);
    draft.set_action("errors", "pages", pages);
}

/// The upstream of the annotation `default-backend`.
fn own_backend(draft: &mut LocationDraft<'_, '_, '_>, name: &Arc<str>) -> Option<UpstreamKey> {
    let namespace = draft.owner()?.key.namespace.clone();
    let key = ObjectKey { kind: ClusterKind::Service, namespace, name: name.clone() };
    let found = draft.view.get::<ServiceObject>(&key).and_then(|service| first_port(service).number);
    if found.is_none() {
        draft.warn("default-backend", format!("{key} does not exist or has no port"));
    }
    found.map(|port| plain_upstream(&key.namespace, &key.name, port))
}

fn controller_backend(draft: &LocationDraft<'_, '_, '_>) -> Option<UpstreamKey> {
    let key = draft.context.defaults.flags.default_backend.as_ref()?;
    let service = draft.view.get::<ServiceObject>(key)?;
    Some(plain_upstream(&key.namespace, &key.name, first_port(service).number?))
}

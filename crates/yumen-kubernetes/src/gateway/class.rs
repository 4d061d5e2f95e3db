//! GatewayClass: its status, and the finalizer that keeps it while Gateways use it.

use std::sync::Arc;

use serde_json::{Value, json};

use super::features::SUPPORTED_FEATURES;
use crate::delta::{ObjectIntent, ObjectPath};
use crate::engine::{IndexKey, TrackedView, UnitOutput};
use crate::gateway_proxy::key_of_class;
use crate::model::{AppliedDefinitionObject, ClusterKind, GatewayClassObject, GatewayProxyObject, ObjectKey};
use crate::status::{ConditionDraft, StatusDraft, StatusEntry, StatusPlace};

const FINALIZER: &str = "gateway-exists-finalizer.gateway.networking.k8s.io";
/// Versions of the installed API (`bundle-version`) that the translation follows.
const SUPPORTED_VERSIONS: &[&str] = &["v1.5.", "v1.6."];

/// Whether the class exists and names this controller.
pub(super) fn is_own_class(view: &TrackedView<'_>, name: &Arc<str>) -> bool {
    find_class(view, name).is_some_and(|class| is_own(view, class))
}

pub(crate) fn translate_class(view: &TrackedView<'_>, name: &Arc<str>) -> UnitOutput {
    let mut output = UnitOutput::default();
    let Some(class) = find_class(view, name).filter(|class| is_own(view, class)) else { return output };
    let key = class_key(name);
    let accepted = match &class.spec.parameters_ref {
        None => ConditionDraft::fixed("Accepted", true, "Accepted", ""),
        Some(_) if has_proxy(view, key_of_class(class)) => {
            ConditionDraft::fixed("Accepted", true, "Accepted", "")
        }
        Some(reference) => {
            let message = format!(
                "parametersRef {:?} is no GatewayProxy of apisix.apache.org that exists; correct or remove it.",
                reference.name
            );
            ConditionDraft::fixed("Accepted", false, "InvalidParameters", message)
        }
    };
    let features: Vec<Value> = SUPPORTED_FEATURES.iter().map(|name| json!({ "name": name })).collect();
    let mut draft = StatusDraft { generation: class.meta.generation, ..StatusDraft::default() };
    draft.fields.insert("supportedFeatures".to_owned(), features.into());
    draft.entries.push(StatusEntry {
        place: StatusPlace::Root,
        conditions: vec![accepted, supported_version(view)],
        fields: serde_json::Map::new(),
    });
    output.statuses.insert(key.clone(), draft);
    let is_used = view.index(IndexKey::GatewaysOf(name.clone())).next().is_some();
    let has_finalizer = class.meta.finalizers.iter().any(|name| &**name == FINALIZER);
    // A finalizer cannot be added to an object whose deletion has begun.
    let intent = match (is_used, has_finalizer) {
        (true, false) if !class.meta.is_deleting => Some(ObjectIntent::AddFinalizer(FINALIZER)),
        (false, true) => Some(ObjectIntent::RemoveFinalizer(FINALIZER)),
        _ => None,
    };
    output.objects.extend(intent.map(|intent| (ObjectPath { key }, intent)));
    output
}

/// Whether a reference to parameters leads to a GatewayProxy.
pub(super) fn has_proxy(view: &TrackedView<'_>, key: Option<ObjectKey>) -> bool {
    key.is_some_and(|key| view.get::<GatewayProxyObject>(&key).is_some())
}

fn supported_version(view: &TrackedView<'_>) -> ConditionDraft {
    let definition =
        ObjectKey::new(ClusterKind::CustomResourceDefinition, "", "gatewayclasses.gateway.networking.k8s.io");
    let definition = view.get::<AppliedDefinitionObject>(&definition);
    let version = definition
        .and_then(|definition| definition.meta.annotations.get("gateway.networking.k8s.io/bundle-version"));
    let is_supported = version
        .is_some_and(|version| SUPPORTED_VERSIONS.iter().any(|supported| version.starts_with(supported)));
    if is_supported {
        return ConditionDraft::fixed("SupportedVersion", true, "SupportedVersion", "");
    }
    let found = version.map_or("not known", |version| version);
    let message = format!(
        "Version of the Gateway API: {found}; supported: v1.5 and v1.6. Objects are read as far as possible."
    );
    ConditionDraft::fixed("SupportedVersion", false, "UnsupportedVersion", message)
}

fn find_class<'t>(view: &TrackedView<'t>, name: &Arc<str>) -> Option<&'t Arc<GatewayClassObject>> {
    view.get::<GatewayClassObject>(&class_key(name))
}

fn is_own(view: &TrackedView<'_>, class: &GatewayClassObject) -> bool {
    class.spec.controller_name == view.settings().controller_name
}

fn class_key(name: &Arc<str>) -> ObjectKey {
    ObjectKey { kind: ClusterKind::GatewayClass, namespace: "".into(), name: name.clone() }
}

//! Consumer of `apisix.apache.org/v1alpha1`: a consumer of the Gateway that it names, with credentials.

use std::sync::Arc;

use serde_json::{Map, Value};
use yumen_config::resource::is_plain_id;

use super::consumer::{WrittenConsumer, is_taken, write_consumer};
use super::credentials::method_of;
use super::plugins::refuse_references;
use super::{finish_members, plugins, report};
use crate::engine::{TrackedView, UnitOutput};
use crate::gateway_proxy::scopes_of_gateway;
use crate::grants::{GrantQuestion, granted_secret, is_permitted};
use crate::model::{
    ClusterKind, ConsumerCredential, GatewayClassObject, GatewayConsumerObject, GatewayObject, ObjectKey,
};
use crate::resources::{ResourceName, SpecDefect, TranslatedKind};
use crate::status::{ConditionDraft, ConditionValue};

pub(super) fn translate(view: &TrackedView<'_>, key: &ObjectKey) -> UnitOutput {
    let mut output = UnitOutput::default();
    let Some(object) = view.get::<GatewayConsumerObject>(key) else { return output };
    let Some(gateway) = own_gateway(view, object) else { return output };
    let scopes = scopes_of_gateway(view, &gateway);
    let mut defects = Vec::new();
    let mut needs = Vec::new();
    let question = GrantQuestion {
        from: ClusterKind::GatewayConsumer,
        from_namespace: &key.namespace,
        to_group: gateway.kind.api().group,
        to_kind: gateway.kind.name(),
        to_namespace: &gateway.namespace,
        to_name: &gateway.name,
    };
    if !is_permitted(view, question) {
        let message = format!("no ReferenceGrant in namespace {} permits it", gateway.namespace);
        defects.push(SpecDefect::new("gatewayRef", message));
    } else if scopes.is_empty() {
        // A consumer without scopes identifies clients on the listeners of the node's settings.
        defects.push(SpecDefect::new("gatewayRef", format!("{gateway} serves no listener")));
    } else if is_taken(view, &key.namespace, &key.name) {
        let message = "an ApisixConsumer of the same name is the consumer";
        defects.push(SpecDefect::new("username", message));
    } else {
        let plugins = plugins::plugins_value(view, key, &object.spec.plugins, &mut defects);
        let consumer = WrittenConsumer { created_s: object.meta.created_s, plugins, scopes };
        needs.extend(write_consumer(&mut output, key, consumer, &mut defects));
    }
    if let Some(consumer) = needs.first().map(|name: &ResourceName| name.id.clone()) {
        for (position, credential) in object.spec.credentials.iter().enumerate() {
            // One that cannot be built is left out and admits no client, as those of an ApisixConsumer.
            let members = credential_members(view, key, credential)
                .and_then(|members| refuse_references(view, key, members));
            match members {
                Ok(mut members) => {
                    finish_members(&mut members, key, object.meta.created_s, &[]);
                    let id = format!("{consumer}/credentials/{}", credential_id(position, credential));
                    let name = ResourceName::new(TranslatedKind::Credentials, id);
                    output.add_resource(name.kind, name.id.clone(), &members.into());
                    needs.push(name);
                }
                Err(message) => defects.push(SpecDefect::new(format!("credentials[{position}]"), message)),
            }
        }
    }
    // The controller of APISIX writes `Available` for this kind, and `Accepted` for all others.
    let condition = match report::message_of(&defects) {
        Some(message) => ConditionDraft::fixed("Available", false, "ResourceSyncAbort", message),
        None => {
            ConditionDraft::depending("Available", ConditionValue::UnlessRefused, "ResourceSynced", needs)
        }
    };
    report::put_status(&mut output, key, object.meta.generation, condition);
    output
}

/// The Gateway that the consumer names, if it is one of this controller.
fn own_gateway(view: &TrackedView<'_>, object: &GatewayConsumerObject) -> Option<ObjectKey> {
    let reference = &object.spec.gateway_ref;
    let group = reference.group.as_deref().unwrap_or("gateway.networking.k8s.io");
    let kind = ClusterKind::find(group, reference.kind.as_deref().unwrap_or("Gateway"));
    if kind != Some(ClusterKind::Gateway) {
        return None;
    }
    let namespace = reference.namespace.as_ref().unwrap_or(&object.meta.namespace);
    let key =
        ObjectKey { kind: ClusterKind::Gateway, namespace: namespace.clone(), name: reference.name.clone() };
    let gateway = view.get::<GatewayObject>(&key)?;
    let class = ObjectKey {
        kind: ClusterKind::GatewayClass,
        namespace: "".into(),
        name: gateway.spec.gateway_class_name.clone(),
    };
    let class = view.get::<GatewayClassObject>(&class)?;
    (class.spec.controller_name == view.settings().controller_name).then_some(key)
}

/// The last part of the id of a credential: its name, or its position if the name is none.
fn credential_id(position: usize, credential: &ConsumerCredential) -> String {
    let is_plain = is_plain_id(&credential.name);
    if is_plain { credential.name.to_string() } else { position.to_string() }
}

fn credential_members(
    view: &TrackedView<'_>,
    key: &ObjectKey,
    credential: &ConsumerCredential,
) -> Result<Map<String, Value>, String> {
    let settings = match (&credential.secret_ref, &credential.config) {
        (Some(reference), _) => {
            let secret = granted_secret(view, key, reference.namespace_or(&key.namespace), &reference.name)?;
            match method_of(&credential.kind) {
                Some(method) => method.read_secret(secret)?,
                None => {
                    let text = |name: &Arc<str>| Some((name.to_string(), secret.text(name)?.into()));
                    Value::Object(secret.data.keys().filter_map(text).collect())
                }
            }
        }
        (None, Some(config)) => config.clone(),
        (None, None) => return Err("needs config or secretRef".to_owned()),
    };
    let mut members = Map::new();
    if !credential.name.is_empty() {
        members.insert("name".to_owned(), (&*credential.name).into());
    }
    members.insert("plugins".to_owned(), Map::from_iter([(credential.kind.to_string(), settings)]).into());
    Ok(members)
}

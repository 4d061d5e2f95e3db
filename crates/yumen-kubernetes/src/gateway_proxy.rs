//! GatewayProxies: those that classes and Gateways of this controller name.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::engine::TrackedView;
use crate::model::{
    ClusterKind, GatewayClassObject, GatewayObject, GatewayProxyObject, IngressClassObject, ObjectKey,
};

/// The GatewayProxy that a Gateway names; otherwise the one of its class.
pub(crate) fn proxy_of_gateway<'t>(
    view: &TrackedView<'t>,
    gateway: &GatewayObject,
) -> Option<&'t Arc<GatewayProxyObject>> {
    let own = key_of_gateway(gateway);
    let key = own.or_else(|| {
        let name = &gateway.spec.gateway_class_name;
        let class = ObjectKey { kind: ClusterKind::GatewayClass, namespace: "".into(), name: name.clone() };
        view.get::<GatewayClassObject>(&class).and_then(|class| key_of_class(class))
    })?;
    view.get::<GatewayProxyObject>(&key)
}

/// The GatewayProxy that `infrastructure.parametersRef` names.
pub(crate) fn key_of_gateway(gateway: &GatewayObject) -> Option<ObjectKey> {
    let reference = gateway.spec.infrastructure.parameters_ref.as_ref()?;
    is_proxy(&reference.group, &reference.kind).then(|| proxy_key(&gateway.meta.namespace, &reference.name))
}

/// The GatewayProxy that `parametersRef` of a GatewayClass names. Only a reference with a namespace can be one.
pub(crate) fn key_of_class(class: &GatewayClassObject) -> Option<ObjectKey> {
    let reference = class.spec.parameters_ref.as_ref()?;
    let namespace = reference.namespace.as_ref()?;
    is_proxy(reference.group(), reference.kind_or("")).then(|| proxy_key(namespace, &reference.name))
}

/// The GatewayProxy that `parameters` of an IngressClass names; without a namespace, that of `default`, as in APISIX.
fn key_of_ingress_class(class: &IngressClassObject) -> Option<ObjectKey> {
    let parameters = class.spec.parameters.as_ref()?;
    let default: Arc<str> = "default".into();
    let namespace = parameters.namespace.as_ref().unwrap_or(&default);
    is_proxy(parameters.api_group.as_deref().unwrap_or_default(), &parameters.kind)
        .then(|| proxy_key(namespace, &parameters.name))
}

/// The GatewayProxies in use, the oldest first.
pub(crate) fn proxies_in_use<'t>(view: &TrackedView<'t>) -> Vec<&'t Arc<GatewayProxyObject>> {
    let proxies = view.list_all::<GatewayProxyObject>(ClusterKind::GatewayProxy);
    // Without any, the classes and Gateways need not be read.
    if proxies.is_empty() {
        return proxies;
    }
    let controller = &view.settings().controller_name;
    let classes = view.list_all::<GatewayClassObject>(ClusterKind::GatewayClass).into_iter();
    let classes: Vec<_> = classes.filter(|class| class.spec.controller_name == *controller).collect();
    let names: BTreeSet<&Arc<str>> = classes.iter().map(|class| &class.meta.name).collect();
    let gateways = view.list_all::<GatewayObject>(ClusterKind::Gateway).into_iter();
    let gateways = gateways.filter(|gateway| names.contains(&gateway.spec.gateway_class_name));
    let ingress = view.list_all::<IngressClassObject>(ClusterKind::IngressClass).into_iter();
    let ingress = ingress.filter(|class| class.spec.controller == *controller);
    let used: BTreeSet<ObjectKey> = (classes.iter().filter_map(|class| key_of_class(class)))
        .chain(gateways.filter_map(|gateway| key_of_gateway(gateway)))
        .chain(ingress.filter_map(|class| key_of_ingress_class(class)))
        .collect();
    let mut proxies: Vec<_> = (proxies.into_iter())
        .filter(|proxy| used.contains(&proxy_key(&proxy.meta.namespace, &proxy.meta.name)))
        .collect();
    // The list is in order of namespace and name already; the sort is stable.
    proxies.sort_by_key(|proxy| proxy.meta.created_s);
    proxies
}

fn is_proxy(group: &str, kind: &str) -> bool {
    ClusterKind::find(group, kind) == Some(ClusterKind::GatewayProxy)
}

fn proxy_key(namespace: &Arc<str>, name: &Arc<str>) -> ObjectKey {
    ObjectKey { kind: ClusterKind::GatewayProxy, namespace: namespace.clone(), name: name.clone() }
}

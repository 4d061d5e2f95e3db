//! GatewayProxies: those that classes and Gateways of this controller name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::engine::{IndexKey, TrackedView};
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

/// A GatewayProxy in use.
pub(crate) struct UsedProxy<'t> {
    pub(crate) object: &'t Arc<GatewayProxyObject>,
    /// The Gateways that name it, or whose class does.
    pub(crate) gateways: Vec<ObjectKey>,
    /// Whether an IngressClass names it, so that it concerns the listeners of the node's settings.
    pub(crate) is_of_node: bool,
    /// Whether a GatewayClass or an IngressClass names it.
    pub(crate) is_of_class: bool,
}

/// The GatewayProxies in use, the oldest first.
pub(crate) fn proxies_in_use<'t>(view: &TrackedView<'t>) -> Vec<UsedProxy<'t>> {
    let mut proxies = view.list_all::<GatewayProxyObject>(ClusterKind::GatewayProxy);
    // Without any, the classes and Gateways need not be read.
    if proxies.is_empty() {
        return Vec::new();
    }
    // The list is in order of namespace and name already; the sort is stable.
    proxies.sort_by_key(|proxy| proxy.meta.created_s);
    let classes = own_classes(view);
    let by_class: BTreeMap<&Arc<str>, Option<ObjectKey>> =
        classes.iter().map(|class| (&class.meta.name, key_of_class(class))).collect();
    let gateways: Vec<_> = (view.list_all::<GatewayObject>(ClusterKind::Gateway).into_iter())
        .filter_map(|gateway| Some((gateway, by_class.get(&gateway.spec.gateway_class_name)?)))
        .collect();
    let ingress: BTreeSet<ObjectKey> =
        own_ingress_classes(view).iter().filter_map(|class| key_of_ingress_class(class)).collect();
    let used = |object: &'t Arc<GatewayProxyObject>| {
        let key = proxy_key(&object.meta.namespace, &object.meta.name);
        let of_class = by_class.values().flatten().any(|named| *named == key);
        let naming = gateways.iter().filter(|(gateway, of_class)| {
            of_class.as_ref() == Some(&key) || key_of_gateway(gateway).as_ref() == Some(&key)
        });
        let gateways: Vec<ObjectKey> = naming.map(|(gateway, _)| gateway_key(gateway)).collect();
        let is_of_node = ingress.contains(&key);
        let is_of_class = of_class || is_of_node;
        (is_of_class || !gateways.is_empty()).then_some(UsedProxy {
            object,
            gateways,
            is_of_node,
            is_of_class,
        })
    };
    proxies.into_iter().filter_map(used).collect()
}

/// Whether a namespace is that of the operator: the GatewayProxy that a class of the controller names is in it.
pub(crate) fn is_of_operator(view: &TrackedView<'_>, namespace: &str) -> bool {
    let of_gateways = own_classes(view).into_iter().filter_map(|class| key_of_class(class));
    let of_ingress = own_ingress_classes(view).into_iter().filter_map(|class| key_of_ingress_class(class));
    of_gateways.chain(of_ingress).any(|proxy| *proxy.namespace == *namespace)
}

/// The scopes of the listeners of a Gateway and its ListenerSets that are served, in order.
pub(crate) fn scopes_of_gateway(view: &TrackedView<'_>, gateway: &ObjectKey) -> BTreeSet<Arc<str>> {
    let sets = view.index(IndexKey::ListenerSetsOf(gateway.clone()));
    let parents = std::iter::once(gateway).chain(sets).filter_map(|parent| view.parent(parent));
    let sections = parents.filter(|parent| parent.gateway == *gateway).flat_map(|parent| &parent.sections);
    sections.filter_map(|section| section.scope.clone()).collect()
}

fn own_classes<'t>(view: &TrackedView<'t>) -> Vec<&'t Arc<GatewayClassObject>> {
    let mut classes = view.list_all::<GatewayClassObject>(ClusterKind::GatewayClass);
    classes.retain(|class| class.spec.controller_name == view.settings().controller_name);
    classes
}

fn own_ingress_classes<'t>(view: &TrackedView<'t>) -> Vec<&'t Arc<IngressClassObject>> {
    let mut classes = view.list_all::<IngressClassObject>(ClusterKind::IngressClass);
    classes.retain(|class| class.spec.controller == view.settings().controller_name);
    classes
}

fn gateway_key(gateway: &GatewayObject) -> ObjectKey {
    let (namespace, name) = (gateway.meta.namespace.clone(), gateway.meta.name.clone());
    ObjectKey { kind: ClusterKind::Gateway, namespace, name }
}

fn is_proxy(group: &str, kind: &str) -> bool {
    ClusterKind::find(group, kind) == Some(ClusterKind::GatewayProxy)
}

fn proxy_key(namespace: &Arc<str>, name: &Arc<str>) -> ObjectKey {
    ObjectKey { kind: ClusterKind::GatewayProxy, namespace: namespace.clone(), name: name.clone() }
}

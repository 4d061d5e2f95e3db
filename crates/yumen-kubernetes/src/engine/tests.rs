use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};
use yumen_base::time::Now;

use super::*;
use crate::certificates::{CertificateInspector, CertificateNames};
use crate::delta::TranslationDelta;
use crate::derived::{ParentOutput, SectionKey};
use crate::model::{
    ClusterChange, ClusterKind, ConfigMapObject, GatewayObject, HttpRouteObject, ObjectKey, decode,
};
use crate::resources::{ResourceChange, TranslatedKind};
use crate::settings::TranslationSettings;

struct NoCertificates;

impl CertificateInspector for NoCertificates {
    fn pair(&self, _: &str, _: &str) -> Result<CertificateNames, String> {
        Err("no certificates".to_owned())
    }

    fn authorities(&self, _: &str) -> Result<(), String> {
        Err("no certificates".to_owned())
    }
}

/// An engine whose Gateways are accepted if they have a listener, and whose routes attach to the section `http` of
/// their first parent. A Gateway with a client certificate reference depends on the ConfigMap of that name.
struct EngineCase {
    engine: TranslationEngine,
}

impl EngineCase {
    fn new() -> EngineCase {
        EngineCase {
            engine: TranslationEngine::new(TranslationSettings::default(), Arc::new(NoCertificates)),
        }
    }

    /// Applies changes. Returns the units that ran, in order, and the delta.
    fn apply(&mut self, changes: Vec<ClusterChange>) -> (Vec<String>, TranslationDelta) {
        let now = Now { mono_us: 0, unix_ms: 0 };
        for change in changes {
            self.engine.change(change, now);
        }
        let ran = RefCell::new(Vec::new());
        let delta = self.engine.run(now, |unit, view| {
            ran.borrow_mut().push(short(unit));
            translate(unit, view)
        });
        (ran.into_inner(), delta)
    }

    fn check(&mut self, changes: Vec<ClusterChange>, expected: &[&str]) -> TranslationDelta {
        let (ran, delta) = self.apply(changes);
        assert_eq!(ran, expected);
        delta
    }
}

fn short(unit: &TranslationUnit) -> String {
    match unit {
        TranslationUnit::Gateway(key) => format!("gateway {}", key.name),
        TranslationUnit::Route(key) => format!("route {}", key.name),
        TranslationUnit::GatewayStatus(key) => format!("status {}", key.name),
        TranslationUnit::GatewaySlices(key) => format!("slices {}", key.name),
        TranslationUnit::RouteKinds(key) => format!("kinds {}", key.name),
        TranslationUnit::SharedPorts => "ports".to_owned(),
        TranslationUnit::SharedPlugins => "plugins".to_owned(),
        other => format!("{other:?}"),
    }
}

fn translate(unit: &TranslationUnit, view: &TrackedView<'_>) -> UnitOutput {
    let mut output = UnitOutput::default();
    match unit {
        TranslationUnit::Gateway(key) => {
            let Some(gateway) = view.get::<GatewayObject>(key) else { return output };
            if let Some(reference) = &gateway.spec.tls.backend.client_certificate_ref {
                let found = view.config_map(&key.namespace, &reference.name).found();
                let value = found.map(|found: &Arc<ConfigMapObject>| found.data.len());
                output.add_resource(
                    TranslatedKind::Ssls,
                    format!("{}!x", key.name),
                    &json!({ "entries": value }),
                );
            }
            let parent = ParentOutput {
                gateway: key.clone(),
                is_accepted: !gateway.spec.listeners.is_empty(),
                client_certificate: None,
                sections: Vec::new(),
            };
            output.parents.insert(key.clone(), Arc::new(parent));
        }
        TranslationUnit::Route(key) => {
            let Some(route) = view.get::<HttpRouteObject>(key) else { return output };
            let parent = route.spec.parent_refs.first().and_then(|parent| parent.key(&key.namespace));
            let Some(parent) = parent else { return output };
            if view.parent(&parent).is_some_and(|output| output.is_accepted) {
                output.attachments.insert(SectionKey { parent, name: "http".into() });
            }
        }
        TranslationUnit::GatewayStatus(key) => {
            let count = view.attached(&SectionKey { parent: key.clone(), name: "http".into() }).len();
            output.add_resource(
                TranslatedKind::Scopes,
                format!("{}!count", key.name),
                &json!({ "count": count }),
            );
        }
        _ => {}
    }
    output
}

fn put(kind: ClusterKind, name: &str, spec: Value) -> ClusterChange {
    let value = json!({ "metadata": { "name": name, "namespace": "n" }, "spec": spec, "data": { "a": "b" } });
    ClusterChange::Put(decode(kind, value.to_string().as_bytes()).unwrap())
}

fn gateway(name: &str, port: u16) -> ClusterChange {
    put(ClusterKind::Gateway, name, json!({ "listeners": [{ "name": "http", "port": port }] }))
}

fn route(name: &str, parent: &str, hostname: &str) -> ClusterChange {
    let spec = json!({ "parentRefs": [{ "name": parent }], "hostnames": [hostname] });
    put(ClusterKind::HttpRoute, name, spec)
}

fn delete(kind: ClusterKind, name: &str) -> ClusterChange {
    ClusterChange::Delete(ObjectKey::new(kind, "n", name))
}

fn puts(delta: &TranslationDelta) -> Vec<String> {
    let put = |change: &ResourceChange| match change {
        ResourceChange::Put(resource) => Some(format!("{} {}", resource.name, resource.json)),
        ResourceChange::Delete(_) => None,
    };
    delta.resources.iter().filter_map(put).collect()
}

#[test]
fn units_run_only_if_a_fact_that_they_read_differs() {
    let mut case = EngineCase::new();
    case.check(
        vec![gateway("g", 80), gateway("h", 80), route("r", "g", "a"), route("s", "h", "a")],
        &[
            "ports",
            "gateway g",
            "gateway h",
            "kinds g",
            "kinds h",
            "slices g",
            "slices h",
            "route r",
            "route s",
            "IngressDefaults",
            "IngressStreams",
            "plugins",
            "status g",
            "status h",
        ],
    );
    // An equal object.
    assert_eq!(case.check(vec![gateway("g", 80)], &[]), TranslationDelta::default());
    // A change that leaves the parent of routes as it is.
    case.check(vec![gateway("g", 81)], &["gateway g", "kinds g", "slices g", "status g"]);
    // A change that does not move the attachment.
    case.check(vec![route("r", "g", "b")], &["route r"]);
    // A route that moves from one Gateway to the other.
    let delta = case.check(vec![route("r", "h", "b")], &["route r", "status g", "status h"]);
    assert_eq!(puts(&delta), [r#"scopes/g!count {"count":0}"#, r#"scopes/h!count {"count":2}"#]);
    // A parent that is no longer accepted releases its routes.
    let bare = put(ClusterKind::Gateway, "h", json!({}));
    let delta =
        case.check(vec![bare], &["gateway h", "kinds h", "slices h", "route r", "route s", "status h"]);
    assert_eq!(puts(&delta), [r#"scopes/h!count {"count":0}"#]);
}

#[test]
fn deleted_objects_withdraw_their_output() {
    let mut case = EngineCase::new();
    case.apply(vec![gateway("g", 80), route("r", "g", "a")]);
    // A unit without its object does not run; its readers do.
    let delta = case.check(vec![delete(ClusterKind::HttpRoute, "r")], &["status g"]);
    assert_eq!(puts(&delta), [r#"scopes/g!count {"count":0}"#]);
    let delta = case.check(vec![delete(ClusterKind::Gateway, "g")], &[]);
    assert!(matches!(&delta.resources[..], [ResourceChange::Delete(_)]));
    assert!(case.engine.is_idle());
}

#[test]
fn outputs_wait_for_required_objects() {
    let mut case = EngineCase::new();
    let with_reference = |name: &str| {
        put(
            ClusterKind::Gateway,
            "g",
            json!({ "tls": { "backend": { "clientCertificateRef": { "name": name } } } }),
        )
    };
    let key = |name: &str| ObjectKey::new(ClusterKind::ConfigMap, "n", name);
    let (_, delta) = case.apply(vec![with_reference("a")]);
    assert_eq!(delta.wanted, Some(BTreeSet::from([key("a")])));
    assert!(puts(&delta).iter().all(|text| !text.starts_with("ssls")));
    let (_, delta) = case.apply(vec![put(ClusterKind::ConfigMap, "a", json!({}))]);
    assert_eq!(puts(&delta), [r#"ssls/g!x {"entries":1}"#]);
    // The previous output is in force until the new reference is answered.
    let (_, delta) = case.apply(vec![with_reference("b")]);
    assert_eq!(delta.wanted, Some(BTreeSet::from([key("b")])));
    assert_eq!(puts(&delta), [""; 0]);
    let (_, delta) = case.apply(vec![delete(ClusterKind::ConfigMap, "b")]);
    assert_eq!(puts(&delta), [r#"ssls/g!x {"entries":null}"#]);
    // A reference that returns is read again: its content may have changed meanwhile.
    let (_, delta) = case.apply(vec![with_reference("a")]);
    assert_eq!(delta.wanted, Some(BTreeSet::from([key("a")])));
    assert_eq!(puts(&delta), [""; 0]);
}

#[test]
fn lists_replace_all_objects_of_a_kind() {
    let mut case = EngineCase::new();
    case.apply(vec![gateway("g", 80), gateway("h", 80)]);
    let ClusterChange::Put(only) = gateway("h", 80) else { panic!("a put") };
    let (ran, delta) = case.apply(vec![ClusterChange::Replace(ClusterKind::Gateway, vec![only])]);
    assert_eq!(ran, [""; 0]);
    assert_eq!(delta.resources.len(), 1);
    let (_, delta) = case.apply(vec![ClusterChange::Installed(ClusterKind::Gateway, false)]);
    assert_eq!(delta.resources.len(), 1);
}

#[test]
fn undecodable_objects_are_problems_until_they_decode() {
    let mut case = EngineCase::new();
    let key = ObjectKey::new(ClusterKind::Gateway, "n", "g");
    case.apply(vec![gateway("g", 80)]);
    let (ran, delta) = case.apply(vec![ClusterChange::Undecodable(key, "port is no number".to_owned())]);
    assert_eq!(ran, [""; 0]);
    let message = "object does not decode: port is no number; the previous version is in force instead";
    assert_eq!(delta.problems.unwrap()[0].message, message);
    assert_eq!(case.apply(vec![gateway("g", 80)]).1.problems, Some(Vec::new()));
}

#[test]
fn lists_keep_objects_that_do_not_decode_and_forget_those_that_are_deleted() {
    let mut case = EngineCase::new();
    let key = ObjectKey::new(ClusterKind::Gateway, "n", "g");
    case.apply(vec![gateway("g", 80)]);
    let undecodable = ClusterChange::Undecodable(key, "x".to_owned());
    let (_, delta) = case.apply(vec![undecodable, ClusterChange::Replace(ClusterKind::Gateway, Vec::new())]);
    assert_eq!(delta.resources, []);
    assert_eq!(delta.problems.map(|problems| problems.len()), Some(1));
    let (_, delta) = case.apply(vec![ClusterChange::Replace(ClusterKind::Gateway, Vec::new())]);
    assert_eq!(delta.resources.len(), 1);
    assert_eq!(delta.problems, Some(Vec::new()));
}

#[test]
fn without_take_over_only_resources_are_written() {
    let settings = TranslationSettings { take_over: false, ..TranslationSettings::default() };
    let mut case = EngineCase { engine: TranslationEngine::new(settings, Arc::new(NoCertificates)) };
    let (_, delta) = case.apply(vec![gateway("g", 80)]);
    assert_eq!(delta.resources.len(), 1);
    assert_eq!((delta.statuses, delta.objects), (Vec::new(), Vec::new()));
}

#[test]
fn ranks_are_in_the_order_of_runs() {
    let key = || ObjectKey::new(ClusterKind::Gateway, "n", "g");
    let section = SectionKey { parent: key(), name: "http".into() };
    let upstream = crate::derived::UpstreamKey {
        namespace: "n".into(),
        service: "s".into(),
        port: 80,
        flavor: crate::derived::UpstreamFlavor::Http,
        source: crate::derived::UpstreamSource::Policies,
        gateway: None,
    };
    let units = [
        TranslationUnit::Class("c".into()),
        TranslationUnit::SharedPorts,
        TranslationUnit::Gateway(key()),
        TranslationUnit::GatewaySlices(key()),
        TranslationUnit::Policy(key()),
        TranslationUnit::Route(key()),
        TranslationUnit::Apisix(key()),
        TranslationUnit::StreamSection(section),
        TranslationUnit::ServicePort(upstream),
        TranslationUnit::PluginSet(key()),
        TranslationUnit::SharedPlugins,
        TranslationUnit::PolicyStatus(key()),
        TranslationUnit::GatewayStatus(key()),
        TranslationUnit::ListenerSetStatus(key()),
    ];
    assert!(units.is_sorted());
    assert!(units.is_sorted_by_key(TranslationUnit::rank));
}

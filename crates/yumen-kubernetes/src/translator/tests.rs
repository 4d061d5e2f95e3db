use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::certificates::CertificateNames;
use crate::model::{ClusterKind, decode};

struct NoCertificates;

impl CertificateInspector for NoCertificates {
    fn pair(&self, _: &str, _: &str) -> Result<CertificateNames, String> {
        Err("no certificates".to_owned())
    }

    fn authorities(&self, _: &str) -> Result<(), String> {
        Err("no certificates".to_owned())
    }
}

fn at(seconds: u64) -> Now {
    Now { mono_us: seconds * 1_000_000, unix_ms: 0 }
}

fn put(kind: ClusterKind, value: &Value) -> ClusterChange {
    ClusterChange::Put(decode(kind, value.to_string().as_bytes()).unwrap())
}

fn gateway(name: &str) -> ClusterChange {
    let listener = json!({ "name": "http", "port": 80, "protocol": "HTTP" });
    put(
        ClusterKind::Gateway,
        &json!({
            "metadata": { "name": name, "namespace": "shop", "uid": name },
            "spec": { "gatewayClassName": "yumen", "listeners": [listener] },
        }),
    )
}

/// Names and target ports of the written Services.
fn services(delta: &TranslationDelta) -> Vec<String> {
    let line = |object: &DesiredObject| match object {
        DesiredObject::Apply(path, form) => {
            Some(format!("{} {}", path.key.name, form["spec"]["ports"][0]["targetPort"]))
        }
        _ => None,
    };
    delta.objects.iter().filter_map(line).collect()
}

#[test]
fn gateway_gets_the_port_of_a_deleted_one_after_a_minute() {
    let settings = TranslationSettings { ports: 20_000..=20_000, ..TranslationSettings::default() };
    let mut translator = ClusterTranslator::new(settings, Arc::new(NoCertificates));
    let class = json!({
        "metadata": { "name": "yumen" }, "spec": { "controllerName": "gateway.yumen.io/controller" },
    });
    let first = translator.apply(vec![put(ClusterKind::GatewayClass, &class), gateway("a")], at(0));
    assert_eq!(services(&first), ["yumen-a 20000"]);
    let form = first.objects.iter().find_map(|object| match object {
        DesiredObject::Apply(path, form) if path.key.kind == ClusterKind::Service => Some(form.clone()),
        _ => None,
    });
    translator.apply(vec![put(ClusterKind::Service, &form.unwrap())], at(1));
    // The Service goes by its owner reference, after the Gateway.
    let gone = |kind: ClusterKind, name: &str| ClusterChange::Delete(ObjectKey::new(kind, "shop", name));
    translator.apply(vec![gone(ClusterKind::Gateway, "a")], at(2));
    let second = translator.apply(vec![gone(ClusterKind::Service, "yumen-a"), gateway("b")], at(3));
    assert_eq!(services(&second), [""; 0]);
    assert_eq!(services(&translator.retry_ports(at(60))), [""; 0]);
    assert_eq!(services(&translator.retry_ports(at(64))), ["yumen-b 20000"]);
    assert_eq!(translator.retry_ports(at(65)), TranslationDelta::default());
}

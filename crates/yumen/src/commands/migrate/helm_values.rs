//! Values of ingress-nginx's Helm chart, as the flags and the ConfigMap that the chart makes of them.

use std::path::Path;

use anyhow::Context;
use serde_json::{Map, Value, json};

use crate::kubernetes::values_of;

/// The namespace that stands for that of the release.
const NAMESPACE: &str = "ingress-nginx";

/// The values of a release.
pub(super) struct HelmValues(Value);

impl HelmValues {
    /// Reads a values file. Values of a chart that has ingress-nginx as a dependency are below its name.
    pub(super) fn read(file: &Path) -> anyhow::Result<HelmValues> {
        let name = file.display();
        let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {name}"))?;
        let documents = values_of(&text).with_context(|| format!("{name}: no YAML"))?;
        let values = documents.into_iter().next().unwrap_or_default();
        let nested = &values["ingress-nginx"];
        let values =
            if values["controller"].is_null() && nested.is_object() { nested.clone() } else { values };
        Ok(HelmValues(values))
    }

    fn controller(&self, path: &str) -> &Value {
        path.split('.').fold(&self.0["controller"], |value, name| &value[name])
    }

    fn text(&self, path: &str) -> Option<String> {
        match self.controller(path) {
            Value::String(text) => Some(text.clone()),
            Value::Bool(switch) => Some(switch.to_string()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        }
        .filter(|text| !text.is_empty())
    }

    /// The flags of the process.
    pub(super) fn arguments(&self) -> Vec<String> {
        let mut arguments = vec![format!("--configmap={NAMESPACE}/ingress-nginx-controller")];
        let class = self.text("ingressClass").or_else(|| self.text("ingressClassResource.name"));
        arguments.extend(class.map(|class| format!("--ingress-class={class}")));
        let flags = [
            ("ingressClassResource.controllerValue", "controller-class"),
            ("watchIngressWithoutClass", "watch-ingress-without-class"),
            ("ingressClassByName", "ingress-class-by-name"),
            ("reportNodeInternalIp", "report-node-internal-ip-address"),
            ("enableTopologyAwareRouting", "enable-topology-aware-routing"),
            ("disableLeaderElection", "disable-leader-election"),
            ("electionTTL", "election-ttl"),
        ];
        for (path, flag) in flags {
            arguments.extend(self.text(path).map(|value| format!("--{flag}={value}")));
        }
        for (map, flag) in [("tcp", "tcp-services-configmap"), ("udp", "udp-services-configmap")] {
            if self.0[map].as_object().is_some_and(|ports| !ports.is_empty()) {
                arguments.push(format!("--{flag}={NAMESPACE}/ingress-nginx-{map}"));
            }
        }
        let scope = self.controller("scope");
        if scope["enabled"] == true {
            let namespace = scope["namespace"].as_str().filter(|name| !name.is_empty()).unwrap_or(NAMESPACE);
            arguments.push(format!("--watch-namespace={namespace}"));
        }
        for (flag, value) in self.controller("extraArgs").as_object().into_iter().flatten() {
            arguments.push(match value {
                Value::String(text) => format!("--{flag}={text}"),
                Value::Null => format!("--{flag}"),
                other => format!("--{flag}={other}"),
            });
        }
        arguments
    }

    /// The ConfigMaps of the release.
    pub(super) fn documents(&self) -> Vec<Value> {
        let mut data = Map::new();
        if let Some(allows) = self.text("allowSnippetAnnotations") {
            data.insert("allow-snippet-annotations".to_owned(), allows.into());
        }
        for (values, key, name) in [
            ("addHeaders", "add-headers", "ingress-nginx-custom-add-headers"),
            ("proxySetHeaders", "proxy-set-headers", "ingress-nginx-custom-proxy-headers"),
        ] {
            if self.controller(values).as_object().is_some_and(|fields| !fields.is_empty()) {
                data.insert(key.to_owned(), format!("{NAMESPACE}/{name}").into());
            }
        }
        for (key, value) in self.controller("config").as_object().into_iter().flatten() {
            data.insert(key.clone(), plain_text(value).into());
        }
        let mut documents = vec![config_map("ingress-nginx-controller", data)];
        let fields = [
            (self.controller("addHeaders"), "ingress-nginx-custom-add-headers"),
            (self.controller("proxySetHeaders"), "ingress-nginx-custom-proxy-headers"),
            (&self.0["tcp"], "ingress-nginx-tcp"),
            (&self.0["udp"], "ingress-nginx-udp"),
        ];
        for (values, name) in fields {
            let entries = values.as_object().into_iter().flatten();
            let data: Map<String, Value> =
                entries.map(|(key, value)| (key.clone(), plain_text(value).into())).collect();
            if !data.is_empty() {
                documents.push(config_map(name, data));
            }
        }
        documents
    }
}

/// The text that the chart writes for a value.
fn plain_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

fn config_map(name: &str, data: Map<String, Value>) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": name, "namespace": NAMESPACE },
        "data": data,
    })
}

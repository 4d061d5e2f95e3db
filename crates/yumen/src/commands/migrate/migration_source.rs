//! Objects of a migration: from manifests or from a cluster, with the settings of ingress-nginx.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, bail};
use serde_json::{Value, json};
use yumen_base::{FilePlace, LineSpan};
use yumen_kubernetes::ingress_nginx::{ControllerProblem, ControllerSettings, read_config_map, read_flags};
use yumen_kubernetes::{ObjectMeta, readable_metadata};
use yumen_kubernetes_client::{ApiClient, ApiError, WatchTarget};

use super::MigrationInput;
use super::helm_values::HelmValues;
use crate::kubernetes::read_documents;

/// Name of the ConfigMap and the Deployment in the manifests and the chart of ingress-nginx.
const CONTROLLER_NAME: &str = "ingress-nginx-controller";
const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";
const CONTROLLER_CLASS: &str = "k8s.io/ingress-nginx";

/// Kinds that are read from a cluster: group, plural, kind, version.
const CLUSTER_KINDS: [(&str, &str, &str, &str); 8] = [
    ("networking.k8s.io", "ingresses", "Ingress", "v1"),
    ("networking.k8s.io", "ingressclasses", "IngressClass", "v1"),
    ("", "services", "Service", "v1"),
    ("discovery.k8s.io", "endpointslices", "EndpointSlice", "v1"),
    ("", "configmaps", "ConfigMap", "v1"),
    ("", "secrets", "Secret", "v1"),
    ("apps", "deployments", "Deployment", "v1"),
    ("apps", "daemonsets", "DaemonSet", "v1"),
];

/// An Ingress of ingress-nginx.
pub(super) struct MigratedIngress {
    pub(super) meta: ObjectMeta,
    /// The whole object.
    pub(super) object: Value,
    pub(super) place: Option<FilePlace>,
}

impl MigratedIngress {
    /// `namespace/name`.
    pub(super) fn name(&self) -> String {
        format!("{}/{}", self.meta.namespace, self.meta.name)
    }
}

/// The objects and settings to migrate.
pub(super) struct MigrationSource {
    /// All objects, with their places.
    pub(super) documents: Vec<(Value, FilePlace)>,
    pub(super) ingresses: Vec<MigratedIngress>,
    /// Names of Ingresses of other classes.
    pub(super) of_others: Vec<String>,
    /// Arguments of the controller's process.
    pub(super) arguments: Vec<String>,
    /// Flags and ConfigMap of the controller.
    pub(super) controller: ControllerSettings,
    /// Findings about both, with the object that they are about.
    pub(super) findings: Vec<(String, ControllerProblem)>,
    /// `log-format-upstream`.
    pub(super) log_format: Option<String>,
    /// Whether an object that is not among the documents may exist all the same.
    pub(super) is_partial: bool,
}

impl MigrationSource {
    /// Reads the objects that the arguments name.
    pub(super) fn read(input: &MigrationInput) -> anyhow::Result<MigrationSource> {
        let mut documents = match input.manifests.is_empty() {
            false => read_documents(&input.manifests)?,
            true if input.helm.is_some() && input.kubeconfig.is_none() && input.context.is_none() => {
                Vec::new()
            }
            true => read_cluster(input)?,
        };
        let mut arguments = controller_arguments(&documents);
        if let Some(file) = &input.helm {
            let values = HelmValues::read(file)?;
            arguments = values.arguments();
            let place = FilePlace {
                file: file.display().to_string().into(),
                span: LineSpan { line: 1, column: 1, width: 1 },
            };
            documents.extend(values.documents().into_iter().map(|document| (document, place.clone())));
        }
        name_config_map(&mut arguments, &documents);
        let (flags, problems) = read_flags(&arguments);
        let mut findings: Vec<_> = problems.into_iter().map(|one| ("flags".to_owned(), one)).collect();
        let data = flags.flags.config_map.as_ref().map(|key| (key.clone(), config_map_data(&documents, key)));
        let mut controller = flags;
        let mut log_format = None;
        if let Some((key, Some(data))) = data {
            log_format = data.get("log-format-upstream").map(|format| format.to_string());
            let (settings, problems) = read_config_map(&data, controller);
            findings.extend(problems.into_iter().map(|one| (key.to_string(), one)));
            controller = settings;
        }
        add_class(&mut documents, &controller);
        let (ingresses, of_others) = ingresses_of(&documents, &controller);
        if ingresses.is_empty() && input.helm.is_none() {
            bail!(
                "there is no Ingress of ingress-nginx ({} of other classes); its class is {:?}",
                of_others.len(),
                class_name(&controller)
            );
        }
        Ok(MigrationSource {
            documents,
            ingresses,
            of_others,
            arguments,
            controller,
            findings,
            log_format,
            is_partial: !input.manifests.is_empty(),
        })
    }
}

fn class_name(controller: &ControllerSettings) -> &str {
    controller.flags.ingress_class.as_deref().unwrap_or("nginx")
}

/// Reads the kinds that a migration needs. A kind that may not be read is left out with a message.
fn read_cluster(input: &MigrationInput) -> anyhow::Result<Vec<(Value, FilePlace)>> {
    let mut written = input.node.read()?.kubernetes;
    if let Some(file) = &input.kubeconfig {
        written.kubeconfig = file.display().to_string();
    }
    if let Some(context) = &input.context {
        written.context.clone_from(context);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let server = crate::kubernetes::api_server(&written).await?;
        let client = ApiClient::new(&server).with_context(|| format!("API server {}", server.url()))?;
        let mut documents = Vec::new();
        for (group, plural, kind, version) in CLUSTER_KINDS {
            // Contents of Secrets do not matter here; those that exist do.
            let target = WatchTarget::new(group, plural, kind, &[version]);
            let list = match client.list_page(&target, version, None, None).await {
                Ok(list) => list,
                Err(error) if kind == "Ingress" => {
                    return Err(anyhow::Error::new(error).context(format!("API server {}", server.url())));
                }
                Err(error) => {
                    report_unread(kind, &error);
                    continue;
                }
            };
            let mut list: Value = serde_json::from_slice(&list).context("a list is no JSON")?;
            let items = list["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
            let api = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
            let place = FilePlace { file: "".into(), span: LineSpan { line: 1, column: 1, width: 1 } };
            documents.extend(items.into_iter().map(|mut item| {
                item["apiVersion"] = api.as_str().into();
                item["kind"] = kind.into();
                (item, place.clone())
            }));
        }
        Ok(documents)
    })
}

/// Best effort: the report is complete without the message.
fn report_unread(kind: &str, error: &ApiError) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "warning: {kind} objects are not read: {error}");
}

/// The arguments of the container that runs ingress-nginx.
fn controller_arguments(documents: &[(Value, FilePlace)]) -> Vec<String> {
    let workloads = documents.iter().map(|(document, _)| document);
    let workloads = workloads.filter(|one| matches!(one["kind"].as_str(), Some("Deployment" | "DaemonSet")));
    let containers = workloads.flat_map(|one| one["spec"]["template"]["spec"]["containers"].as_array());
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let mut arguments = containers.flatten().map(|container| {
        let image = container["image"].as_str().unwrap_or_default();
        let words = [texts(&container["command"]), texts(&container["args"])].concat();
        (image.contains("ingress-nginx/controller") || names_controller(&words), words)
    });
    arguments.find(|(is_controller, _)| *is_controller).map(|(_, words)| words).unwrap_or_default()
}

fn names_controller(words: &[String]) -> bool {
    words.iter().any(|word| word.ends_with("nginx-ingress-controller"))
}

/// Names the ConfigMap of the published manifests if the flags name none. `$(POD_NAMESPACE)` is its own namespace.
fn name_config_map(arguments: &mut Vec<String>, documents: &[(Value, FilePlace)]) {
    let namespace_of = |name: &str| {
        let found = documents
            .iter()
            .map(|(document, _)| document)
            .find(|document| document["kind"] == "ConfigMap" && document["metadata"]["name"] == name)?;
        Some(found["metadata"]["namespace"].as_str().unwrap_or("default").to_owned())
    };
    for argument in arguments.iter_mut() {
        if let Some((flag, name)) = argument.split_once("=$(POD_NAMESPACE)/") {
            let namespace = namespace_of(name).unwrap_or_else(|| "ingress-nginx".to_owned());
            *argument = format!("{flag}={namespace}/{name}");
        }
    }
    let is_named = arguments.iter().any(|argument| argument.starts_with("--configmap"));
    if let Some(namespace) = namespace_of(CONTROLLER_NAME).filter(|_| !is_named) {
        arguments.push(format!("--configmap={namespace}/{CONTROLLER_NAME}"));
    }
}

fn config_map_data(
    documents: &[(Value, FilePlace)],
    key: &yumen_kubernetes::ObjectKey,
) -> Option<BTreeMap<Arc<str>, Arc<str>>> {
    let found = documents.iter().map(|(document, _)| document).find(|document| {
        let metadata = &document["metadata"];
        let namespace = metadata["namespace"].as_str().unwrap_or("default");
        document["kind"] == "ConfigMap" && metadata["name"] == *key.name && *namespace == *key.namespace
    })?;
    let data = found["data"].as_object().into_iter().flatten();
    Some(data.filter_map(|(name, value)| Some((name.as_str().into(), value.as_str()?.into()))).collect())
}

/// Adds the class of ingress-nginx, which manifests of applications do not have.
fn add_class(documents: &mut Vec<(Value, FilePlace)>, controller: &ControllerSettings) {
    let name = class_name(controller);
    let is_class =
        |document: &Value| document["kind"] == "IngressClass" && document["metadata"]["name"] == name;
    if documents.iter().any(|(document, _)| is_class(document)) {
        return;
    }
    let class = json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "IngressClass",
        "metadata": { "name": name },
        "spec": { "controller": controller.flags.controller_class.as_deref().unwrap_or(CONTROLLER_CLASS) },
    });
    let place = FilePlace { file: "".into(), span: LineSpan { line: 1, column: 1, width: 1 } };
    documents.push((class, place));
}

/// The Ingresses of ingress-nginx's classes, in the order of namespaces and names, and the names of others.
fn ingresses_of(
    documents: &[(Value, FilePlace)],
    controller: &ControllerSettings,
) -> (Vec<MigratedIngress>, Vec<String>) {
    let served_controller = controller.flags.controller_class.as_deref().unwrap_or(CONTROLLER_CLASS);
    let classes = documents.iter().map(|(document, _)| document).filter(|one| one["kind"] == "IngressClass");
    let served: Vec<&str> = classes
        .filter(|class| class["spec"]["controller"] == served_controller)
        .filter_map(|class| class["metadata"]["name"].as_str())
        .collect();
    let (mut ingresses, mut of_others) = (Vec::new(), Vec::new());
    for (document, place) in documents.iter().filter(|(document, _)| document["kind"] == "Ingress") {
        let mut metadata = document["metadata"].clone();
        if metadata["namespace"].is_null() {
            metadata["namespace"] = "default".into();
        }
        let meta = serde_json::from_value::<ObjectMeta>(metadata.clone());
        let meta = meta.or_else(|_| serde_json::from_value(readable_metadata(&metadata)));
        let Some(meta) = meta.ok().filter(|meta: &ObjectMeta| !meta.name.is_empty()) else { continue };
        let by_name = document["spec"]["ingressClassName"].as_str().filter(|name| !name.is_empty());
        let by_annotation = meta.annotations.get(CLASS_ANNOTATION);
        let is_served = match (by_name, by_annotation) {
            (Some(name), _) => served.contains(&name),
            (None, Some(name)) => **name == *class_name(controller) || served.contains(&&**name),
            // Manifests do not have the class that the API server writes into an Ingress without one.
            (None, None) => true,
        };
        let place = Some(place.clone()).filter(|place| !place.file.is_empty());
        let ingress = MigratedIngress { meta, object: document.clone(), place };
        if is_served { ingresses.push(ingress) } else { of_others.push(ingress.name()) }
    }
    ingresses.sort_by_key(MigratedIngress::name);
    (ingresses, of_others)
}

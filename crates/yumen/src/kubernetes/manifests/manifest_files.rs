//! The objects in manifest files, with their places.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::Value;
use yumen_base::{FilePlace, LineSpan, Problem, ProblemLevel};
use yumen_config::yaml;
use yumen_kubernetes::{ClusterKind, ClusterObject, ObjectKey, decode, salvage};

use super::document_starts::document_starts;
use super::manifest_members::unknown_members;
use super::placeholder_endpoints::PlaceholderEndpoints;

/// The objects of manifest files that the translation reads.
#[derive(Debug, Default)]
pub(crate) struct ManifestObjects {
    pub(super) objects: BTreeMap<ObjectKey, ClusterObject>,
    /// Problems of the files and of single objects.
    pub(super) problems: Vec<Problem>,
    /// Names of Services, `Service/shop/cart`, whose endpoints are placeholders.
    pub(crate) placeholders: BTreeSet<String>,
    /// The number of objects in the files of kinds that the translation reads.
    pub(crate) count: usize,
    places: BTreeMap<String, FilePlace>,
    endpoints: PlaceholderEndpoints,
}

impl ManifestObjects {
    /// Reads manifest files; of a directory, all of its manifests.
    ///
    /// Objects of kinds that the translation does not read are left out. A Service without an EndpointSlice gets a
    /// placeholder endpoint.
    ///
    /// # Errors
    ///
    /// A file cannot be read or is no YAML, or a directory has no manifest.
    pub(crate) fn read(paths: &[PathBuf]) -> anyhow::Result<ManifestObjects> {
        let mut read = ManifestObjects::from_documents(read_documents(paths)?);
        for path in paths {
            for file in files(path)? {
                read.report_duplicate_keys(&file)?;
            }
        }
        Ok(read)
    }

    /// Takes objects with their places, as [`ManifestObjects::read`] does.
    pub(crate) fn from_documents(documents: Vec<(Value, FilePlace)>) -> ManifestObjects {
        let mut read = ManifestObjects::default();
        for (document, place) in documents {
            read.take(document, &place);
        }
        read.add_placeholders();
        read
    }

    /// Reports a key that a mapping has twice, as the API server refuses it in strict validation.
    fn report_duplicate_keys(&mut self, file: &Path) -> anyhow::Result<()> {
        let name = file.display().to_string();
        let text = read_text(file)?;
        // Only values of YAML refuse duplicates.
        for document in serde_yaml_ng::Deserializer::from_str(yaml::bounded(&text)?) {
            let Err(error) = serde_yaml_ng::Value::deserialize(document) else { continue };
            // The text was read as JSON. A reader of YAML repeats the fault without end.
            if !error.to_string().contains("duplicate") {
                break;
            }
            let line =
                error.location().map_or(1, |location| u32::try_from(location.line()).unwrap_or(u32::MAX));
            let span = LineSpan { line, column: 1, width: 1 };
            let place = FilePlace { file: name.as_str().into(), span };
            let problem = Problem::warning("file", "", format!("{error}; the last value counts"));
            self.problems.push(Problem { place: Some(place), ..problem });
        }
        Ok(())
    }

    /// Takes one object.
    fn take(&mut self, mut value: Value, place: &FilePlace) {
        let (Some(version), Some(name)) = (value["apiVersion"].as_str(), value["kind"].as_str()) else {
            let message = "the object has no apiVersion or no kind";
            let problem = Problem::error("file", "", message).hint("write both, as kubectl requires");
            self.problems.push(Problem { place: Some(place.clone()), ..problem });
            return;
        };
        let group = version.rsplit_once('/').map_or("", |(group, _)| group);
        // Manifests of clusters before Kubernetes 1.22 have Ingresses of another group; their paths are refused.
        let group = if (group, name) == ("extensions", "Ingress") { "networking.k8s.io" } else { group };
        let Some(kind) = ClusterKind::find(group, name) else {
            if group.starts_with("gateway.networking.") {
                let object = format!("{name}/{}", value["metadata"]["name"].as_str().unwrap_or_default());
                let message = format!("{name} of {version} is not a kind that the gateway reads");
                let problem = Problem::warning(object, "kind", message);
                self.problems.push(Problem { place: Some(place.clone()), ..problem });
            }
            return;
        };
        self.report_doubts(kind, version, &value, place);
        // kubectl puts objects without a namespace into the one of its context.
        if kind.api().is_namespaced && value["metadata"]["namespace"].is_null() {
            value["metadata"]["namespace"] = "default".into();
        }
        encode_string_data(&mut value);
        self.endpoints.observe(&value);
        self.count += 1;
        match decode(kind, value.to_string().as_bytes()) {
            Ok(object) => self.insert(object, place),
            Err(error) => {
                let object = error.key.map_or_else(|| kind.to_string(), |key| key.to_string());
                let rest = salvage(kind, &value, &error.message);
                let effect = if rest.is_some() { ": the paths of the Ingress answer 503" } else { "" };
                let problem = Problem::error(object, "", format!("{}{effect}", error.message));
                self.problems.push(Problem { place: Some(place.clone()), ..problem });
                if let Some(object) = rest {
                    self.insert(object, place);
                }
            }
        }
    }

    /// Reports a version that the gateway does not know, and members that the API does not have.
    fn report_doubts(&mut self, kind: ClusterKind, version: &str, value: &Value, place: &FilePlace) {
        let mut doubts = Vec::new();
        let short = version.rsplit('/').next().unwrap_or_default();
        let known = kind.api().versions;
        if !known.contains(&short) {
            let message =
                format!("version {version} is not one that the gateway reads; known: {}", known.join(", "));
            doubts.push(("apiVersion".to_owned(), message));
        }
        doubts.extend(unknown_members(kind, value));
        let metadata = &value["metadata"];
        let text = |member: &str| metadata[member].as_str();
        let namespace = text("namespace").unwrap_or(if kind.api().is_namespaced { "default" } else { "" });
        let key = ObjectKey::new(kind, namespace, text("name").unwrap_or_default());
        for (path, message) in doubts {
            let problem = Problem::warning(key.to_string(), path, message);
            self.problems.push(Problem { place: Some(place.clone()), ..problem });
        }
    }

    fn insert(&mut self, object: ClusterObject, place: &FilePlace) {
        let key = object.key();
        if let Some(former) = self.places.insert(key.to_string(), place.clone()) {
            let message = format!("the object is also in {former}; the last one counts");
            let problem = Problem::warning(key.to_string(), "", message);
            self.problems.push(Problem { place: Some(place.clone()), ..problem });
        }
        self.objects.insert(key, object);
    }

    fn add_placeholders(&mut self) {
        for ((namespace, name), slice) in self.endpoints.slices() {
            if let Ok(object) = decode(ClusterKind::EndpointSlice, slice.to_string().as_bytes()) {
                self.objects.insert(object.key(), object);
                self.placeholders.insert(ObjectKey::new(ClusterKind::Service, namespace, name).to_string());
            }
        }
    }

    /// Objects that cannot be read.
    pub(crate) fn unreadable(&self) -> impl Iterator<Item = &Problem> {
        self.problems.iter().filter(|problem| problem.level == ProblemLevel::Error)
    }

    /// Adds the places of problems whose objects are in the files.
    pub(super) fn locate(&self, problems: &mut [Problem]) {
        for problem in problems.iter_mut().filter(|problem| problem.place.is_none()) {
            problem.place = self.places.get(&problem.object).cloned();
        }
    }
}

/// Reads the documents of manifest files; of a directory, all of its manifests. Items of lists are documents of their own.
///
/// # Errors
///
/// A file cannot be read or is no YAML, or a directory has no manifest.
pub(crate) fn read_documents(paths: &[PathBuf]) -> anyhow::Result<Vec<(Value, FilePlace)>> {
    let mut documents = Vec::new();
    for path in paths {
        for file in files(path)? {
            read_file(&file, &mut documents)?;
        }
    }
    Ok(documents)
}

fn read_text(file: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    // Editors of Windows begin files with a byte order mark.
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

fn read_file(file: &Path, documents: &mut Vec<(Value, FilePlace)>) -> anyhow::Result<()> {
    let name = file.display().to_string();
    let text = read_text(file)?;
    let mut values = values_of(&text).with_context(|| format!("{name}: no YAML"))?;
    values.retain(|value| !value.is_null());
    let starts = document_starts(&text);
    let is_known = starts.len() == values.len();
    for (at, mut value) in values.into_iter().enumerate() {
        let line = if is_known { starts[at] } else { 1 };
        let span = LineSpan { line, column: 1, width: 1 };
        let place = FilePlace { file: name.as_str().into(), span };
        let is_list = value["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
        match value["items"].as_array_mut().filter(|_| is_list) {
            Some(items) => documents.extend(items.drain(..).map(|item| (item, place.clone()))),
            None => documents.push((value, place)),
        }
    }
    Ok(())
}

/// The documents of a text, within the bound on aliases. JSON is no part of YAML where it escapes a character by two surrogates (RFC 8259 §7).
pub(crate) fn values_of(text: &str) -> Result<Vec<Value>, serde_yaml_ng::Error> {
    if text.trim_start().starts_with(['{', '['])
        && let Ok(values) = serde_json::Deserializer::from_str(text).into_iter().collect()
    {
        return Ok(values);
    }
    let documents = serde_yaml_ng::Deserializer::from_str(yaml::bounded(text)?);
    documents.map(Value::deserialize).collect()
}

/// The manifest files at a path, in the order of their names.
fn files(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = std::fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?;
    let is_manifest = |path: &PathBuf| {
        path.extension()
            .is_some_and(|extension| ["yaml", "yml", "json"].iter().any(|known| extension == *known))
    };
    let mut files: Vec<PathBuf> =
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(is_manifest).collect();
    if files.is_empty() {
        bail!("there is no manifest (*.yaml, *.yml, *.json) in {}", path.display());
    }
    files.sort();
    Ok(files)
}

/// Moves `stringData` of a Secret to `data`, as the API server does.
fn encode_string_data(object: &mut Value) {
    if object["kind"] != "Secret" {
        return;
    }
    let Some(Value::Object(plain)) = object.as_object_mut().and_then(|object| object.remove("stringData"))
    else {
        return;
    };
    if object["data"].is_null() {
        object["data"] = Value::Object(serde_json::Map::new());
    }
    for (name, text) in plain {
        object["data"][name] = STANDARD.encode(text.as_str().unwrap_or_default()).into();
    }
}

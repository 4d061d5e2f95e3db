//! Translation of manifest files without a cluster, for offline commands.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use serde::Deserialize;
use serde_json::Value;
use yumen_base::Problem;
use yumen_config::{NodeConfig, Resource};
use yumen_kubernetes::{
    ClusterChange, ClusterKind, ClusterTranslator, DesiredObject, ObjectKey, ResourceChange, ResourceName,
    decode,
};

use super::certificate_reader::CertificateReader;

/// Rounds of a translation whose written objects are read again, as a controller does.
const ROUNDS_MAX: usize = 16;

/// The translation of some manifests.
pub(crate) struct TranslatedManifests {
    pub(crate) resources: Vec<Resource>,
    /// Problems of the files and of the translation; those of the compiler are not among them.
    pub(crate) problems: Vec<Problem>,
}

/// Reads a manifest file, or all manifests of a directory, and translates its objects as the controller does.
///
/// Objects of kinds that the translation does not read are left out. A Secret that is not among the manifests counts as
/// absent.
///
/// # Errors
///
/// A file cannot be read or is no YAML.
pub(crate) fn translate_manifests(path: &Path, node: &NodeConfig) -> anyhow::Result<TranslatedManifests> {
    let mut problems = Vec::new();
    let mut changes: Vec<ClusterChange> =
        ClusterKind::all().map(|kind| ClusterChange::Installed(kind, true)).collect();
    for file in files(path)? {
        let text =
            std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        for document in serde_yaml_ng::Deserializer::from_str(&text) {
            let value =
                Value::deserialize(document).with_context(|| format!("{}: no YAML", file.display()))?;
            take(value, &mut changes, &mut problems);
        }
    }
    let settings = super::translation_settings(node);
    let mut translator = ClusterTranslator::new(settings, Arc::new(CertificateReader));
    let mut resources: BTreeMap<ResourceName, Arc<str>> = BTreeMap::new();
    let mut answered = BTreeSet::new();
    let mut translated = Vec::new();
    for _ in 0..ROUNDS_MAX {
        let delta = translator.apply(std::mem::take(&mut changes), yumen_proxy::clock::exact());
        for change in delta.resources {
            match change {
                ResourceChange::Put(resource) => drop(resources.insert(resource.name, resource.json)),
                ResourceChange::Delete(name) => drop(resources.remove(&name)),
            }
        }
        translated = delta.problems.unwrap_or(translated);
        changes.extend(delta.objects.into_iter().filter_map(written));
        let absent = delta.wanted.into_iter().flatten().filter(|key| translator.object(key).is_none());
        let absent: Vec<ObjectKey> = absent.filter(|key| answered.insert(key.clone())).collect();
        changes.extend(absent.into_iter().map(ClusterChange::Delete));
        if changes.is_empty() {
            break;
        }
    }
    problems.append(&mut translated);
    let resource = |(name, json): (ResourceName, Arc<str>)| {
        Some(Resource { kind: name.kind.kind()?, id: name.id, json })
    };
    Ok(TranslatedManifests { resources: resources.into_iter().filter_map(resource).collect(), problems })
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

/// Takes one object, or the items of a list.
fn take(value: Value, changes: &mut Vec<ClusterChange>, problems: &mut Vec<Problem>) {
    let (Some(version), Some(name)) = (value["apiVersion"].as_str(), value["kind"].as_str()) else {
        if !value.is_null() {
            problems.push(Problem::error("file", "", "an object has no apiVersion or no kind"));
        }
        return;
    };
    if let Some(items) = value["items"].as_array().filter(|_| name.ends_with("List")) {
        items.iter().cloned().for_each(|item| take(item, changes, problems));
        return;
    }
    let group = version.rsplit_once('/').map_or("", |(group, _)| group);
    let Some(kind) = ClusterKind::find(group, name) else { return };
    let mut value = value;
    // kubectl puts objects without a namespace into the one of its context.
    if kind.api().is_namespaced && value["metadata"]["namespace"].is_null() {
        value["metadata"]["namespace"] = "default".into();
    }
    match decode(kind, value.to_string().as_bytes()) {
        Ok(object) => changes.push(ClusterChange::Put(object)),
        Err(error) => {
            let object = error.key.map_or_else(|| kind.to_string(), |key| key.to_string());
            problems.push(Problem::error(object, "", error.message));
        }
    }
}

/// A written object, as the API server would report it.
fn written(object: DesiredObject) -> Option<ClusterChange> {
    match object {
        DesiredObject::Apply(path, form) if path.is_owned() => {
            decode(path.key.kind, form.to_string().as_bytes()).ok().map(ClusterChange::Put)
        }
        DesiredObject::Apply(..) | DesiredObject::AddFinalizer(..) | DesiredObject::RemoveFinalizer(..) => {
            None
        }
        DesiredObject::Remove(path) => Some(ClusterChange::Delete(path.key)),
    }
}

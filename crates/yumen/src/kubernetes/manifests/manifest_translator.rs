//! Translation of manifests, as the controller translates the objects of a cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};
use yumen_base::Problem;
use yumen_config::{NodeConfig, Resource};
use yumen_kubernetes::status::StatusDraft;
use yumen_kubernetes::{
    ClusterChange, ClusterKind, ClusterObject, ClusterTranslator, DesiredObject, ObjectKey, ResourceChange,
    ResourceName, TranslationSettings, decode,
};

use super::status_findings::status_findings;
use super::{ManifestObjects, PLACEHOLDER_ADDRESS};
use crate::kubernetes::certificate_reader::CertificateReader;
use crate::kubernetes::translation_settings;

/// Rounds of a translation whose written objects are read again, as a controller does.
const ROUNDS_MAX: usize = 16;

/// A translator without a cluster. A second translation continues the first one, so that Gateways keep their ports.
pub(crate) struct ManifestTranslator {
    controller: Arc<str>,
    translator: ClusterTranslator,
    /// Objects that the controller writes.
    written: BTreeMap<ObjectKey, ClusterObject>,
    resources: BTreeMap<ResourceName, Arc<str>>,
    statuses: BTreeMap<ObjectKey, StatusDraft>,
    problems: Vec<Problem>,
}

/// The translation of some manifests.
pub(crate) struct TranslatedManifests {
    pub(crate) resources: Vec<Resource>,
    /// Problems of the files and of the translation; those of the compiler are not among them.
    pub(crate) problems: Vec<Problem>,
    origins: BTreeMap<String, String>,
}

impl ManifestTranslator {
    /// A translator with the settings of a node.
    pub(crate) fn new(node: &NodeConfig) -> ManifestTranslator {
        // Without a cluster there is no other controller; ports of Gateways are those of the written Services.
        let settings = TranslationSettings { take_over: true, ..translation_settings(node) };
        ManifestTranslator {
            controller: settings.controller_name.clone(),
            translator: ClusterTranslator::new(settings, Arc::new(CertificateReader)),
            written: BTreeMap::new(),
            resources: BTreeMap::new(),
            statuses: BTreeMap::new(),
            problems: Vec::new(),
        }
    }

    /// Translates manifests, which replace those of the previous translation.
    ///
    /// A Secret or ConfigMap that is not among the manifests counts as absent.
    pub(crate) fn translate(&mut self, manifests: &ManifestObjects) -> TranslatedManifests {
        let mut changes: Vec<ClusterChange> =
            ClusterKind::all().map(|kind| ClusterChange::Installed(kind, true)).collect();
        changes.extend(ClusterKind::all().map(|kind| {
            let written = self.written.values().filter(|one| !manifests.objects.contains_key(&one.key()));
            let all = manifests.objects.values().chain(written);
            ClusterChange::Replace(kind, all.filter(|one| one.key().kind == kind).cloned().collect())
        }));
        let mut answered = BTreeSet::new();
        for _ in 0..ROUNDS_MAX {
            changes = self.round(changes, &mut answered);
            if changes.is_empty() {
                break;
            }
        }
        self.result(manifests)
    }

    /// Applies changes and returns those of written and required objects that follow.
    fn round(
        &mut self,
        changes: Vec<ClusterChange>,
        answered: &mut BTreeSet<ObjectKey>,
    ) -> Vec<ClusterChange> {
        let delta = self.translator.apply(changes, yumen_proxy::clock::exact());
        for change in delta.resources {
            match change {
                ResourceChange::Put(resource) => drop(self.resources.insert(resource.name, resource.json)),
                ResourceChange::Delete(name) => drop(self.resources.remove(&name)),
            }
        }
        for (key, draft) in delta.statuses {
            match draft {
                Some(draft) => drop(self.statuses.insert(key, draft)),
                None => drop(self.statuses.remove(&key)),
            }
        }
        if let Some(problems) = delta.problems {
            self.problems = problems;
        }
        let mut following = Vec::new();
        for object in delta.objects {
            following.extend(self.write(object));
        }
        let wanted = delta.wanted.into_iter().flatten();
        let absent = wanted.filter(|key| self.translator.object(key).is_none());
        following.extend(absent.filter(|key| answered.insert(key.clone())).map(ClusterChange::Delete));
        following
    }

    /// Takes a written object, and returns it as the API server would report it.
    fn write(&mut self, object: DesiredObject) -> Option<ClusterChange> {
        match object {
            DesiredObject::Apply(path, mut form) if path.is_owned() => {
                if path.key.kind == ClusterKind::Service {
                    let address = json!([{ "ip": PLACEHOLDER_ADDRESS }]);
                    form["status"] = json!({ "loadBalancer": { "ingress": address } });
                }
                let object = decode(path.key.kind, form.to_string().as_bytes()).ok()?;
                self.written.insert(path.key, object.clone());
                Some(ClusterChange::Put(object))
            }
            DesiredObject::Apply(..)
            | DesiredObject::AddFinalizer(..)
            | DesiredObject::RemoveFinalizer(..)
            | DesiredObject::Leave(_) => None,
            DesiredObject::Remove(path) => {
                self.written.remove(&path.key);
                Some(ClusterChange::Delete(path.key))
            }
        }
    }

    fn result(&self, manifests: &ManifestObjects) -> TranslatedManifests {
        let mut problems = manifests.problems.clone();
        problems.extend(self.problems.iter().cloned());
        problems.extend(status_findings(manifests, &self.statuses, &self.controller));
        manifests.locate(&mut problems);
        let resource = |(name, json): (&ResourceName, &Arc<str>)| {
            Some(Resource { kind: name.kind.kind()?, id: name.id.clone(), json: json.clone() })
        };
        let origin = |(name, json): (&ResourceName, &Arc<str>)| {
            let text: Value = serde_json::from_str(json).ok()?;
            Some((name.to_string(), text["labels"]["origin"].as_str()?.to_owned()))
        };
        TranslatedManifests {
            resources: self.resources.iter().filter_map(resource).collect(),
            problems,
            origins: self.resources.iter().filter_map(origin).collect(),
        }
    }
}

impl TranslatedManifests {
    /// The Kubernetes object that a resource, such as `routes/shop/cart!http!00!000`, comes from.
    pub(crate) fn origin(&self, resource: &str) -> Option<&str> {
        self.origins.get(resource).map(String::as_str)
    }

    /// Gives problems of resources the name and place of the Kubernetes object; the message names the resource.
    pub(crate) fn attribute(&self, problems: &mut [Problem], manifests: &ManifestObjects) {
        for problem in problems.iter_mut() {
            if let Some(origin) = self.origin(&problem.object) {
                let origin = origin.to_owned();
                let resource = std::mem::replace(&mut problem.object, origin);
                problem.message = format!("{}, in resource {resource}", problem.message);
            }
        }
        manifests.locate(problems);
    }
}

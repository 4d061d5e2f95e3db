//! Plugin settings that several objects must agree on, such as those of a `limit-count` group.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use yumen_base::Problem;

use crate::compile::names::ObjectName;

/// The subject of an agreement: a plugin, and a name at a path of its settings.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct AgreementKey {
    pub(crate) plugin: Box<str>,
    pub(crate) path: Box<str>,
    pub(crate) name: Box<str>,
}

/// A hash of the settings. Equal settings agree.
pub(crate) type AgreementHash = u64;

/// The settings of each object, by subject. A disagreement is a warning; all objects stay in force.
#[derive(Debug, Default)]
pub(crate) struct SettingsAgreements {
    by_subject: HashMap<AgreementKey, BTreeSet<(ObjectName, AgreementHash)>>,
    /// The inverse of `by_subject`. No list is empty.
    by_object: BTreeMap<ObjectName, Vec<(AgreementKey, AgreementHash)>>,
}

impl SettingsAgreements {
    /// Replaces the agreements of an object; returns the objects whose warnings may have changed.
    pub(crate) fn set(
        &mut self,
        name: &ObjectName,
        agreements: Vec<(AgreementKey, AgreementHash)>,
    ) -> Vec<ObjectName> {
        let mut affected = Vec::new();
        for (subject, hash) in self.by_object.remove(name).into_iter().flatten() {
            let Some(parties) = self.by_subject.get_mut(&subject) else { continue };
            parties.remove(&(name.clone(), hash));
            // The parties that remain may agree now.
            affected.extend(parties.iter().map(|(other, _)| other.clone()));
            if parties.is_empty() {
                self.by_subject.remove(&subject);
            }
        }
        for (subject, hash) in &agreements {
            let parties = self.by_subject.entry(subject.clone()).or_default();
            parties.insert((name.clone(), *hash));
            affected.extend(parties.iter().map(|(other, _)| other.clone()));
        }
        if !agreements.is_empty() {
            self.by_object.insert(name.clone(), agreements);
        }
        affected
    }

    /// The objects that disagree with another one.
    pub(crate) fn disagreeing_objects(&self) -> impl Iterator<Item = &ObjectName> {
        let differ = |parties: &&BTreeSet<(ObjectName, AgreementHash)>| {
            let mut hashes = parties.iter().map(|(_, hash)| hash);
            let first = hashes.next();
            hashes.any(|other| Some(other) != first)
        };
        self.by_subject.values().filter(differ).flatten().map(|(name, _)| name)
    }

    /// Warnings about the disagreements of an object.
    pub(crate) fn problems_of(&self, name: &ObjectName) -> Vec<Problem> {
        let agreements = self.by_object.get(name).into_iter().flatten();
        let warnings = agreements.filter_map(|(subject, hash)| {
            let (other, _) = self.by_subject.get(subject)?.iter().find(|(_, other)| other != hash)?;
            let AgreementKey { plugin, path, name: of } = subject;
            let message =
                format!("{path} \"{of}\" has other settings in {other}: those that differ count apart");
            let problem = Problem::warning(name.to_string(), format!("plugins.{plugin}.{path}"), message);
            Some(problem.hint(format!("give all plugins with this {path} the same settings")))
        });
        warnings.collect()
    }
}

#[cfg(test)]
mod tests;

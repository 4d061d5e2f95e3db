//! The verdict on each Ingress: its annotations, and problems of the translation and the compiler.

use std::collections::BTreeMap;
use std::sync::Arc;

use yumen_base::{Problem, ProblemLevel};
use yumen_config::Resource;
use yumen_config::node::StoreKind;
use yumen_kubernetes::ingress_nginx::{AnnotationConsequence, AnnotationProblem, read_annotations};
use yumen_snapshot::Snapshot;

use super::migration_source::{MigratedIngress, MigrationSource};
use crate::commands::offline;
use crate::kubernetes::{ManifestObjects, ManifestTranslator};
use crate::node::NodeFile;

/// How a part of an Ingress compares. Later ones are worse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum MigrationVerdict {
    /// As in ingress-nginx.
    Same,
    /// Served, with a difference.
    Differs,
    /// Not served as written.
    Refused,
}

impl MigrationVerdict {
    pub(super) fn word(self) -> &'static str {
        match self {
            MigrationVerdict::Same => "same",
            MigrationVerdict::Differs => "differs",
            MigrationVerdict::Refused => "refused",
        }
    }
}

/// A finding about an Ingress.
pub(super) struct MigrationFinding {
    pub(super) verdict: MigrationVerdict,
    /// The annotation without its prefix, or a path in the object.
    pub(super) place: String,
    pub(super) message: String,
    /// Another way to the same effect.
    pub(super) instead: Option<String>,
}

/// An Ingress with its findings.
pub(super) struct AssessedIngress<'s> {
    pub(super) ingress: &'s MigratedIngress,
    /// Annotations with the prefix of ingress-nginx.
    pub(super) annotations: usize,
    pub(super) findings: Vec<MigrationFinding>,
}

impl AssessedIngress<'_> {
    pub(super) fn verdict(&self) -> MigrationVerdict {
        let worst = self.findings.iter().map(|finding| finding.verdict).max();
        worst.unwrap_or(MigrationVerdict::Same)
    }

    /// The number of annotations without a finding of this verdict or a worse one.
    pub(super) fn annotations_at(&self, verdict: MigrationVerdict) -> usize {
        let mut worst: BTreeMap<&str, MigrationVerdict> = BTreeMap::new();
        for finding in self.findings.iter().filter(|finding| !finding.place.contains('.')) {
            let entry = worst.entry(&finding.place).or_insert(finding.verdict);
            *entry = finding.verdict.max(*entry);
        }
        let found = worst.values().filter(|found| **found == verdict).count();
        match verdict {
            MigrationVerdict::Same => {
                let judged = worst.values().filter(|found| **found > MigrationVerdict::Same).count();
                self.annotations.saturating_sub(judged)
            }
            _ => found,
        }
    }
}

/// All Ingresses with their findings, and the compiled translation.
pub(super) struct MigrationAssessment<'s> {
    pub(super) ingresses: Vec<AssessedIngress<'s>>,
    pub(super) resources: Vec<Resource>,
    pub(super) snapshot: Arc<Snapshot>,
    /// Problems of the compiler.
    pub(super) defects: Vec<Problem>,
    /// Objects of the files that cannot be read and are no Ingress of the report.
    pub(super) unreadable: Vec<Problem>,
}

impl MigrationAssessment<'_> {
    /// Translates and compiles the objects of a source.
    pub(super) fn of<'s>(
        source: &'s MigrationSource,
        node: &NodeFile,
    ) -> anyhow::Result<MigrationAssessment<'s>> {
        let mut node = node.read()?;
        // Broken objects close, and paths are read, as on a node of the cluster.
        node.store.kind = StoreKind::Kubernetes;
        node.kubernetes.ingress.enabled = true;
        node.kubernetes.ingress.flags = source.arguments.clone();
        let manifests = ManifestObjects::from_documents(source.documents.clone());
        let translated = ManifestTranslator::new(&node).translate(&manifests);
        let mut compiler = offline::compiler(&node);
        let snapshot = compiler.replace_all(translated.resources.clone(), 1).snapshot;
        let defects = compiler.problems();
        let mut problems = defects.clone();
        translated.attribute(&mut problems, &manifests);
        problems.extend(translated.problems.iter().cloned());
        let assess = |ingress: &'s MigratedIngress| {
            let (_, annotations) = read_annotations(&ingress.meta, &source.controller);
            let object = format!("Ingress/{}", ingress.name());
            let prefix = format!("{}/", source.controller.policy.prefix);
            let mut findings: Vec<MigrationFinding> =
                annotations.into_iter().map(|one| annotation_finding(&prefix, one)).collect();
            for problem in problems.iter().filter(|one| one.object == object) {
                let name = problem.path.strip_prefix(&prefix);
                // The reader of annotations has judged those that it reports.
                let is_known = |one: &MigrationFinding| Some(&*one.place) == name;
                let finding = object_finding(problem, name, source.is_partial);
                let is_repeated = findings.iter().any(|one| is_known(one) || one.message == finding.message);
                if !is_repeated {
                    findings.push(finding);
                }
            }
            let count = ingress.meta.annotations.keys().filter(|name| name.starts_with(&prefix)).count();
            AssessedIngress { ingress, annotations: count, findings }
        };
        let ingresses: Vec<AssessedIngress<'s>> = source.ingresses.iter().map(assess).collect();
        let is_listed = |problem: &Problem| {
            let name = problem.object.strip_prefix("Ingress/");
            name.is_some_and(|name| ingresses.iter().any(|one| one.ingress.name() == name))
        };
        let unreadable = manifests.unreadable().filter(|problem| !is_listed(problem)).cloned().collect();
        Ok(MigrationAssessment { ingresses, resources: translated.resources, snapshot, defects, unreadable })
    }
}

fn annotation_finding(prefix: &str, problem: AnnotationProblem) -> MigrationFinding {
    let place = problem.annotation.strip_prefix(prefix).unwrap_or(&problem.annotation).to_owned();
    let effect = match problem.consequence {
        AnnotationConsequence::IngressDenied => "; the paths answer 503",
        AnnotationConsequence::HostDenied => "; the host answers 403",
        AnnotationConsequence::IngressRefused => "; the Ingress is not taken",
        _ => "",
    };
    let (verdict, message) = match problem.consequence {
        _ if problem.is_shared => {
            (MigrationVerdict::Same, format!("{}{effect}, as in ingress-nginx", problem.reason))
        }
        AnnotationConsequence::Differs => (MigrationVerdict::Differs, problem.reason),
        AnnotationConsequence::NoEffect => (MigrationVerdict::Same, format!("no effect: {}", problem.reason)),
        _ => (MigrationVerdict::Refused, format!("{}{effect}", problem.reason)),
    };
    MigrationFinding { verdict, place, message, instead: problem.way_over }
}

/// A problem of the translation or the compiler, of an annotation or of another part.
fn object_finding(problem: &Problem, annotation: Option<&str>, is_partial: bool) -> MigrationFinding {
    let mentions_absent = ["does not exist", "is missing", "has no endpoints", "answered 503"]
        .iter()
        .any(|words| problem.message.contains(words));
    // Manifests of an application rarely have its Secrets.
    let verdict = match problem.level {
        _ if is_partial && mentions_absent => MigrationVerdict::Same,
        ProblemLevel::Error => MigrationVerdict::Refused,
        ProblemLevel::Warning if problem.message.ends_with("the path is left out") => {
            MigrationVerdict::Refused
        }
        ProblemLevel::Warning if annotation.is_some() => MigrationVerdict::Differs,
        // ingress-nginx warns of the same: paths that another Ingress has, canaries without a partner.
        ProblemLevel::Warning => MigrationVerdict::Same,
    };
    let unknown =
        if is_partial && mentions_absent { "not judged, since the manifests lack it: " } else { "" };
    let path = annotation.unwrap_or(&problem.path);
    let place = if path.is_empty() { "spec.rules" } else { path }.to_owned();
    MigrationFinding {
        verdict,
        place,
        message: format!("{unknown}{}", problem.message),
        instead: problem.hint.clone(),
    }
}

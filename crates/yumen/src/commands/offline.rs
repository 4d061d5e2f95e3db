//! Compilation of a resource file, or of Kubernetes manifests, without serving it, for offline commands.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use yumen_base::{Problem, ProblemLevel};
use yumen_config::node::StoreKind;
use yumen_config::{NodeConfig, Resource, document};
use yumen_snapshot::compile::Compiler;
use yumen_snapshot::{Snapshot, policy};

use crate::config::compiler;
use crate::diagnostics::SourceText;
use crate::environment;
use crate::kubernetes::{ManifestObjects, ManifestTranslator, TranslatedManifests};
use crate::node::NodeFile;

/// Creates an empty compiler for a node with these settings.
pub(crate) fn compiler(node: &NodeConfig) -> Compiler {
    compiler::new(node, 1, Arc::default(), Arc::default(), Arc::default())
}

/// A parsed and compiled file.
pub(crate) struct CompiledFile {
    pub(crate) source: SourceText,
    pub(crate) resources: Vec<Resource>,
    pub(crate) snapshot: Arc<Snapshot>,
    /// Problems of the document, the compiler, and the tests in the document.
    pub(crate) problems: Vec<Problem>,
}

/// Parses a file into its resources and the problems of the text itself.
pub(crate) fn read(file: &Path) -> anyhow::Result<(SourceText, Vec<Resource>, Vec<Problem>)> {
    let source = SourceText::read(file)?;
    let (resources, mut problems) = document::parse(&source.text, &environment::variable);
    source.locate_and_sort(&mut problems);
    Ok((source, resources, problems))
}

/// Reads and compiles a file as a node with these settings does, and runs its tests.
pub(crate) fn load(file: &Path, node: &NodeFile) -> anyhow::Result<CompiledFile> {
    let node = node.read()?;
    let source = SourceText::read(file)?;
    let (resources, mut problems) = document::parse(&source.text, &environment::variable);
    let mut compiler = compiler(&node);
    let snapshot = compiler.replace_all(resources.clone(), 1).snapshot;
    problems.extend(compiler.problems());
    problems.extend(policy::run(&snapshot, &resources, yumen_proxy::clock::exact()));
    source.locate_and_sort(&mut problems);
    Ok(CompiledFile { source, resources, snapshot, problems })
}

/// Translated and compiled manifests.
pub(crate) struct CompiledManifests {
    pub(crate) manifests: ManifestObjects,
    pub(crate) translated: TranslatedManifests,
    pub(crate) snapshot: Arc<Snapshot>,
    /// Problems of the compiler, by resource.
    pub(crate) defects: Vec<Problem>,
}

/// Reads, translates and compiles manifests as a node with these settings does.
pub(crate) fn load_manifests(paths: &[PathBuf], node: &NodeFile) -> anyhow::Result<CompiledManifests> {
    let mut node = node.read()?;
    // Broken objects close, and paths are read, as on a node of the cluster.
    node.store.kind = StoreKind::Kubernetes;
    let manifests = ManifestObjects::read(paths)?;
    let translated = ManifestTranslator::new(&node).translate(&manifests);
    let mut compiler = compiler(&node);
    let snapshot = compiler.replace_all(translated.resources.clone(), 1).snapshot;
    let defects = compiler.problems();
    Ok(CompiledManifests { manifests, translated, snapshot, defects })
}

impl CompiledManifests {
    /// All problems by Kubernetes object, in the order of the files.
    pub(crate) fn problems(&self) -> Vec<Problem> {
        let mut defects = self.defects.clone();
        self.translated.attribute(&mut defects, &self.manifests);
        let mut problems = self.translated.problems.clone();
        problems.append(&mut defects);
        problems
            .sort_by_key(|problem| problem.place.as_ref().map(|place| (place.file.clone(), place.span.line)));
        problems
    }
}

/// Number of errors among the problems.
pub(crate) fn errors(problems: &[Problem]) -> usize {
    problems.iter().filter(|problem| problem.level == ProblemLevel::Error).count()
}

//! A resource file compiled without serving it: what every command that only asks begins with.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use yumen_base::{Problem, ProblemLevel};
use yumen_config::{NodeConfig, Resource, document};
use yumen_snapshot::compile::Compiler;
use yumen_snapshot::{Snapshot, policy};

use crate::cli::NodeFile;
use crate::compiler;

/// A compiler as a node of this configuration makes it, with nothing in it.
pub(crate) fn compiler(node: &NodeConfig) -> Compiler {
    compiler::new(node, 1, Arc::default(), Arc::default())
}

/// A file that was read and compiled.
pub(crate) struct CompiledFile {
    pub(crate) resources: Vec<Resource>,
    pub(crate) snapshot: Arc<Snapshot>,
    /// Findings of the document, the compiler, and the tests in the document.
    pub(crate) problems: Vec<Problem>,
}

/// Takes a file apart: its resources, and what is wrong with the text itself.
pub(crate) fn read(file: &Path) -> anyhow::Result<(Vec<Resource>, Vec<Problem>)> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(document::parse(&text, &compiler::environment))
}

/// Reads and compiles a file as a node of this configuration does, and runs its tests.
pub(crate) fn load(file: &Path, node: &NodeFile) -> anyhow::Result<CompiledFile> {
    let node = node.read()?;
    let (resources, mut problems) = read(file)?;
    let mut compiler = compiler(&node);
    let snapshot = compiler.replace_all(resources.clone(), 1).snapshot;
    problems.extend(compiler.problems());
    problems.extend(policy::run(&snapshot, &resources, yumen_proxy::clock::exact()));
    Ok(CompiledFile { resources, snapshot, problems })
}

/// How many of these are errors.
pub(crate) fn errors(problems: &[Problem]) -> usize {
    problems.iter().filter(|problem| problem.level == ProblemLevel::Error).count()
}

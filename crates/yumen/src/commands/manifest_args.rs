//! Arguments that select Kubernetes manifests instead of a resource file.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Default, Args)]
pub(crate) struct ManifestArgs {
    /// Read Kubernetes manifests instead, and translate them as the controller does
    #[arg(long, requires = "manifests")]
    kubernetes: bool,
    /// Manifest, or directory of manifests; repeatable
    #[arg(short = 'f', long, value_name = "DIR|FILE", requires = "kubernetes")]
    manifests: Vec<PathBuf>,
}

impl ManifestArgs {
    /// The paths of the manifests; `None` if the command reads a resource file.
    pub(crate) fn paths(&self) -> Option<&[PathBuf]> {
        self.kubernetes.then_some(&self.manifests)
    }
}

//! Manifest files, read and translated without a cluster, for offline commands.

mod document_starts;
mod manifest_files;
mod manifest_members;
mod manifest_translator;
mod placeholder_endpoints;
mod status_findings;
#[cfg(test)]
mod tests;

pub(crate) use manifest_files::{ManifestObjects, read_documents, values_of};
pub(crate) use manifest_translator::{ManifestTranslator, TranslatedManifests};
pub(crate) use placeholder_endpoints::PLACEHOLDER_ADDRESS;

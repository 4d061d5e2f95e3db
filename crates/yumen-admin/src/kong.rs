//! Kong's declarative file as resources of ours, with a report of what could not be carried over exactly.
//!
//! Pure: the text and the environment come in, resources and the report go out. Knows no store and no
//! plugin's code; which plugins run is asked of the caller.

mod certificates;
mod consumers;
mod consumers_and_credentials;
mod document;
mod entity;
mod environment;
mod expression;
mod ids;
mod labels;
mod paths;
mod plugins;
mod precedence;
mod report;
mod routes;
mod rules;
mod scopes;
mod services;
mod streams;
#[cfg(test)]
mod tests;
mod upstreams;

use yumen_config::{Kind, Resource};

pub use report::{ImportFinding, ImportLevel, ImportReport};

/// What an import depends on beside the text.
pub struct ImportContext<'a> {
    /// Finds the value of an environment variable.
    pub environment: &'a dyn Fn(&str) -> Option<String>,
    /// Whether this gateway runs a plugin of this name. One that it does not run is kept in the result
    /// and stays inactive.
    pub runs: &'a dyn Fn(&str) -> bool,
}

/// What a file became.
#[derive(Debug)]
pub struct ImportResult {
    /// The resources, those that others refer to first.
    pub resources: Vec<Resource>,
    /// What is different and what is missing.
    pub report: ImportReport,
}

/// Translates a file of Kong: decK's format or that of the mode without a database.
///
/// # Errors
/// A text that is no YAML or JSON, is no object, or is of a version nobody knows.
pub fn import(text: &str, surroundings: &ImportContext<'_>) -> Result<ImportResult, String> {
    let mut report = ImportReport::default();
    let mut document = document::read(text, surroundings.environment, &mut report)?;
    let certificates = certificates::translate(&mut document, &mut report);
    let upstreams = upstreams::translate(&mut document, &mut report);
    let services = services::translate(&mut document, &upstreams, &certificates, &mut report);
    let people = consumers::translate(&mut document, &mut report);
    let uses = scopes::read(&mut document, &mut report);
    let mut translator = plugins::PluginTranslator::new(&people, surroundings.runs);
    let mut resources = certificates.resources;
    let routes = routes::translate(&mut document, &services, &uses, &mut translator, &mut report);
    resources.extend(routes);
    resources.extend(streams::translate(&mut document, &services, &uses, &mut translator, &mut report));
    resources.extend(services::resources(services, &uses, &mut translator, &mut report));
    resources.extend(consumers::resources(&people, &uses, &mut translator, &mut report));
    resources.extend(rules::resources(&uses, &mut translator, &mut report));
    resources.extend(translator.metadata());
    document.finish(&mut report);
    let place = |resource: &Resource| Kind::ALL.iter().position(|kind| *kind == resource.kind);
    resources.sort_by_key(place);
    Ok(ImportResult { resources, report })
}

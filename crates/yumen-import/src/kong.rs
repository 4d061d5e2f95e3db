//! Conversion of Kong's declarative configuration.

mod certificates;
mod consumer_scopes;
mod consumers;
mod deck;
mod document;
mod entity;
mod environment;
mod expression;
mod guards;
mod ids;
mod imported_consumers;
mod labels;
mod paths;
mod plugins;
mod precedence;
mod protocols;
mod routes;
mod rules;
mod scopes;
mod services;
mod streams;
#[cfg(test)]
mod tests;
mod upstreams;

use yumen_config::{Kind, Resource};

use crate::report::ImportReport;
use crate::{ImportContext, ImportResult};

/// Converts a declarative configuration file: the format of decK, or of Kong's DB-less mode.
///
/// # Errors
/// The text is neither YAML nor JSON, is not an object, or has an unknown `_format_version`.
pub fn import(text: &str, context: &ImportContext<'_>) -> Result<ImportResult, String> {
    let mut report = ImportReport::default();
    let mut document = document::read(text, context.environment, &mut report)?;
    let certificates = certificates::translate(&mut document, &mut report);
    let upstreams = upstreams::translate(&mut document, &mut report);
    let services = services::translate(&mut document, &upstreams, &certificates, &mut report);
    let consumers = consumers::translate(&mut document, &mut report);
    let mut translator = plugins::PluginTranslator::new(&consumers, context.runs);
    let uses = scopes::read(&mut document, &translator, &mut report);
    let mut resources = certificates.resources;
    let routes = routes::translate(&mut document, &services, &uses, &mut translator, &mut report);
    resources.extend(routes);
    resources.extend(streams::translate(&mut document, &services, &uses, &mut translator, &mut report));
    resources.extend(services::resources(services, &uses, &mut translator, &mut report));
    resources.extend(consumers::resources(&consumers, &uses, &mut translator, &mut report));
    resources.extend(rules::resources(&uses, &mut translator, &mut report));
    resources.extend(translator.metadata());
    document.finish(&mut report);
    let position = |resource: &Resource| Kind::ALL.iter().position(|kind| *kind == resource.kind);
    resources.sort_by_key(position);
    Ok(ImportResult { resources, report })
}

//! Further problems of a broken object, so that one attempt shows all of them.
//!
//! A search only: nothing here comes into force.

use serde_json::{Map, Value};
use yumen_base::{Problem, ProblemLevel};
use yumen_config::resource as config;
use yumen_config::resource::is_within;
use yumen_config::{InvalidSettings, Kind, schema};

use super::names::ObjectName;
use super::plugin_settings::PluginOwner;
use super::{Compiler, invalid, references, route};

/// The most problems of one object.
const FAULTS_MAX: usize = 32;

impl Compiler {
    /// The problems of an object beside those `found`.
    pub(super) fn further_problems(&self, name: &ObjectName, json: &str, found: &[Problem]) -> Vec<Problem> {
        let mut value = serde_json::from_str(json).unwrap_or(Value::Null);
        drop(config::take_defects(&mut value));
        let Value::Object(mut written) = value else { return Vec::new() };
        let plugins = written.get("plugins").cloned();
        let mut faults = ObjectProblems { name, found, more: Vec::new() };
        for fault in schema::faults(config::schema_of(name.kind), &Value::Object(written.clone())) {
            faults.add(invalid(name, fault));
        }
        // The rules apply to valid members only.
        for path in faults.paths() {
            written.remove(outermost(&path));
        }
        add_rule_faults(name, &mut written, &mut faults);
        if name.kind == Kind::Routes {
            for fault in route::faults_of_conditions(&written) {
                faults.add(invalid(name, fault));
            }
        }
        for fault in plugins.map(|plugins| self.faults_of_plugins(name, plugins)).into_iter().flatten() {
            faults.add(fault);
        }
        faults.more
    }

    fn faults_of_plugins(&self, name: &ObjectName, plugins: Value) -> Vec<Problem> {
        let owner = PluginOwner::of(name.kind.descriptor().plugins);
        let plugins: Map<String, Value> = serde_json::from_value(plugins).unwrap_or_default();
        let mut faults = self.plugin_builder().build(name, Some(plugins.clone()), owner).problems;
        self.bindings.discard_requests();
        drop(self.context.secrets.take_requested());
        faults.retain(|fault| fault.level == ProblemLevel::Error);
        for fault in &mut faults {
            // The effect on requests is a hint of the first problem of the object.
            let plugin = fault.path.strip_prefix("plugins.").unwrap_or_default();
            fault.hint.take_if(|_| self.context.missing_guard(plugin, owner).is_some());
        }
        for (plugin, settings) in plugins {
            let path = format!("plugins.{plugin}");
            if faults.iter().any(|fault| is_within(&fault.path, &path)) {
                let of_settings = self.faults_of_settings(&plugin, settings, owner);
                faults.extend(of_settings.into_iter().map(|fault| invalid(name, fault.under(&path))));
            }
        }
        faults
    }

    /// The faults of refused settings by the plugin's schema.
    fn faults_of_settings(
        &self,
        plugin: &str,
        mut settings: Value,
        owner: PluginOwner,
    ) -> Vec<InvalidSettings> {
        let Some(registered) = self.context.registry.get(plugin) else { return Vec::new() };
        let is_key = registered.kind.role.is_auth()
            && matches!(owner, PluginOwner::Consumer | PluginOwner::Credential);
        let schema = if is_key { registered.consumer_schema() } else { Some(registered.schema()) };
        let (Some(schema), Some(members)) = (schema, settings.as_object_mut()) else { return Vec::new() };
        members.remove("_meta");
        let mut faults = schema::faults(schema, &settings);
        // The reference is checked in place of its value, which may be valid.
        let is_reference = |fault: &InvalidSettings| references::has_one(&settings[outermost(&fault.path)]);
        faults.retain(|fault| !is_reference(fault));
        faults
    }
}

/// Collects the faults of one object.
struct ObjectProblems<'f> {
    name: &'f ObjectName,
    found: &'f [Problem],
    more: Vec<Problem>,
}

impl ObjectProblems<'_> {
    /// Adds a fault, unless it is known or inside the value of a known one.
    fn add(&mut self, fault: Problem) {
        let covers = |known: &Problem| fault.path.is_empty() || is_within(&known.path, &fault.path);
        let is_new = !self.found.iter().chain(&self.more).any(covers);
        if is_new && self.found.len() + self.more.len() < FAULTS_MAX {
            self.more.push(fault);
        }
    }

    fn paths(&self) -> Vec<String> {
        self.found.iter().chain(&self.more).map(|one| one.path.clone()).collect()
    }
}

/// Adds the faults by the rules beyond the schema. Each round leaves out the member that was refused last.
fn add_rule_faults(name: &ObjectName, written: &mut Map<String, Value>, faults: &mut ObjectProblems<'_>) {
    while let Err(fault) = config::check(name.kind, Value::Object(written.clone())) {
        // A fault of an absent member: one of the members left out before is required.
        if written.remove(outermost(&fault.path)).is_none() {
            break;
        }
        faults.add(invalid(faults.name, fault));
    }
}

fn outermost(path: &str) -> &str {
    path.split(['.', '[']).next().unwrap_or(path)
}

#[cfg(test)]
mod tests;

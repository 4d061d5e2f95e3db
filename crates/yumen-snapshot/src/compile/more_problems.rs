//! What else is wrong with an object whose form was refused, so that all of it is told at once.
//!
//! Only looks; nothing that is found here comes into force.

use serde_json::{Map, Value};
use yumen_base::{Problem, ProblemLevel};
use yumen_config::resource as config;
use yumen_config::resource::is_within;
use yumen_config::{InvalidSettings, Kind, schema};

use super::settings::PluginOwner;
use super::{Compiler, ObjectName, invalid, references, route};

/// At most so many faults of one object are told.
const FAULTS_MAX: usize = 32;

impl Compiler {
    /// The faults behind those found.
    pub(super) fn further(&self, name: &ObjectName, json: &str, found: &[Problem]) -> Vec<Problem> {
        let mut value = serde_json::from_str(json).unwrap_or(Value::Null);
        drop(config::take_defects(&mut value));
        let Value::Object(mut written) = value else { return Vec::new() };
        let plugins = written.get("plugins").cloned();
        let mut faults = ObjectProblems { name, found, more: Vec::new() };
        for fault in schema::faults(config::schema_of(name.kind), &Value::Object(written.clone())) {
            faults.add(invalid(name, fault));
        }
        for path in faults.paths() {
            written.remove(outermost(&path));
        }
        rules(name, &mut written, &mut faults);
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
        let side = PluginOwner::of(name.kind.descriptor().plugins);
        let plugins: Map<String, Value> = serde_json::from_value(plugins).unwrap_or_default();
        let mut faults = self.build_plugins(name, Some(plugins.clone()), side).problems;
        self.forget_asked();
        faults.retain(|fault| fault.level == ProblemLevel::Error);
        for fault in &mut faults {
            // The first problem of the object tells what becomes of requests.
            let plugin = fault.path.strip_prefix("plugins.").unwrap_or_default();
            fault.hint.take_if(|_| self.missing_guard(plugin, side).is_some());
        }
        for (plugin, settings) in plugins {
            let path = format!("plugins.{plugin}");
            if faults.iter().any(|fault| is_within(&fault.path, &path)) {
                let of_settings = self.faults_of_settings(&plugin, settings, side);
                faults.extend(of_settings.into_iter().map(|fault| invalid(name, fault.under(&path))));
            }
        }
        faults
    }

    /// What the schema finds wrong with settings that were refused, as they are written.
    fn faults_of_settings(
        &self,
        plugin: &str,
        mut settings: Value,
        side: PluginOwner,
    ) -> Vec<InvalidSettings> {
        let Some(registered) = self.registry.get(plugin) else { return Vec::new() };
        let is_key =
            registered.kind.is_auth && matches!(side, PluginOwner::Consumer | PluginOwner::Credential);
        let schema = if is_key { registered.consumer_schema() } else { Some(registered.schema()) };
        let (Some(schema), Some(members)) = (schema, settings.as_object_mut()) else { return Vec::new() };
        members.remove("_meta");
        let mut faults = schema::faults(schema, &settings);
        // What a reference leads to may be in order.
        let is_read = |fault: &InvalidSettings| references::has_one(&settings[outermost(&fault.path)]);
        faults.retain(|fault| !is_read(fault));
        faults
    }
}

/// What is wrong with one object.
struct ObjectProblems<'f> {
    name: &'f ObjectName,
    found: &'f [Problem],
    more: Vec<Problem>,
}

impl ObjectProblems<'_> {
    /// Notes a fault that is neither known nor comes of one that is.
    fn add(&mut self, fault: Problem) {
        let is_of = |known: &Problem| fault.path.is_empty() || is_within(&known.path, &fault.path);
        let is_news = !self.found.iter().chain(&self.more).any(is_of);
        if is_news && self.found.len() + self.more.len() < FAULTS_MAX {
            self.more.push(fault);
        }
    }

    fn paths(&self) -> Vec<String> {
        self.found.iter().chain(&self.more).map(|one| one.path.clone()).collect()
    }
}

/// What breaks rules no schema says, when each setting that was refused is left out.
fn rules(name: &ObjectName, written: &mut Map<String, Value>, faults: &mut ObjectProblems<'_>) {
    while let Err(fault) = config::check(name.kind, Value::Object(written.clone())) {
        // What was left out is missing now.
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

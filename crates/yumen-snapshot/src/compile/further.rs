//! What else is wrong with an object whose form was refused, so that all of it is told at once.
//!
//! Only looks; nothing that is found here comes into force.

use serde_json::Value;
use yumen_base::{Level, Problem};
use yumen_config::Kind;
use yumen_config::resource as config;

use super::settings::Side;
use super::{Compiler, Name, invalid};

/// At most so many faults of one object are looked for.
const FAULTS_MAX: usize = 16;

impl Compiler {
    /// The faults behind those found: what remains when each setting that was refused is left out.
    pub(super) fn further(&self, name: &Name, json: &str, found: &[Problem]) -> Vec<Problem> {
        let Ok(mut value) = serde_json::from_str(json) else { return Vec::new() };
        drop(config::take_defects(&mut value));
        let is_left_out: Vec<bool> = found.iter().map(|one| leave_out(&mut value, &one.path)).collect();
        let mut faults = Vec::new();
        let mut goes_on = is_left_out.contains(&true);
        while goes_on && faults.len() < FAULTS_MAX {
            match config::check(name.kind, value.clone()) {
                Ok(()) => {
                    faults.extend(self.faults_of_plugins(name, &value));
                    break;
                }
                // What was left out is missing now.
                Err(fault) if value.get(outermost(&fault.path)).is_none() => break,
                Err(fault) => {
                    goes_on = leave_out(&mut value, &fault.path);
                    faults.push(invalid(name, fault));
                }
            }
        }
        faults
    }

    fn faults_of_plugins(&self, name: &Name, value: &Value) -> Vec<Problem> {
        let bears_plugins = matches!(name.kind, Kind::Routes | Kind::Services);
        let plugins = value.get("plugins").filter(|_| bears_plugins);
        let plugins = plugins.and_then(|plugins| serde_json::from_value(plugins.clone()).ok());
        let mut faults = self.build_plugins(name, plugins, Side::Traffic).problems;
        self.forget_asked();
        faults.retain(|fault| fault.level == Level::Error);
        faults
    }
}

/// Takes the outermost setting of a path out of an object; whether it was there.
fn leave_out(value: &mut Value, path: &str) -> bool {
    value.as_object_mut().is_some_and(|object| object.remove(outermost(path)).is_some())
}

fn outermost(path: &str) -> &str {
    path.split(['.', '[']).next().unwrap_or(path)
}

#[cfg(test)]
mod tests;

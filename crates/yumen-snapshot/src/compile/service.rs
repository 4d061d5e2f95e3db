//! Services: settings that routes and stream routes are linked to.

use std::sync::Arc;

use yumen_base::Problem;
use yumen_config::decode;
use yumen_config::resource as config;

use super::names::ObjectName;
use super::plugin_settings::PluginOwner;
use super::plugins::{PluginSet, metadata_of};
use super::route::lower_case;
use super::target::StagedTarget;
use super::{Compiler, StageResult, invalid, not_in_force, suspicious_values, upstream};

/// A service, as routes are linked to it.
#[derive(Debug)]
pub(super) struct StagedService {
    pub(super) name: Box<str>,
    /// The hosts of routes without their own.
    pub(super) hosts: Arc<[Box<str>]>,
    pub(super) plugins: PluginSet,
    pub(super) target: StagedTarget,
    pub(super) enable_websocket: Option<bool>,
}

impl StagedService {
    /// The objects that the service depends on.
    fn references(&self) -> impl Iterator<Item = ObjectName> {
        self.target.references().chain(metadata_of(&self.plugins.entries))
    }
}

impl Compiler {
    pub(super) fn stage_service(&mut self, name: &ObjectName, json: &str) -> StageResult {
        let mut written: config::ServiceSpec = decode(json).map_err(|error| vec![invalid(name, error)])?;
        if written.script.is_some() {
            return Err(vec![Problem::error(name.to_string(), "script", "Lua scripts are not supported")]);
        }
        let built = self.plugin_builder().build(name, written.plugins.take(), PluginOwner::Traffic);
        if built.failed {
            return Err(built.problems);
        }
        let mut problems = built.problems;
        problems.extend(upstream::ignored_proxy_protocol(
            name,
            "upstream.proxy_protocol",
            written.upstream.as_ref(),
        ));
        problems.extend(suspicious_values::of_service(name, &written));
        problems.extend(suspicious_values::of_target(
            name,
            written.upstream.as_ref(),
            written.upstream_id.is_some(),
        ));
        problems.extend(upstream::unserved_scheme(name, "upstream.scheme", written.upstream.as_ref()));
        problems.extend(not_in_force::of_upstream(name, "upstream", written.upstream.as_ref()));
        let target = self.stage_target(name, written.upstream.take(), written.upstream_id.take(), None)?;
        self.unlink_service(name);
        let staged = StagedService {
            name: written.name.unwrap_or_default().into(),
            hosts: lower_case(written.hosts.iter().flatten()),
            plugins: PluginSet::new(built.entries.into(), &self.context.empty_chain),
            target,
            enable_websocket: written.enable_websocket,
        };
        self.references.add_all(staged.references(), name);
        self.staged.services.insert(name.id.clone(), staged);
        Ok(problems)
    }

    fn unlink_service(&mut self, name: &ObjectName) {
        if let Some(removed) = self.staged.services.remove(&name.id) {
            self.references.remove_all(removed.references(), name);
        }
    }

    pub(super) fn remove_service(&mut self, name: &ObjectName) {
        self.unlink_service(name);
        self.remove_upstream(name);
    }
}

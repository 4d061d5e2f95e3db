//! `client-control`: limits the size of request bodies.

use schemars::JsonSchema;
use serde::Deserialize;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{
    AccessRole, DryRunResult, Exchange, PhaseSet, Plugin, PluginBuildContext, PluginFactory, Step,
};

/// Settings of `client-control`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ClientControlSettings {
    /// Largest request body in bytes; 0 means no limit.
    max_body_size: Option<u64>,
}

/// The limit in bytes; 0 disables the node's limit, `None` leaves it in place.
#[derive(Debug)]
pub(crate) struct ClientControl(Option<u64>);

impl PluginFactory for ClientControl {
    const NAME: &'static str = "client-control";
    const PRIORITY: i32 = 22000;
    const ROLE: AccessRole = AccessRole::Guard;
    type Config = ClientControlSettings;

    fn build(config: ClientControlSettings, _: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        Ok(ClientControl(config.max_body_size))
    }
}

impl Plugin for ClientControl {
    fn phases(&self) -> PhaseSet {
        PhaseSet::REWRITE
    }

    fn rewrite<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        let Some(bytes_max) = self.0 else { return Step::Continue };
        ex.body.bytes_max = self.0;
        // A body that was already read for a variable is checked here, since nothing checks it later.
        match usize::try_from(bytes_max) {
            Ok(bytes_max) if bytes_max != 0 && ex.body.buffered.is_some() && ex.lacks_body(bytes_max) => {
                Step::NeedBody { bytes_max }
            }
            _ => Step::Continue,
        }
    }

    fn dry_run(&self, phase: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        DryRunResult::by_running(self, phase, ex)
    }
}

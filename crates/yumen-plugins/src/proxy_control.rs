//! `proxy-control`: accepted and ignored. Bodies of requests always stream through bounded buffers.

use schemars::JsonSchema;
use serde::Deserialize;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{PhaseSet, Plugin, PluginBuildContext, PluginFactory};

/// Settings of `proxy-control`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ProxyControlSettings {
    /// Taken and without effect: Yumen streams requests as they come.
    #[serde(default = "default_setting")]
    #[expect(dead_code, reason = "part of the contract")]
    request_buffering: bool,
}

fn default_setting() -> bool {
    true
}

/// The plugin.
#[derive(Debug)]
pub(crate) struct ProxyControl;

impl PluginFactory for ProxyControl {
    const NAME: &'static str = "proxy-control";
    const PRIORITY: i32 = 21990;
    type Config = ProxyControlSettings;

    fn build(_: ProxyControlSettings, _: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        Ok(ProxyControl)
    }
}

impl Plugin for ProxyControl {
    fn phases(&self) -> PhaseSet {
        PhaseSet::NONE
    }
}

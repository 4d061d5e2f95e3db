//! `proxy-buffering`: accepted and ignored. Bodies of responses always stream through bounded buffers.

use schemars::JsonSchema;
use serde::Deserialize;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{PhaseSet, Plugin, PluginBuildContext, PluginFactory};

/// Settings of `proxy-buffering`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ProxyBufferingSettings {
    /// Taken and without effect: Yumen streams answers as they come.
    #[serde(default = "default_setting")]
    #[expect(dead_code, reason = "part of the contract")]
    disable_proxy_buffering: bool,
}

fn default_setting() -> bool {
    false
}

/// The plugin.
#[derive(Debug)]
pub(crate) struct ProxyBuffering;

impl PluginFactory for ProxyBuffering {
    const NAME: &'static str = "proxy-buffering";
    const PRIORITY: i32 = 21991;
    type Config = ProxyBufferingSettings;

    fn build(_: ProxyBufferingSettings, _: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        Ok(ProxyBuffering)
    }
}

impl Plugin for ProxyBuffering {
    fn phases(&self) -> PhaseSet {
        PhaseSet::NONE
    }
}

//! `proxy-control`: accepted for compatibility, without effect. Request bodies stream through bounded
//! buffers, unless another plugin needs them.

use schemars::JsonSchema;
use serde::Deserialize;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{PhaseSet, Plugin, PluginBuildContext, PluginFactory};

/// Settings of `proxy-control`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ProxyControlSettings {
    /// Accepted without effect: Yumen always streams requests.
    #[serde(default = "default_setting")]
    #[expect(dead_code, reason = "part of the contract")]
    request_buffering: bool,
}

fn default_setting() -> bool {
    true
}

/// The plugin runs in no phase.
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

//! `real-ip`: sets the client address from a field, an argument or a cookie.

use schemars::JsonSchema;
use serde::Deserialize;
use yumen_base::IpSet;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::real_ip::RealIpFinder as Finder;
use yumen_plugin::{DryRunResult, Exchange, PhaseSet, Plugin, PluginBuildContext, PluginFactory, Step};

use crate::ip_restriction::AddressEntry;

/// Settings of `real-ip`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct RealIpSettings {
    /// The variable that holds the address: `http_x_real_ip`, `arg_realip`, `cookie_realip`. Of the lists
    /// `http_x_forwarded_for` and `http_forwarded` the last address counts. `Forwarded` is there only from the
    /// node's `trusted_addresses`, and `X-Forwarded-For` too where those are set.
    #[schemars(length(min = 1))]
    source: String,
    /// Peers that are believed, addresses and CIDR blocks; without it, all are.
    #[schemars(length(min = 1))]
    trusted_addresses: Option<Vec<AddressEntry>>,
    /// Whether the trusted addresses at the end of a list are stepped over.
    #[serde(default)]
    recursive: bool,
}

/// The plugin.
#[derive(Debug)]
pub(crate) struct RealIp(Finder);

impl PluginFactory for RealIp {
    const NAME: &'static str = "real-ip";
    const PRIORITY: i32 = 23000;
    type Config = RealIpSettings;

    fn build(config: RealIpSettings, _: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        let parse = |list: Vec<AddressEntry>| {
            IpSet::parse(list.iter().map(AddressEntry::as_str)).map_err(InvalidSettings::new)
        };
        let trusted = config.trusted_addresses.map(parse).transpose()?;
        Ok(RealIp(Finder::new(&config.source, trusted, config.recursive)))
    }
}

impl Plugin for RealIp {
    fn phases(&self) -> PhaseSet {
        PhaseSet::REWRITE
    }

    fn rewrite<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        self.0.apply(ex);
        Step::Continue
    }

    fn dry_run(&self, phase: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        DryRunResult::by_running(self, phase, ex)
    }
}

#[cfg(test)]
mod tests;

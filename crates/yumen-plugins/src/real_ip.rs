//! `real-ip`: takes the client's address from a field, an argument or a cookie.

use schemars::JsonSchema;
use serde::Deserialize;
use yumen_base::IpSet;
use yumen_config::schema::Invalid;
use yumen_plugin::real_ip::RealIp as Finder;
use yumen_plugin::{Configure, Exchange, Foreseen, Phases, Plugin, Setup, Step};

use crate::ip_restriction::Entry;

/// Settings of `real-ip`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Config {
    /// The variable that holds the address: `http_x_real_ip`, `arg_realip`, `cookie_realip`. Of the lists
    /// `http_x_forwarded_for` and `http_forwarded` the last address counts. `Forwarded` is there only from the
    /// node's `trusted_addresses`, and `X-Forwarded-For` too where those are set.
    #[schemars(length(min = 1))]
    source: String,
    /// Peers that are believed, addresses and CIDR blocks; without it, all are.
    #[schemars(length(min = 1))]
    trusted_addresses: Option<Vec<Entry>>,
    /// Whether the trusted addresses at the end of a list are stepped over.
    #[serde(default)]
    recursive: bool,
}

/// The plugin.
#[derive(Debug)]
pub(crate) struct RealIp(Finder);

impl Configure for RealIp {
    const NAME: &'static str = "real-ip";
    const PRIORITY: i32 = 23000;
    type Config = Config;

    fn build(config: Config, _: &Setup<'_>) -> Result<Self, Invalid> {
        let parse = |list: Vec<Entry>| IpSet::parse(list.iter().map(Entry::as_str)).map_err(Invalid::new);
        let trusted = config.trusted_addresses.map(parse).transpose()?;
        Ok(RealIp(Finder::new(&config.source, trusted, config.recursive)))
    }
}

impl Plugin for RealIp {
    fn phases(&self) -> Phases {
        Phases::REWRITE
    }

    fn rewrite<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        self.0.apply(ex);
        Step::Continue
    }

    fn foresee(&self, phase: Phases, ex: &mut Exchange<'_>) -> Foreseen {
        Foreseen::by_running(self, phase, ex)
    }
}

#[cfg(test)]
mod tests;

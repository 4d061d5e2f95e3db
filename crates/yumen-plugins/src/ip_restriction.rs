//! `ip-restriction`: admits or refuses clients by address.

use schemars::JsonSchema;
use serde::Deserialize;
use yumen_base::IpSet;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{
    AccessRole, DryRunResult, Exchange, LocalResponse, PhaseSet, Plugin, PluginBuildContext, PluginFactory,
    ServedTraffic, Step,
};

#[cfg(test)]
mod tests;

/// Settings of `ip-restriction`.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(extend("oneOf" = [{"required": ["whitelist"]}, {"required": ["blacklist"]}]))]
pub(crate) struct IpRestrictionSettings {
    /// Addresses and CIDR blocks that are admitted; all others are refused.
    #[schemars(length(min = 1))]
    pub whitelist: Option<Vec<AddressEntry>>,
    /// Addresses and CIDR blocks that are refused.
    #[schemars(length(min = 1))]
    pub blacklist: Option<Vec<AddressEntry>>,
    /// Message in the body of the refusal.
    #[serde(default = "message")]
    #[schemars(length(min = 1, max = 1024))]
    pub message: String,
    /// Status of the refusal.
    #[serde(default = "response_code")]
    #[schemars(range(min = 403, max = 404))]
    pub response_code: u16,
}

fn message() -> String {
    "Your IP address is not allowed".to_owned()
}

fn response_code() -> u16 {
    403
}

const OCTET: &str = r"([0-9]|[1-9][0-9]|1[0-9]{2}|2[0-4][0-9]|25[0-5])";

/// An IP address or a CIDR block.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct AddressEntry(String);

impl AddressEntry {
    /// The text from the configuration.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl JsonSchema for AddressEntry {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Entry".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let v4_block = format!(r"^{OCTET}\.{OCTET}\.{OCTET}\.{OCTET}/([12]?[0-9]|3[0-2])$");
        let v6_block = r"^([a-fA-F0-9]{0,4}:){1,8}(:[a-fA-F0-9]{0,4}){0,8}([a-fA-F0-9]{0,4})?/[0-9]{1,3}$";
        schemars::json_schema!({"anyOf": [
            {"title": "IPv4", "type": "string", "format": "ipv4"},
            {"title": "IPv4/CIDR", "type": "string", "pattern": v4_block},
            {"title": "IPv6", "type": "string", "format": "ipv6"},
            {"title": "IPv6/CIDR", "type": "string", "pattern": v6_block},
        ]})
    }
}

/// The compiled settings.
#[derive(Debug)]
pub(crate) struct IpRestriction {
    addresses: IpSet,
    /// Whether the list is a blacklist.
    refuses: bool,
    message: Box<str>,
    response_code: u16,
}

impl PluginFactory for IpRestriction {
    const NAME: &'static str = "ip-restriction";
    const PRIORITY: i32 = 3000;
    const ROLE: AccessRole = AccessRole::Guard;
    const SERVES: ServedTraffic = ServedTraffic::Both;
    type Config = IpRestrictionSettings;

    fn build(
        config: IpRestrictionSettings,
        _setup: &PluginBuildContext<'_>,
    ) -> Result<Self, InvalidSettings> {
        let (list, refuses) = match (&config.whitelist, &config.blacklist) {
            (Some(list), None) => (list, false),
            (None, Some(list)) => (list, true),
            _ => return Err(InvalidSettings::new("exactly one of whitelist and blacklist is needed")),
        };
        let addresses = IpSet::parse(list.iter().map(AddressEntry::as_str)).map_err(InvalidSettings::new)?;
        let message = config.message.into();
        Ok(IpRestriction { addresses, refuses, message, response_code: config.response_code })
    }
}

impl Plugin for IpRestriction {
    fn phases(&self) -> PhaseSet {
        PhaseSet::ACCESS
    }

    fn access<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        // The address that `real-ip` found, if it is configured.
        if self.addresses.contains(ex.client.ip) != self.refuses {
            return Step::Continue;
        }
        Step::Respond(LocalResponse::message(self.response_code, &self.message))
    }

    fn dry_run(&self, phase: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        DryRunResult::by_running(self, phase, ex)
    }
}

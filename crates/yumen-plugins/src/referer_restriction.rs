//! `referer-restriction`: admits or refuses requests by the host in their `Referer` field.

use schemars::JsonSchema;
use serde::Deserialize;
use yumen_config::schema::InvalidSettings;
use yumen_http::KnownField;
use yumen_plugin::{
    AccessRole, DryRunResult, Exchange, LocalResponse, PhaseSet, Plugin, PluginBuildContext, PluginFactory,
    Step,
};

/// Settings of `referer-restriction`.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(extend("oneOf" = [{"required": ["whitelist"]}, {"required": ["blacklist"]}]))]
pub(crate) struct RefererRestrictionSettings {
    /// Whether requests with a missing or malformed `Referer` pass.
    #[serde(default)]
    bypass_missing: bool,
    /// Hosts that are admitted, all others are refused; `*.example.com` matches all subdomains.
    #[schemars(length(min = 1), inner(regex(pattern = r"^\*$|^\*?[0-9a-zA-Z-._\[\]:]+$")))]
    whitelist: Option<Vec<String>>,
    /// Hosts that are refused.
    #[schemars(length(min = 1), inner(regex(pattern = r"^\*$|^\*?[0-9a-zA-Z-._\[\]:]+$")))]
    blacklist: Option<Vec<String>>,
    /// Message in the body of the refusal.
    #[serde(default = "message")]
    #[schemars(length(min = 1, max = 1024))]
    message: String,
}

fn message() -> String {
    "Your referer host is not allowed".to_owned()
}

/// The compiled settings.
#[derive(Debug)]
pub(crate) struct RefererRestriction {
    hosts: Vec<String>,
    /// Entries that begin with `*`, without it.
    suffixes: Vec<String>,
    /// Whether the list is a blacklist.
    refuses: bool,
    bypass_missing: bool,
    refusal: LocalResponse,
}

impl PluginFactory for RefererRestriction {
    const NAME: &'static str = "referer-restriction";
    const PRIORITY: i32 = 2990;
    const ROLE: AccessRole = AccessRole::Guard;
    type Config = RefererRestrictionSettings;

    fn build(
        config: RefererRestrictionSettings,
        _: &PluginBuildContext<'_>,
    ) -> Result<Self, InvalidSettings> {
        let (list, refuses) = match (config.whitelist, config.blacklist) {
            (Some(list), None) => (list, false),
            (None, Some(list)) => (list, true),
            _ => return Err(InvalidSettings::new("exactly one of whitelist and blacklist is needed")),
        };
        let (suffixes, hosts): (Vec<_>, Vec<_>) = list.into_iter().partition(|host| host.starts_with('*'));
        Ok(RefererRestriction {
            hosts,
            suffixes: suffixes.into_iter().map(|host| host[1..].to_owned()).collect(),
            refuses,
            bypass_missing: config.bypass_missing,
            refusal: LocalResponse::message(403, &config.message),
        })
    }
}

impl RefererRestriction {
    fn admits(&self, ex: &Exchange<'_>) -> bool {
        let referer =
            ex.request.fields.known(KnownField::Referer).and_then(|value| std::str::from_utf8(value).ok());
        // As in APISIX, an invalid URL counts as missing.
        let Some(host) = referer.and_then(host_of) else { return self.bypass_missing };
        let is_listed = self.hosts.iter().any(|one| one == host)
            || self.suffixes.iter().any(|suffix| host.ends_with(suffix.as_str()));
        is_listed != self.refuses
    }
}

/// The host of an http or https URL, with or without a scheme.
fn host_of(url: &str) -> Option<&str> {
    let rest = url.strip_prefix("http:").or_else(|| url.strip_prefix("https:")).unwrap_or(url);
    let rest = rest.strip_prefix("//")?;
    let end = match rest.strip_prefix('[') {
        Some(inner) => inner.find(']')? + 2,
        None => rest.find([':', '/', '?', '[', ']']).unwrap_or(rest.len()),
    };
    (end > 0).then(|| &rest[..end])
}

impl Plugin for RefererRestriction {
    fn phases(&self) -> PhaseSet {
        PhaseSet::ACCESS
    }

    fn access<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        if self.admits(ex) { Step::Continue } else { Step::Respond(self.refusal.clone()) }
    }

    fn dry_run(&self, phase: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        DryRunResult::by_running(self, phase, ex)
    }
}

#[cfg(test)]
mod tests;

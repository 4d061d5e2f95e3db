//! `traffic-split`: sends shares of the traffic, or requests that meet conditions, to other upstreams than
//! that of the route.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use yumen_config::resource::{ResourceId, UpstreamSpec, decode_value};
use yumen_config::schema::InvalidSettings;
use yumen_http::Framing;
use yumen_plugin::{
    ConditionExpr, DryRunResult, Exchange, PhaseSet, Plugin, PluginBuildContext, PluginFactory, Step,
    UpstreamSlot,
};

/// Largest request body that conditions can refer to.
const BODY_BYTES_MAX: usize = 1024 * 1024;

/// Settings of `traffic-split`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct TrafficSplitSettings {
    /// Rules; the first one that matches applies.
    #[serde(default)]
    rules: Option<Vec<SplitRuleSettings>>,
}

/// Conditions on requests, and upstreams for them.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct SplitRuleSettings {
    /// Conditions, combined by OR; without them every request matches.
    #[serde(default, rename = "match")]
    matches: Option<Vec<SplitMatch>>,
    /// Upstreams for the requests, by weight.
    #[serde(default = "only_default")]
    #[schemars(length(min = 1, max = 20))]
    weighted_upstreams: Vec<WeightedUpstream>,
}

/// A condition.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct SplitMatch {
    /// Expression over the request.
    vars: Option<Vec<Value>>,
}

/// An upstream and its weight. Without an upstream, the entry means the upstream of the route.
#[derive(Debug, Deserialize, serde::Serialize, JsonSchema)]
#[schemars(inline)]
struct WeightedUpstream {
    /// Id of an upstream object.
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream_id: Option<ResourceId>,
    /// Inline upstream.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("type" = "object"))]
    upstream: Option<Value>,
    /// Weight relative to the other entries.
    #[serde(default = "one")]
    weight: u32,
}

fn one() -> u32 {
    1
}

fn only_default() -> Vec<WeightedUpstream> {
    vec![WeightedUpstream { upstream_id: None, upstream: None, weight: 1 }]
}

/// The compiled settings.
pub(crate) struct TrafficSplit {
    rules: Vec<SplitRule>,
}

/// A compiled rule.
struct SplitRule {
    /// Combined by OR; empty matches every request.
    any_of: Vec<ConditionExpr>,
    choices: Vec<SplitChoice>,
    total: u64,
    /// Distance between two consecutive picks; coprime to `total`.
    stride: u64,
    picks: Arc<AtomicU64>,
}

/// A compiled entry of `weighted_upstreams`.
struct SplitChoice {
    weight: u64,
    goes: SplitTarget,
    label: String,
}

enum SplitTarget {
    /// The upstream of the route.
    Default,
    Upstream(UpstreamSlot),
}

impl PluginFactory for TrafficSplit {
    const NAME: &'static str = "traffic-split";
    const PRIORITY: i32 = 966;
    type Config = TrafficSplitSettings;

    fn build(config: TrafficSplitSettings, setup: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        let rules = config.rules.unwrap_or_default().into_iter().enumerate();
        let rules = rules.map(|(at, rule)| {
            let path = format!("rules[{at}]");
            split(rule, &path, setup)
        });
        Ok(TrafficSplit { rules: rules.collect::<Result<_, _>>()? })
    }
}

fn split(
    rule: SplitRuleSettings,
    path: &str,
    setup: &PluginBuildContext<'_>,
) -> Result<SplitRule, InvalidSettings> {
    let conditions = rule.matches.into_iter().flatten().filter_map(|one| one.vars);
    let parse = |vars: Vec<Value>| {
        ConditionExpr::parse(&Value::Array(vars)).map_err(|message| {
            InvalidSettings::at(
                format!("{path}.match"),
                format!("failed to validate the 'vars' expression: {message}"),
            )
        })
    };
    let any_of = conditions.filter(|vars| !vars.is_empty()).map(parse).collect::<Result<Vec<_>, _>>()?;
    let mut choices = Vec::with_capacity(rule.weighted_upstreams.len());
    for (at, weighted) in rule.weighted_upstreams.into_iter().enumerate() {
        choices.push(choice(weighted, &format!("{path}.weighted_upstreams[{at}]"), setup)?);
    }
    let total = choices.iter().map(|choice| choice.weight).sum();
    let weights: Vec<_> = choices.iter().map(|choice| (&choice.label, choice.weight)).collect();
    // With changed weights the sequence of picks starts again; other changes continue it.
    let name = format!("split {} {path} {weights:?}", setup.owner);
    Ok(SplitRule {
        any_of,
        total,
        stride: stride(total),
        picks: setup.carry.keep(&name, AtomicU64::default),
        choices,
    })
}

fn choice(
    weighted: WeightedUpstream,
    path: &str,
    setup: &PluginBuildContext<'_>,
) -> Result<SplitChoice, InvalidSettings> {
    let weight = weighted.weight.into();
    let default =
        || SplitChoice { weight, goes: SplitTarget::Default, label: "the route's upstream".to_owned() };
    let (slot, label) = match (weighted.upstream_id, weighted.upstream) {
        (Some(id), _) => {
            let id = id.as_str();
            let found = match setup.objects {
                // The settings are only validated, so no upstream is needed.
                None => Some(UpstreamSlot::default()),
                Some(objects) => objects.upstream(id),
            };
            let missing = || {
                let message = format!("upstream {id} does not exist or is broken");
                InvalidSettings::at(format!("{path}.upstream_id"), message)
            };
            (found.ok_or_else(missing)?, format!("upstreams/{id}"))
        }
        (None, Some(written)) => {
            let path = format!("{path}.upstream");
            let under = |invalid: InvalidSettings| invalid.under(&path);
            let written: UpstreamSpec = decode_value(written).map_err(under)?;
            let slot = match setup.objects {
                // The settings are only validated, so no upstream is needed.
                None => UpstreamSlot::default(),
                Some(objects) => objects.inline_upstream(&path, written).map_err(under)?,
            };
            (slot, path)
        }
        (None, None) => return Ok(default()),
    };
    Ok(SplitChoice { weight, goes: SplitTarget::Upstream(slot), label })
}

/// A step, coprime to `total`, that visits every position once and spreads consecutive picks by the golden
/// ratio.
fn stride(total: u64) -> u64 {
    let golden = (total as f64 * 0.618) as u64;
    (golden.max(1)..).find(|step| gcd(*step, total) == 1).unwrap_or(1)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl SplitRule {
    fn holds(&self, ex: &Exchange<'_>) -> bool {
        self.any_of.is_empty() || self.any_of.iter().any(|condition| condition.eval(ex))
    }

    fn pick(&self) -> Option<&SplitChoice> {
        if self.total == 0 {
            return None;
        }
        // One counter for all workers, so that the shares hold over all of them. No other memory depends on
        // it.
        let pick = self.picks.fetch_add(1, Ordering::Relaxed) % self.total;
        let mut position = pick * self.stride % self.total;
        self.choices.iter().find(|choice| {
            let is_here = position < choice.weight;
            // Wraps only at the chosen entry, after which the value is unused.
            position = position.wrapping_sub(choice.weight);
            is_here
        })
    }

    /// The choice that all requests get, if there is only one.
    fn only(&self) -> Option<&SplitChoice> {
        self.choices.iter().find(|choice| choice.weight == self.total)
    }

    fn shares(&self) -> String {
        let mut out = String::new();
        for choice in self.choices.iter().filter(|choice| choice.weight > 0) {
            let share = choice.weight as f64 * 100.0 / self.total as f64;
            let comma = if out.is_empty() { "sends " } else { ", " };
            let _ = write!(out, "{comma}{share:.0} % of such requests to {}", choice.label);
        }
        out
    }
}

impl SplitChoice {
    fn take(&self, ex: &mut Exchange<'_>) {
        if let SplitTarget::Upstream(slot) = &self.goes {
            // A slot that was never filled must not select another upstream by accident.
            ex.upstream.slot = Some(slot.get().unwrap_or(u32::MAX));
        }
    }
}

impl TrafficSplit {
    fn lacks_body(&self, ex: &Exchange<'_>) -> bool {
        let needs = |rule: &SplitRule| rule.any_of.iter().any(ConditionExpr::needs_body);
        ex.body.buffered.is_none() && ex.request.framing != Framing::None && self.rules.iter().any(needs)
    }

    fn rule(&self, ex: &Exchange<'_>) -> Option<&SplitRule> {
        self.rules.iter().find(|rule| rule.holds(ex))
    }
}

impl Plugin for TrafficSplit {
    fn phases(&self) -> PhaseSet {
        PhaseSet::ACCESS
    }

    fn access<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        if self.lacks_body(ex) {
            return Step::NeedBody { bytes_max: BODY_BYTES_MAX };
        }
        if let Some(choice) = self.rule(ex).and_then(SplitRule::pick) {
            choice.take(ex);
        }
        Step::Continue
    }

    fn dry_run(&self, _: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        if self.lacks_body(ex) {
            return DryRunResult::Unknown;
        }
        match self.rule(ex) {
            None => DryRunResult::Continue,
            Some(rule) => match rule.only() {
                Some(choice) => {
                    choice.take(ex);
                    DryRunResult::Continue
                }
                None => DryRunResult::Note(rule.shares().into()),
            },
        }
    }
}

#[cfg(test)]
mod tests;

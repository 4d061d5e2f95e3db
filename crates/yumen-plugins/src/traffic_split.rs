//! `traffic-split`: sends shares of the traffic, or what meets conditions, to other upstreams than the route's.
//!
//! Knows upstreams by their slots only; which one it takes is all it decides.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use yumen_config::resource::{Id, Upstream, decode_value};
use yumen_config::schema::Invalid;
use yumen_http::Framing;
use yumen_plugin::{Configure, Exchange, Expr, Foreseen, Phases, Plugin, Setup, Step, UpstreamSlot};

/// Bodies that conditions look into are read up to this many bytes.
const BODY_BYTES_MAX: usize = 1024 * 1024;

/// Settings of `traffic-split`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// The first rule that matches decides.
    #[serde(default)]
    rules: Option<Vec<Rule>>,
}

/// Which requests, and where they go.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct Rule {
    /// Conditions of which one must hold; none is always.
    #[serde(default, rename = "match")]
    matches: Option<Vec<Match>>,
    /// Where the requests go, by weight.
    #[serde(default = "only_default")]
    #[schemars(length(min = 1, max = 20))]
    weighted_upstreams: Vec<Weighted>,
}

/// A condition.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct Match {
    /// What must hold of the request.
    vars: Option<Vec<Value>>,
}

/// An upstream and its share; the route's own where it names none.
#[derive(Debug, Deserialize, serde::Serialize, JsonSchema)]
#[schemars(inline)]
struct Weighted {
    /// An upstream object.
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream_id: Option<Id>,
    /// An upstream of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("type" = "object"))]
    upstream: Option<Value>,
    /// used to split traffic between different upstreams for plugin configuration
    #[serde(default = "one")]
    weight: u32,
}

fn one() -> u32 {
    1
}

fn only_default() -> Vec<Weighted> {
    vec![Weighted { upstream_id: None, upstream: None, weight: 1 }]
}

/// Splits traffic.
pub(crate) struct TrafficSplit {
    rules: Vec<Split>,
}

/// One rule.
struct Split {
    /// Empty is always.
    any_of: Vec<Expr>,
    choices: Vec<Choice>,
    total: u64,
    /// How far apart two picks in a row are: none of it in common with the total.
    stride: u64,
    picks: Arc<AtomicU64>,
}

/// Where a share goes.
struct Choice {
    weight: u64,
    goes: Goes,
    label: String,
}

enum Goes {
    /// To the route's own upstream.
    Default,
    Upstream(UpstreamSlot),
}

impl Configure for TrafficSplit {
    const NAME: &'static str = "traffic-split";
    const PRIORITY: i32 = 966;
    type Config = Config;

    fn build(config: Config, setup: &Setup<'_>) -> Result<Self, Invalid> {
        let rules = config.rules.unwrap_or_default().into_iter().enumerate();
        let rules = rules.map(|(at, rule)| {
            let path = format!("rules[{at}]");
            split(rule, &path, setup)
        });
        Ok(TrafficSplit { rules: rules.collect::<Result<_, _>>()? })
    }
}

fn split(rule: Rule, path: &str, setup: &Setup<'_>) -> Result<Split, Invalid> {
    let conditions = rule.matches.into_iter().flatten().filter_map(|one| one.vars);
    let parse = |vars: Vec<Value>| {
        Expr::parse(&Value::Array(vars)).map_err(|message| {
            Invalid::at(
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
    let name = format!("split {} {path} {weights:?}", setup.owner);
    Ok(Split {
        any_of,
        total,
        stride: stride(total),
        picks: setup.carry.keep(&name, AtomicU64::default),
        choices,
    })
}

fn choice(weighted: Weighted, path: &str, setup: &Setup<'_>) -> Result<Choice, Invalid> {
    let weight = weighted.weight.into();
    let default = || Choice { weight, goes: Goes::Default, label: "the route's upstream".to_owned() };
    let (slot, label) = match (weighted.upstream_id, weighted.upstream) {
        (Some(id), _) => {
            let id = id.as_str();
            let found = match setup.objects {
                None => Some(UpstreamSlot::default()),
                Some(objects) => objects.upstream(id),
            };
            let missing = || {
                let message = format!("there is no upstream {id} in force");
                Invalid::at(format!("{path}.upstream_id"), message)
            };
            (found.ok_or_else(missing)?, format!("upstreams/{id}"))
        }
        (None, Some(written)) => {
            let path = format!("{path}.upstream");
            let under = |invalid: Invalid| invalid.under(&path);
            let written: Upstream = decode_value(written).map_err(under)?;
            let slot = match setup.objects {
                None => UpstreamSlot::default(),
                Some(objects) => objects.inline_upstream(&path, written).map_err(under)?,
            };
            (slot, path)
        }
        (None, None) => return Ok(default()),
    };
    Ok(Choice { weight, goes: Goes::Upstream(slot), label })
}

/// A step through a cycle that comes to every place once, neighbours far from each other.
fn stride(total: u64) -> u64 {
    let golden = (total as f64 * 0.618) as u64;
    (golden.max(1)..).find(|step| gcd(*step, total) == 1).unwrap_or(1)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl Split {
    fn holds(&self, ex: &Exchange<'_>) -> bool {
        self.any_of.is_empty() || self.any_of.iter().any(|condition| condition.eval(ex))
    }

    fn pick(&self) -> Option<&Choice> {
        if self.total == 0 {
            return None;
        }
        let pick = self.picks.fetch_add(1, Ordering::Relaxed) % self.total;
        let mut place = pick * self.stride % self.total;
        self.choices.iter().find(|choice| {
            let is_here = place < choice.weight;
            place = place.wrapping_sub(choice.weight);
            is_here
        })
    }

    /// The only choice there is, where there is no other.
    fn only(&self) -> Option<&Choice> {
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

impl Choice {
    fn take(&self, ex: &mut Exchange<'_>) {
        if let Goes::Upstream(slot) = &self.goes {
            // A slot that was never filled is no upstream's.
            ex.upstream.instead = Some(slot.get().unwrap_or(u32::MAX));
        }
    }
}

impl TrafficSplit {
    fn lacks_body(&self, ex: &Exchange<'_>) -> bool {
        let needs = |rule: &Split| rule.any_of.iter().any(Expr::needs_body);
        ex.body.is_none() && ex.request.framing != Framing::None && self.rules.iter().any(needs)
    }

    fn rule(&self, ex: &Exchange<'_>) -> Option<&Split> {
        self.rules.iter().find(|rule| rule.holds(ex))
    }
}

impl Plugin for TrafficSplit {
    fn phases(&self) -> Phases {
        Phases::ACCESS
    }

    fn access<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        if self.lacks_body(ex) {
            return Step::NeedBody { bytes_max: BODY_BYTES_MAX };
        }
        if let Some(choice) = self.rule(ex).and_then(Split::pick) {
            choice.take(ex);
        }
        Step::Continue
    }

    fn foresee(&self, _: Phases, ex: &mut Exchange<'_>) -> Foreseen {
        if self.lacks_body(ex) {
            return Foreseen::Unknown;
        }
        match self.rule(ex) {
            None => Foreseen::Continue,
            Some(rule) => match rule.only() {
                Some(choice) => {
                    choice.take(ex);
                    Foreseen::Continue
                }
                None => Foreseen::Says(rule.shares().into()),
            },
        }
    }
}

#[cfg(test)]
mod tests;

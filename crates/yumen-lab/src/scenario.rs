//! Scenarios: load, cases, scaling and traps. Pure: parses text into cases. Independent of any gateway and
//! the generation of load.

mod case_file;
mod settings;

#[cfg(test)]
mod tests;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::record::{ReportView, RunScale};
use crate::threshold::FigureThreshold;
use case_file::CaseFile;
pub use settings::{
    CaseLoad, CaseSettings, ClientSettings, ClientTls, EndpointChanges, GatewayResponder, GatewaySettings,
    GatewayShape, OpenRate, RampSettings,
};

/// Built-in scenarios: name and text.
pub const SHIPPED: &[(&str, &str)] = &[
    ("kong-vs-nginx", include_str!("../scenarios/kong-vs-nginx.yaml")),
    ("dynamic-endpoints", include_str!("../scenarios/dynamic-endpoints.yaml")),
    ("connection-close", include_str!("../scenarios/connection-close.yaml")),
    ("plugin-cost", include_str!("../scenarios/plugin-cost.yaml")),
    ("rate-ramp", include_str!("../scenarios/rate-ramp.yaml")),
    ("route-scale", include_str!("../scenarios/route-scale.yaml")),
    ("tls-handshakes", include_str!("../scenarios/tls-handshakes.yaml")),
    ("config-churn", include_str!("../scenarios/config-churn.yaml")),
    ("idle-connections", include_str!("../scenarios/idle-connections.yaml")),
];

/// A scenario at one scale.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Name; equal to the file name without `.yaml`.
    pub name: String,
    /// Title of one line.
    pub title: String,
    /// Repeated report, such as `R3`.
    pub report: Option<String>,
    /// Description of the report and of this scenario, in paragraphs.
    pub about: Vec<String>,
    /// Adapters in the order of the report; empty for all.
    #[serde(default)]
    pub targets: Vec<String>,
    /// Whether the baseline is measured too.
    #[serde(default)]
    pub direct: bool,
    /// Duration of a round in seconds.
    pub seconds: f64,
    /// Warm-up of a case in seconds, not measured.
    #[serde(default)]
    pub warmup_seconds: f64,
    /// Rounds per case and target.
    pub rounds: usize,
    /// The points before their combination.
    #[serde(skip)]
    space: ParameterSpace,
    /// Traps of the original report.
    pub traps: Vec<ScenarioTrap>,
    /// Views of the scenario.
    pub views: Vec<ReportView>,
    /// Thresholds that make a run fail, such as `p99>5ms`.
    #[serde(default)]
    pub fail_if: Vec<String>,
    /// Text of the file.
    #[serde(skip)]
    pub source: String,
}

/// The parts of a scenario from which its points are combined.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ParameterSpace {
    /// Settings common to all cases.
    settings: Map<String, Value>,
    /// Points that differ in several settings; each may have a `label`.
    cases: Vec<Map<String, Value>>,
    /// Settings with several values each, multiplied with the cases.
    over: Vec<ParameterAxis>,
}

impl ParameterSpace {
    /// Takes these fields out of the document of a scenario.
    fn take_from(document: &mut Map<String, Value>) -> Result<ParameterSpace> {
        let fields = ["settings", "cases", "over"].into_iter();
        let taken: Map<String, Value> =
            fields.filter_map(|name| Some((name.to_owned(), document.remove(name)?))).collect();
        Ok(serde_json::from_value(taken.into())?)
    }
}

/// One setting and its values.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ParameterAxis {
    parameter: String,
    values: Vec<Value>,
}

/// A trap of the original report, its treatment, and its evidence.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScenarioTrap {
    /// Short name.
    pub name: String,
    /// Description of the trap.
    pub what: String,
    /// Treatment by the lab.
    pub answer: String,
    /// Figures of a run that show the trap.
    pub see: Option<TrapEvidence>,
}

/// Figures that show a trap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrapEvidence {
    /// Connections per request.
    Connections,
    /// Upstream connections per request.
    UpstreamConnections,
    /// Bottlenecks by number of rounds.
    Bottlenecks,
    /// TLS version, cipher suite, key, full and resumed handshakes.
    Handshakes,
    /// Number and speed of effective changes.
    Changes,
    /// Errors by class.
    Errors,
    /// Latency from the intended send time, compared with that from the first byte sent.
    Correction,
}

/// One combination of parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct ParameterPoint {
    /// Id, unique in the scenario.
    pub id: String,
    /// Label in reports.
    pub label: String,
    /// Parameters that differ from other points.
    pub parameters: Map<String, Value>,
    /// All settings.
    pub settings: CaseSettings,
}

/// Loads a scenario by name, or from a file with the extension `.yaml` or `.yml`.
pub fn load(name: &str, scale: RunScale) -> Result<Scenario> {
    if name.ends_with(".yaml") || name.ends_with(".yml") {
        let text = std::fs::read_to_string(name).with_context(|| format!("scenario {name}"))?;
        return parse(&text, scale).with_context(|| format!("scenario {name}"));
    }
    let Some((_, text)) = SHIPPED.iter().find(|(shipped, _)| *shipped == name) else {
        let names: Vec<&str> = SHIPPED.iter().map(|(name, _)| *name).collect();
        bail!(
            "scenario \"{name}\": no such name; there are {}, or give a file ending in .yaml",
            names.join(", ")
        );
    };
    parse(text, scale).with_context(|| format!("scenario {name}"))
}

/// Parses and scales a scenario: keys under `quick` or `full` replace those beside them.
pub fn parse(text: &str, scale: RunScale) -> Result<Scenario> {
    let mut document: Map<String, Value> = serde_yaml_ng::from_str(text)?;
    let (quick, full) = (document.remove("quick"), document.remove("full"));
    let overlay = match scale {
        RunScale::Quick => quick,
        RunScale::Normal => None,
        RunScale::Full => full,
    };
    if let Some(overlay) = overlay {
        let Value::Object(overlay) = overlay else { bail!("\"quick\" and \"full\" are maps of fields") };
        merge(&mut document, overlay);
    }
    let space = ParameterSpace::take_from(&mut document)?;
    let mut scenario: Scenario = serde_json::from_value(document.into())?;
    (scenario.space, scenario.source) = (space, text.to_owned());
    if scenario.rounds == 0 || scenario.seconds <= 0.0 {
        bail!("rounds and seconds are more than 0; found {} and {}", scenario.rounds, scenario.seconds);
    }
    for threshold in &scenario.fail_if {
        threshold.parse::<FigureThreshold>().map_err(anyhow::Error::msg)?;
    }
    scenario.points(usize::MAX)?;
    Ok(scenario)
}

/// Merges maps recursively; other values are replaced.
fn merge(into: &mut Map<String, Value>, from: Map<String, Value>) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Value::Object(into)), Value::Object(from)) => merge(into, from),
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}

impl Scenario {
    /// All points in order.
    ///
    /// Points above `workers_max` workers, the number that the machine has processors for, are reduced to
    /// that number. Points that become equal are run once.
    pub fn points(&self, workers_max: usize) -> Result<Vec<ParameterPoint>> {
        let mut combined: Vec<Map<String, Value>> =
            if self.space.cases.is_empty() { vec![Map::new()] } else { self.space.cases.clone() };
        for axis in &self.space.over {
            let with = |base: &Map<String, Value>| {
                let base = base.clone();
                axis.values.iter().map(move |value| {
                    let mut one = base.clone();
                    one.insert(axis.parameter.clone(), value.clone());
                    one
                })
            };
            combined = combined.iter().flat_map(with).collect();
        }
        let mut points: Vec<ParameterPoint> = Vec::new();
        for parameters in combined {
            let point = self.point(parameters, workers_max)?;
            if points.iter().all(|known| known.settings != point.settings) {
                points.push(point);
            }
        }
        Ok(points)
    }

    fn point(&self, mut parameters: Map<String, Value>, workers_max: usize) -> Result<ParameterPoint> {
        let label = match parameters.remove("label") {
            Some(Value::String(label)) => Some(label),
            None => None,
            Some(other) => bail!("label: found {other}, wanted text"),
        };
        let mut all = self.space.settings.clone();
        merge(&mut all, parameters.clone());
        let case = || format!("case {}", describe(&parameters));
        let file: CaseFile = serde_json::from_value(all.into()).with_context(case)?;
        let mut settings = file.settings().with_context(case)?;
        // Reduced here, so that `points` recognizes points that have become equal.
        settings.gateway.workers = settings.gateway.workers.min(workers_max);
        if parameters.contains_key("workers") {
            parameters.insert("workers".to_owned(), settings.gateway.workers.into());
        }
        let (id, label) = self.name_of(&parameters, label);
        Ok(ParameterPoint { id, label, parameters, settings })
    }

    /// Returns the id, and the label followed by the values of the axes.
    fn name_of(&self, parameters: &Map<String, Value>, label: Option<String>) -> (String, String) {
        let axes: Map<String, Value> = parameters
            .iter()
            .filter(|(name, _)| self.space.over.iter().any(|axis| axis.parameter == **name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let name = match label {
            Some(label) if axes.is_empty() => label,
            Some(label) => format!("{label}, {}", describe(&axes)),
            None => describe(parameters),
        };
        let id: String = name
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || ".=".contains(c) { c } else { '-' })
            .collect();
        (id, name)
    }
}

/// Formats parameters as `connections=100, workers=2`.
fn describe(parameters: &Map<String, Value>) -> String {
    let one = |(name, value): (&String, &Value)| match value {
        Value::String(text) => format!("{name}={text}"),
        other => format!("{name}={other}"),
    };
    let text = parameters.iter().map(one).collect::<Vec<_>>().join(", ");
    if text.is_empty() { "all".to_owned() } else { text }
}

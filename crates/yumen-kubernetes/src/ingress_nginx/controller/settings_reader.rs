//! Values of keys and flags with their problems.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;

use serde_json::Value;

use super::ControllerProblem;
use super::types::NodeSetting;
use crate::ingress_nginx::annotations::{parse_networks, parse_switch};
use crate::model::{ClusterKind, ObjectKey};

/// Reads values of one ConfigMap, or of the arguments of a process.
pub(super) struct SettingsReader<'a> {
    values: BTreeMap<&'a str, &'a str>,
    /// Text before names in problems: `--` for flags.
    dashes: &'static str,
    pub(super) problems: Vec<ControllerProblem>,
    pub(super) node: Vec<NodeSetting>,
    /// The first key that protects and cannot be followed.
    pub(super) denial: Option<Arc<str>>,
}

impl<'a> SettingsReader<'a> {
    pub(super) fn new(values: BTreeMap<&'a str, &'a str>, dashes: &'static str) -> SettingsReader<'a> {
        SettingsReader { values, dashes, problems: Vec::new(), node: Vec::new(), denial: None }
    }

    pub(super) fn keys(&self) -> Vec<&'a str> {
        self.values.keys().copied().collect()
    }

    /// A value without spaces around it; an empty one counts as absent.
    pub(super) fn text(&self, key: &str) -> Option<&'a str> {
        self.values.get(key).map(|value| value.trim()).filter(|value| !value.is_empty())
    }

    pub(super) fn shared(&self, key: &str) -> Option<Arc<str>> {
        self.text(key).map(Arc::from)
    }

    pub(super) fn switch(&mut self, key: &str) -> Option<bool> {
        let value = self.text(key)?;
        let switch = parse_switch(value);
        if switch.is_none() {
            self.error(key, format!("{value:?} is neither true nor false"));
        }
        switch
    }

    pub(super) fn number(&mut self, key: &str) -> Option<u32> {
        let value = self.text(key)?;
        let number = value.parse::<u32>().ok();
        if number.is_none() {
            self.error(key, format!("{value:?} is not a whole number"));
        }
        number
    }

    /// Texts separated by commas.
    pub(super) fn list(&self, key: &str) -> Option<Vec<Arc<str>>> {
        let entries = self.text(key)?.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        Some(entries.map(Arc::from).collect())
    }

    /// Networks of a list that does not protect by itself.
    pub(super) fn networks(&mut self, key: &str) -> Option<Vec<Arc<str>>> {
        self.read_networks(key)?.map_err(|reason| self.error(key, reason)).ok()
    }

    /// Networks of a list that admits or refuses clients. Without it every client is refused.
    pub(super) fn guarding_networks(&mut self, key: &str) -> Option<Vec<Arc<str>>> {
        self.read_networks(key)?.map_err(|reason| self.deny(key, reason, None)).ok()
    }

    fn read_networks(&self, key: &str) -> Option<Result<Vec<Arc<str>>, String>> {
        let networks = parse_networks(self.text(key)?);
        Some(networks.map(|networks| networks.into_iter().map(Arc::from).collect()))
    }

    /// An object written as `namespace/name`.
    pub(super) fn reference(&mut self, key: &str, kind: ClusterKind) -> Option<ObjectKey> {
        let value = self.text(key)?;
        match value.split_once('/') {
            Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
                Some(ObjectKey::new(kind, namespace, name))
            }
            _ => {
                self.error(key, format!("{value:?} is not of the form namespace/name"));
                None
            }
        }
    }

    /// A time such as `30s` or a number of seconds, in milliseconds.
    pub(super) fn time_ms(&mut self, key: &str) -> Option<u64> {
        let value = self.text(key)?;
        let unit = value.trim_start_matches(|character: char| character.is_ascii_digit());
        let factor = match unit {
            "ms" => Some(1),
            "" | "s" => Some(1000),
            "m" => Some(60_000),
            "h" => Some(3_600_000),
            "d" => Some(86_400_000),
            _ => None,
        };
        let number = value[..value.len() - unit.len()].parse::<u64>().ok();
        let time = number.zip(factor).and_then(|(number, factor)| number.checked_mul(factor));
        if time.is_none() {
            self.error(key, format!("{value:?} is no time, such as 30s"));
        }
        time
    }

    pub(super) fn set_node(&mut self, key: &str, path: &'static str, value: impl Into<Value>) {
        let key = format!("{}{key}", self.dashes).into();
        self.node.push(NodeSetting { key, path, value: value.into() });
    }

    /// A finding that leaves the rest in force.
    pub(super) fn warn(&mut self, key: &str, message: impl Display, way_over: Option<&str>) {
        self.push(key, false, message, way_over);
    }

    /// An invalid value; the default holds.
    pub(super) fn error(&mut self, key: &str, message: impl Display) {
        self.push(key, true, message, None);
    }

    /// A key that protects and cannot be followed: every host answers 403.
    pub(super) fn deny(&mut self, key: &str, message: impl Display, way_over: Option<&str>) {
        self.push(key, true, format!("{message}: every host answers 403"), way_over);
        self.denial.get_or_insert_with(|| key.into());
    }

    pub(super) fn push(&mut self, key: &str, is_error: bool, message: impl Display, way_over: Option<&str>) {
        self.problems.push(ControllerProblem {
            key: format!("{}{key}", self.dashes).into(),
            is_error,
            message: message.to_string(),
            way_over: way_over.map(str::to_owned),
        });
    }
}

//! Metadata of objects, and label selectors.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

pub(crate) type LabelMap = BTreeMap<Arc<str>, Arc<str>>;

/// Metadata of an object.
///
/// Two versions of an object are equal if they differ only in members that the translation does not read: `version`
/// and `status`, which change with each write of a status, do not count.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ObjectMeta {
    /// Name.
    pub name: Arc<str>,
    /// Namespace; empty for objects without one.
    pub namespace: Arc<str>,
    /// Unique id, which a new object of the same name does not share.
    pub uid: Arc<str>,
    /// Number of the specification, counted by the API server.
    pub generation: i64,
    /// Creation time, in seconds since 1970.
    #[serde(rename = "creationTimestamp", deserialize_with = "seconds")]
    pub created_s: i64,
    /// Labels.
    pub labels: BTreeMap<Arc<str>, Arc<str>>,
    /// Annotations, without those that the translation never reads.
    #[serde(deserialize_with = "annotations")]
    pub annotations: BTreeMap<Arc<str>, Arc<str>>,
    /// The Gateway that controls the object, by `ownerReferences`.
    #[serde(rename = "ownerReferences", deserialize_with = "owning_gateway")]
    pub owner: Option<Box<OwningGateway>>,
    /// Names of the parties that delay the deletion.
    pub finalizers: Box<[Arc<str>]>,
    /// Whether the deletion has begun.
    #[serde(rename = "deletionTimestamp", deserialize_with = "is_present")]
    pub is_deleting: bool,
    /// `resourceVersion`: the precondition of the next write.
    #[serde(rename = "resourceVersion")]
    pub version: Arc<str>,
    /// The observed status as JSON, for the merge with the next one; absent if the object has none.
    #[serde(skip)]
    pub status: Option<Arc<str>>,
}

/// A Gateway in the `ownerReferences` of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwningGateway {
    /// Name, in the namespace of the object.
    pub name: Arc<str>,
    /// Unique id.
    pub uid: Arc<str>,
}

impl PartialEq for ObjectMeta {
    fn eq(&self, other: &ObjectMeta) -> bool {
        self.generation == other.generation
            && self.is_deleting == other.is_deleting
            && self.created_s == other.created_s
            && self.uid == other.uid
            && self.name == other.name
            && self.namespace == other.namespace
            && self.owner == other.owner
            && self.labels == other.labels
            && self.annotations == other.annotations
            && self.finalizers == other.finalizers
    }
}

/// A time by RFC 3339 in seconds since 1970; 0 if it is not one.
fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    Ok(parse_time(&String::deserialize(deserializer)?).unwrap_or_default())
}

/// Reads `2026-11-21T13:40:12Z`, the one form that the API server writes; fractions are cut.
pub(crate) fn parse_time(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    let at = |index: usize, byte: u8| bytes.get(index) == Some(&byte);
    if !(at(4, b'-') && at(7, b'-') && at(10, b'T') && at(13, b':') && at(16, b':') && bytes.ends_with(b"Z"))
    {
        return None;
    }
    let number = |from: usize, to: usize| -> Option<i64> {
        let digits = text.get(from..to)?;
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
    };
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    // Days from the civil date, counted in eras of 400 years that begin on March 1 (Hinnant).
    let shifted_year = if month <= 2 { year - 1 } else { year };
    let era = shifted_year.div_euclid(400);
    let year_of_era = shifted_year - era * 400;
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = era * 146_097 + day_of_era - 719_468;
    Some(days * 86_400 + hour * 3_600 + minute * 60 + second)
}

/// Keeps out the copy of the object that `kubectl apply` stores: it is as large as the object.
fn annotations<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<Arc<str>, Arc<str>>, D::Error> {
    let mut all: BTreeMap<Arc<str>, Arc<str>> = BTreeMap::deserialize(deserializer)?;
    all.remove("kubectl.kubernetes.io/last-applied-configuration");
    Ok(all)
}

/// The controlling owner, if it is a Gateway: others are not read, and objects have many.
fn owning_gateway<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Box<OwningGateway>>, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct WrittenOwner {
        api_version: String,
        kind: String,
        name: Arc<str>,
        uid: Arc<str>,
        controller: bool,
    }
    let owners = Vec::<WrittenOwner>::deserialize(deserializer)?;
    let is_owning = |owner: &WrittenOwner| {
        owner.controller
            && owner.kind == "Gateway"
            && owner.api_version.starts_with("gateway.networking.k8s.io/")
    };
    let owner = owners.into_iter().find(is_owning);
    Ok(owner.map(|owner| Box::new(OwningGateway { name: owner.name, uid: owner.uid })))
}

fn is_present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(!Value::deserialize(deserializer)?.is_null())
}

/// A label selector: all of its requirements must hold. An empty one matches everything.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct LabelSelector {
    pub(crate) match_labels: LabelMap,
    pub(crate) match_expressions: Box<[LabelRequirement]>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct LabelRequirement {
    pub(crate) key: Arc<str>,
    pub(crate) operator: Arc<str>,
    pub(crate) values: Box<[Arc<str>]>,
}

impl LabelSelector {
    /// Whether `labels` meet the selector. An unknown operator matches nothing.
    pub(crate) fn matches(&self, labels: &LabelMap) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|requirement| requirement.holds(labels))
    }
}

impl LabelRequirement {
    fn holds(&self, labels: &LabelMap) -> bool {
        let found = labels.get(&self.key);
        match &*self.operator {
            "In" => found.is_some_and(|value| self.values.contains(value)),
            "NotIn" => !found.is_some_and(|value| self.values.contains(value)),
            "Exists" => found.is_some(),
            "DoesNotExist" => found.is_none(),
            _ => false,
        }
    }
}

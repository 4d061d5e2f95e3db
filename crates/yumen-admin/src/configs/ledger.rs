//! Record of the documents: digest and time of the last one, version of every section.
//!
//! Stored beside the resources and written in the same transaction.

use serde_json::{Map, Value, json};
use yumen_store::{Draft, Revision, StoreState};

use super::items::DocumentSection;
use crate::refusal::ApiRefusal;

const SETTING: &str = "standalone_document";
/// The greatest version that a client may set: beyond 2^53, clients with float numbers cannot distinguish
/// versions. Increments beyond it stay far from overflow.
const VERSION_MAX: u64 = 1 << 53;

/// The version of a section. APISIX accepts every number; a fraction is kept apart, so that large versions still
/// increase by one.
#[derive(Debug, Clone, Copy, Default, PartialEq, PartialOrd)]
pub(super) struct ConfVersion {
    whole: u64,
    fraction: f64,
}

impl ConfVersion {
    /// From a JSON number; `None` if it is negative or beyond `max`.
    fn of(number: &Value, max: u64) -> Option<ConfVersion> {
        let whole = number.as_u64().map(|whole| ConfVersion { whole, fraction: 0.0 });
        let version = whole.or_else(|| {
            let float = number.as_f64().filter(|float| *float >= 0.0 && *float <= max as f64)?;
            Some(ConfVersion { whole: float.trunc() as u64, fraction: float.fract() })
        });
        version.filter(|version| version.whole <= max)
    }

    fn next(self) -> ConfVersion {
        ConfVersion { whole: self.whole.saturating_add(1), ..self }
    }

    /// The JSON number: an integer where there is no fraction.
    pub(super) fn shown(self) -> Value {
        match self.fraction == 0.0 {
            true => json!(self.whole),
            false => json!(self.whole as f64 + self.fraction),
        }
    }
}

/// The ledger as of one state.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct VersionLedger {
    /// Digest of the last document, as its client computed it; empty before the first one.
    pub(super) digest: String,
    /// Time of the last document, in seconds since 1970.
    pub(super) modified_s: u64,
    /// Revision of the last document. A later revision of the store means that single resources were changed.
    pub(super) revision: u64,
    versions: [ConfVersion; DocumentSection::ALL.len()],
}

impl VersionLedger {
    pub(super) fn of(state: &StoreState) -> VersionLedger {
        let saved = state.setting(SETTING).and_then(|text| serde_json::from_str::<Value>(text).ok());
        // A store that never had a document, or an unreadable record: the versions start from zero.
        let Some(saved) = saved else { return VersionLedger::default() };
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        // A stored version beyond the bound leaves no room for increments.
        let endless = ConfVersion { whole: VERSION_MAX, fraction: 0.0 };
        let version = |value: &Value| match value.is_number() {
            true => ConfVersion::of(value, 2 * VERSION_MAX).unwrap_or(endless),
            false => ConfVersion::default(),
        };
        let mut ledger = VersionLedger {
            digest: saved["digest"].as_str().unwrap_or("").to_owned(),
            modified_s: number(&saved["modified_s"]),
            revision: number(&saved["revision"]),
            ..VersionLedger::default()
        };
        for section in DocumentSection::ALL {
            ledger.versions[section.at()] = version(&saved["versions"][section.name()]);
        }
        ledger
    }

    /// Stores the ledger in the draft.
    pub(super) fn keep(&self, draft: &mut Draft) {
        let version = |section: DocumentSection| (section.name().to_owned(), self.version(section).shown());
        let versions: Map<String, Value> = DocumentSection::ALL.into_iter().map(version).collect();
        let saved = json!({
            "digest": self.digest,
            "modified_s": self.modified_s,
            "revision": self.revision,
            "versions": versions,
        });
        draft.set(SETTING, Some(&saved.to_string()));
    }

    pub(super) fn version(&self, section: DocumentSection) -> ConfVersion {
        self.versions[section.at()]
    }

    /// Whether the store still holds the document with this digest.
    pub(super) fn is_in_force(&self, digest: &str, now: Revision) -> bool {
        // A later revision means that single objects were changed, so the document has to be applied again.
        self.digest == digest && self.revision == now.0
    }

    /// The versions after the document: those that it sets, otherwise one more than now.
    pub(super) fn next_versions(
        &self,
        document: &Map<String, Value>,
    ) -> Result<[ConfVersion; DocumentSection::ALL.len()], ApiRefusal> {
        let mut next = self.versions;
        for section in DocumentSection::ALL {
            let key = section.version_key();
            let version = &mut next[section.at()];
            *version = match document.get(&key) {
                // APISIX increments the versions that the document does not set.
                None | Some(Value::Null) => version.next(),
                Some(requested) => read_version(&key, requested, *version).map_err(ApiRefusal::invalid)?,
            };
        }
        Ok(next)
    }

    /// Sets the version of a section, which must not decrease.
    pub(super) fn raise(&mut self, section: DocumentSection, version: ConfVersion) -> Result<(), String> {
        let now = &mut self.versions[section.at()];
        *now = not_below(&section.version_key(), version, *now)?;
        Ok(())
    }
}

fn not_below(key: &str, requested: ConfVersion, now: ConfVersion) -> Result<ConfVersion, String> {
    match requested < now {
        true => Err(too_low(key, now)),
        false => Ok(requested),
    }
}

fn too_low(key: &str, now: ConfVersion) -> String {
    format!("{key} must be greater than or equal to ({})", now.shown())
}

/// Parses a number that is not below the current version.
fn read_version(key: &str, requested: &Value, now: ConfVersion) -> Result<ConfVersion, String> {
    if !requested.is_number() {
        return Err(format!("{key} must be a number"));
    }
    match ConfVersion::of(requested, VERSION_MAX) {
        Some(version) => not_below(key, version, now),
        // Below every version.
        None if requested.as_f64().is_some_and(|float| float < 0.0) => Err(too_low(key, now)),
        None => Err(format!("{key} must be a number, {VERSION_MAX} at most")),
    }
}

/// The version keys of a document whose values are no numbers, as a validation reports them.
pub(super) fn mistyped_version(section: DocumentSection, document: &Map<String, Value>) -> Option<String> {
    let key = section.version_key();
    let written = document.get(&key).filter(|written| !written.is_number() && !written.is_null())?;
    Some(format!("{key} must be a number, got {}", super::lua_type(written)))
}

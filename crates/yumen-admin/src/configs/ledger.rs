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

/// The ledger as of one state.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct VersionLedger {
    /// Digest of the last document, as its client computed it; empty before the first one.
    pub(super) digest: String,
    /// Time of the last document, in seconds since 1970.
    pub(super) modified_s: u64,
    /// Revision of the last document. A later revision of the store means that single resources were changed.
    pub(super) revision: u64,
    versions: [u64; DocumentSection::ALL.len()],
}

impl VersionLedger {
    pub(super) fn of(state: &StoreState) -> VersionLedger {
        let saved = state.setting(SETTING).and_then(|text| serde_json::from_str::<Value>(text).ok());
        // A store that never had a document, or an unreadable record: the versions start from zero.
        let Some(saved) = saved else { return VersionLedger::default() };
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        // A stored version beyond the bound leaves no room for increments.
        let version = |value: &Value| match number(value) {
            endless if endless > 2 * VERSION_MAX => VERSION_MAX,
            version => version,
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
        let version = |section: DocumentSection| (section.name().to_owned(), json!(self.version(section)));
        let versions: Map<String, Value> = DocumentSection::ALL.into_iter().map(version).collect();
        let saved = json!({
            "digest": self.digest,
            "modified_s": self.modified_s,
            "revision": self.revision,
            "versions": versions,
        });
        draft.set(SETTING, Some(&saved.to_string()));
    }

    pub(super) fn version(&self, section: DocumentSection) -> u64 {
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
    ) -> Result<[u64; DocumentSection::ALL.len()], ApiRefusal> {
        let mut next = self.versions;
        for section in DocumentSection::ALL {
            let key = section.version_key();
            let version = &mut next[section.at()];
            *version = match document.get(&key) {
                // APISIX increments the versions that the document does not set.
                None | Some(Value::Null) => version.saturating_add(1),
                Some(requested) => read_version(&key, requested, *version).map_err(ApiRefusal::invalid)?,
            };
        }
        Ok(next)
    }

    /// Sets the version of a section, which must not decrease.
    pub(super) fn raise(&mut self, section: DocumentSection, version: u64) -> Result<(), String> {
        let now = &mut self.versions[section.at()];
        *now = not_below(&section.version_key(), version, *now)?;
        Ok(())
    }
}

fn not_below(key: &str, requested: u64, now: u64) -> Result<u64, String> {
    match requested < now {
        true => Err(format!("{key} must be greater than or equal to ({now})")),
        false => Ok(requested),
    }
}

/// Parses a whole number in any notation that is not below the current version.
fn read_version(key: &str, requested: &Value, now: u64) -> Result<u64, String> {
    let number = requested.as_number().ok_or_else(|| format!("{key} must be a number"))?;
    // `1e3` and `3.0` are whole numbers for clients with one number type.
    let whole = number.as_u64().or_else(|| {
        let float = number.as_f64().filter(|float| float.fract() == 0.0 && *float <= VERSION_MAX as f64)?;
        // A negative number is below every version, and is reported as such.
        (float >= 0.0).then_some(float as u64)
    });
    match whole.filter(|whole| *whole <= VERSION_MAX) {
        Some(whole) => not_below(key, whole, now),
        None if number.as_f64().is_some_and(|float| float < 0.0) => {
            Err(format!("{key} must be greater than or equal to ({now})"))
        }
        None => Err(format!("{key} must be a whole number, {VERSION_MAX} at most")),
    }
}

//! Secret managers, and the values of references to their secrets.
//!
//! A value arrives as an input and stays until a newer one arrives. Knows no protocol of a manager.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use foldhash::fast::RandomState;
use serde_json::Value;
use yumen_config::resource as config;
use yumen_config::resource::decode_value;
use yumen_config::{InvalidSettings, Kind};
use yumen_plugin::{
    FetchDelivery, FetchFormat, FetchRefresh, FetchRequest, FetchSource, FetchedCell, FetchedCells,
    FetchedValue, SecretFetch,
};

use super::names::ObjectName;
use super::references::{self, ReferenceValues, Variables};
use super::tables::{FetchedResult, RequestedFetch, Table};
use super::{Compiler, StageResult, invalid};

/// Seconds between two fetches of a secret, as in APISIX.
const REFRESH_S: u32 = 300;
/// Maximum size of a secret.
const SECRET_BYTES_MAX: usize = 64 * 1024;

/// The value of a secret.
struct FetchedSecret(Box<str>);

impl fmt::Debug for FetchedSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FetchedSecret")
    }
}

/// The format of secrets.
const FORMAT: FetchFormat = FetchFormat { name: "secret", bytes_max: SECRET_BYTES_MAX, parse: parse_secret };

/// An empty value is refused: as a key it would admit every client that sends none.
fn parse_secret(bytes: &[u8]) -> Result<FetchedValue, String> {
    match std::str::from_utf8(bytes) {
        Ok("") => Err("the value is empty".to_owned()),
        Ok(text) => Ok(Arc::new(FetchedSecret(text.into()))),
        Err(_) => Err("the value is no text".to_owned()),
    }
}

/// The value of a reference to a secret.
pub(super) enum SecretValue {
    Text(String),
    /// There is none yet, and a trial does not wait for it.
    Awaited,
}

/// A reference of the object that is being staged.
struct SecretUse {
    manager: ObjectName,
    /// Absent if the manager does not exist.
    fetch: Option<RequestedFetch>,
}

/// Manager and key of a secret.
type SecretName = (Box<str>, Box<str>);

/// A secret that objects refer to.
struct KnownSecret {
    request: Arc<FetchRequest>,
    cell: Arc<FetchedCell>,
    /// The reason of the last failure.
    failure: Option<Box<str>>,
}

/// The managers of the configuration and the secrets in use.
#[derive(Default)]
pub(super) struct SecretTable {
    /// Whether an object without the value of its secret is refused. A trial takes the reference in its place.
    needs_values: bool,
    /// Settings by id, as JSON with references resolved.
    managers: Table<Box<str>>,
    secrets: RefCell<HashMap<SecretName, KnownSecret, RandomState>>,
    /// Uses by the object that is being staged; see `PluginBindings::requested`.
    requested: RefCell<Vec<SecretUse>>,
}

impl SecretTable {
    /// The value that `reference`, the text behind the scheme, stands for. With a path, the use is noted for the object
    /// that is being staged.
    pub(super) fn value(
        &self,
        cells: &FetchedCells,
        reference: &str,
        path: Option<String>,
    ) -> Result<SecretValue, String> {
        let (manager, key) = split(reference)?;
        let name = || ObjectName::new(Kind::Secrets, manager);
        let Some(settings) = self.managers.get(manager) else {
            if path.is_some() {
                self.requested.borrow_mut().push(SecretUse { manager: name(), fetch: None });
            }
            return Err(format!("secret manager {manager} does not exist; create secrets/{manager}"));
        };
        let mut secrets = self.secrets.borrow_mut();
        let known = secrets.get(&(manager.into(), key.into()) as &SecretName);
        let is_current = |known: &&KnownSecret| matches!(&known.request.source, FetchSource::Secret(fetch) if *fetch.settings == **settings);
        let (cell, failure) = match known.filter(is_current) {
            Some(known) => {
                let (request, cell) = (known.request.clone(), known.cell.clone());
                self.note(name, request, &cell, path);
                (cell, known.failure.clone())
            }
            None => {
                let request = request(manager, settings, key);
                let cell = cells.get(&request);
                // Under new settings of the manager, the last value stays until the manager answers.
                if let Some(last) =
                    known.and_then(|known| known.cell.load()).filter(|_| cell.generation() == 0)
                {
                    cell.store(last);
                }
                if path.is_some() {
                    self.note(name, request.clone(), &cell, path);
                    let secret = KnownSecret { request, cell: cell.clone(), failure: None };
                    secrets.insert((manager.into(), key.into()), secret);
                }
                (cell, None)
            }
        };
        let value = cell.load();
        let text = value.as_ref().and_then(|value| value.downcast_ref::<FetchedSecret>());
        match (text, failure) {
            (Some(text), _) => Ok(SecretValue::Text(text.0.to_string())),
            (None, _) if !self.needs_values => Ok(SecretValue::Awaited),
            (None, Some(failure)) => Err(format!("{manager} has no value for it: {failure}")),
            (None, None) => Err(format!("{manager} has not answered yet")),
        }
    }

    fn note(
        &self,
        manager: impl Fn() -> ObjectName,
        request: Arc<FetchRequest>,
        cell: &Arc<FetchedCell>,
        path: Option<String>,
    ) {
        let Some(path) = path else { return };
        let fetch = Some(RequestedFetch { request, cell: cell.clone(), path: path.into() });
        self.requested.borrow_mut().push(SecretUse { manager: manager(), fetch });
    }

    /// Refuses objects whose secrets have no value.
    pub(super) fn require_values(&mut self) {
        self.needs_values = true;
    }

    /// The managers and secrets that the object in staging refers to.
    pub(super) fn take_requested(&self) -> (Vec<ObjectName>, Vec<RequestedFetch>) {
        let requested = self.requested.take();
        let mut fetches = Vec::new();
        let managers = requested.into_iter().map(|one| {
            fetches.extend(one.fetch);
            one.manager
        });
        (managers.collect(), fetches)
    }

    /// Notes the result of a fetch before the users are staged again.
    pub(super) fn note_result(&self, request: &FetchRequest, result: &FetchedResult) {
        if let FetchSource::Secret(fetch) = &request.source
            && let Some(known) = self.secrets.borrow_mut().get_mut(&secret_name(fetch))
            && *known.request == *request
        {
            known.failure = result.failure.as_ref().map(|failure| failure.message.clone());
        }
    }

    /// Forgets a secret that no object refers to any more.
    pub(super) fn forget(&self, request: &FetchRequest) {
        let FetchSource::Secret(fetch) = &request.source else { return };
        let mut secrets = self.secrets.borrow_mut();
        // Under new settings of the manager, the name has another request.
        if secrets.get(&secret_name(fetch)).is_some_and(|known| *known.request == *request) {
            secrets.remove(&secret_name(fetch));
        }
    }
}

fn secret_name(fetch: &SecretFetch) -> SecretName {
    (fetch.manager.as_str().into(), fetch.key.as_str().into())
}

fn request(manager: &str, settings: &str, key: &str) -> Arc<FetchRequest> {
    let fetch = SecretFetch { manager: manager.to_owned(), settings: settings.into(), key: key.to_owned() };
    Arc::new(FetchRequest {
        source: FetchSource::Secret(Box::new(fetch)),
        format: FORMAT,
        delivery: FetchDelivery::Rebuild,
        refresh: FetchRefresh { interval_s: REFRESH_S },
    })
}

/// Manager and key of a reference: `vault/1` and `jack/auth-key`.
fn split(reference: &str) -> Result<(&str, &str), String> {
    let malformed = || "write $secret://MANAGER/ID/KEY, such as $secret://vault/1/jack/key".to_owned();
    let (kind, rest) = reference.split_once('/').ok_or_else(malformed)?;
    let (id, key) = rest.split_once('/').ok_or_else(malformed)?;
    if config::secret_schema(kind).is_none() {
        return Err(format!("unknown secret manager {kind}; there are vault, aws and gcp"));
    }
    match id.is_empty() || key.is_empty() {
        true => Err(malformed()),
        false => Ok((&reference[..kind.len() + 1 + id.len()], key)),
    }
}

impl Compiler {
    pub(super) fn stage_secret(&mut self, name: &ObjectName, json: &str) -> StageResult {
        let settings = settings(json, &self.context.env.variables);
        let settings = settings.map_err(|error| vec![invalid(name, error)])?;
        self.context.secrets.managers.insert(name.id.clone(), settings.to_string().into());
        Ok(Vec::new())
    }

    pub(super) fn remove_secret(&mut self, name: &ObjectName) {
        self.context.secrets.managers.remove(&name.id);
    }

    pub(super) fn has_secret(&self, name: &ObjectName) -> bool {
        self.context.secrets.managers.contains_key(&name.id)
    }
}

/// The settings of a manager, with references to the environment resolved.
fn settings(json: &str, variables: &Variables) -> Result<Value, InvalidSettings> {
    let value: Value = serde_json::from_str(json).map_err(InvalidSettings::from_serde)?;
    let written: config::SecretSpec = decode_value(value)?;
    let mut settings = Value::Object(written.settings);
    let followed = references::resolve(&mut settings, &ReferenceValues::of_one(variables))?;
    match followed.awaited_paths().next() {
        // A manager that needs another one could need itself.
        Some(path) => Err(InvalidSettings::at(
            path,
            "a secret manager cannot take its settings from a secret; use $env://",
        )),
        None => Ok(settings),
    }
}

/// Validates a manager by its text alone.
pub(super) fn check(variables: &Variables, value: &Value) -> Result<(), InvalidSettings> {
    config::check(Kind::Secrets, value.clone())?;
    settings(&value.to_string(), variables).map(drop)
}

#[cfg(test)]
mod tests;

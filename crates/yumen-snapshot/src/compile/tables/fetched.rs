//! Values that the control plane fetches for objects: documents and secrets. Knows no server and no plugin.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use foldhash::fast::RandomState;
use yumen_base::Problem;
use yumen_plugin::{FetchDelivery, FetchRequest, FetchSource, FetchedCell, FetchedValue};

use super::InputEffect;
use crate::compile::names::ObjectName;

/// A new state of a fetched value.
#[derive(Clone, Default)]
pub struct FetchedResult {
    /// The value; `None` leaves the known one in force.
    pub value: Option<FetchedValue>,
    /// The reason of a failure.
    pub failure: Option<FetchFailure>,
    /// Whether an operator has dropped the known value.
    pub forgets: bool,
}

impl fmt::Debug for FetchedResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The value may be a secret.
        f.debug_struct("FetchedResult")
            .field("has_value", &self.value.is_some())
            .field("failure", &self.failure)
            .field("forgets", &self.forgets)
            .finish()
    }
}

/// The reason why a value cannot be fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchFailure {
    /// The reason, without the value and without credentials.
    pub message: Box<str>,
    /// Whether the server answered that the value does not exist. Otherwise it may be away.
    pub is_absent: bool,
}

/// A request of an object while it was built.
#[derive(Debug, Clone)]
pub(crate) struct RequestedFetch {
    pub(crate) request: Arc<FetchRequest>,
    pub(crate) cell: Arc<FetchedCell>,
    /// The path in the object.
    pub(crate) path: Box<str>,
}

#[derive(Debug)]
struct FetchEntry {
    /// The paths in the objects.
    owners: BTreeMap<ObjectName, Box<str>>,
    /// The number of this request. A value that was released and required again has another number.
    number: u64,
    cell: Arc<FetchedCell>,
    failure: Option<FetchFailure>,
}

/// The required values with their owners.
///
/// Values without an owner stay until [`FetchedDocuments::remove_unused`], as host names do.
#[derive(Debug, Default)]
pub(crate) struct FetchedDocuments {
    required: BTreeMap<Arc<FetchRequest>, FetchEntry>,
    /// Every request here is in `required` with this owner. No list is empty.
    by_owner: HashMap<ObjectName, Vec<Arc<FetchRequest>>, RandomState>,
    /// Requests that lost an owner since the last clean-up.
    released: Vec<Arc<FetchRequest>>,
    /// Requests that were removed since the last look.
    removed: Vec<Arc<FetchRequest>>,
}

impl FetchedDocuments {
    /// The required values, each with its cell and the number of its request.
    pub(crate) fn required(&self) -> impl Iterator<Item = (&Arc<FetchRequest>, &Arc<FetchedCell>, u64)> {
        self.required.iter().map(|(request, entry)| (request, &entry.cell, entry.number))
    }

    pub(crate) fn len(&self) -> usize {
        self.required.len()
    }

    pub(crate) fn has_owner(&self, owner: &ObjectName) -> bool {
        self.by_owner.contains_key(owner)
    }

    /// Adds requests of an owner; `number` is for those that are new.
    pub(crate) fn require(&mut self, owner: &ObjectName, requests: Vec<RequestedFetch>, number: u64) {
        for RequestedFetch { request, cell, path } in requests {
            let new = || FetchEntry { owners: BTreeMap::new(), number, cell, failure: None };
            // The key that is there already, so that equal requests are kept once.
            let known = self.required.get_key_value(&request).map_or(request, |(known, _)| known.clone());
            let entry = self.required.entry(known.clone()).or_insert_with(new);
            if entry.owners.insert(owner.clone(), path).is_none() {
                self.by_owner.entry(owner.clone()).or_default().push(known);
            }
        }
    }

    /// Removes the requests of an owner that are not among `kept`.
    pub(crate) fn release_others(&mut self, owner: &ObjectName, kept: &[Arc<FetchRequest>]) {
        let Some(requests) = self.by_owner.remove(owner) else { return };
        let (stay, released): (Vec<_>, Vec<_>) =
            requests.into_iter().partition(|request| kept.contains(request));
        for request in released {
            if let Some(entry) = self.required.get_mut(&request) {
                entry.owners.remove(owner);
                self.released.push(request);
            }
        }
        if !stay.is_empty() {
            self.by_owner.insert(owner.clone(), stay);
        }
    }

    /// Forgets values without an owner; returns whether there were any.
    pub(crate) fn remove_unused(&mut self) -> bool {
        let mut has_removed = false;
        for request in std::mem::take(&mut self.released) {
            // The request may have another owner by now.
            if self.required.get(&request).is_some_and(|entry| entry.owners.is_empty()) {
                self.required.remove(&request);
                self.removed.push(request);
                has_removed = true;
            }
        }
        has_removed
    }

    /// The values that were removed since the last call.
    pub(crate) fn take_removed(&mut self) -> Vec<Arc<FetchRequest>> {
        std::mem::take(&mut self.removed)
    }

    /// Stores a result. The caller sends no value that equals the known one.
    pub(crate) fn set(&mut self, request: &FetchRequest, result: FetchedResult) -> InputEffect {
        let mut effect = InputEffect::default();
        // The value may have lost its last owner while it was fetched.
        let Some(entry) = self.required.get_mut(request) else { return effect };
        let rebuilds = request.delivery == FetchDelivery::Rebuild;
        if result.forgets {
            entry.cell.clear();
            // The version of an object in force has the value as well. The object is staged again without it.
            effect.withdrawn.extend(entry.owners.keys().cloned());
            effect.restaged.extend(entry.owners.keys().cloned());
        }
        // A repeated failure changes no problem, so it touches no owner.
        if entry.failure != result.failure {
            entry.failure = result.failure;
            effect.reported.extend(entry.owners.keys().cloned());
            // Without a value, the reason is in the problem of the object.
            if rebuilds && entry.cell.generation() == 0 {
                effect.restaged.extend(entry.owners.keys().cloned());
            }
        }
        if let Some(value) = result.value {
            entry.cell.store(value);
            if rebuilds {
                effect.restaged.extend(entry.owners.keys().cloned());
            }
        }
        effect
    }

    /// The problems of values that an owner requires.
    pub(crate) fn problems_of(&self, owner: &ObjectName) -> Vec<Problem> {
        let requests = self.by_owner.get(owner).into_iter().flatten();
        requests.filter_map(|request| self.problem(request, owner)).collect()
    }

    fn problem(&self, request: &FetchRequest, owner: &ObjectName) -> Option<Problem> {
        let entry = self.required.get(request)?;
        let (failure, path) = (entry.failure.as_ref()?, entry.owners.get(owner)?);
        let (message, place) = (&failure.message, &request.source);
        let has_value = entry.cell.generation() > 0;
        // An object without its secret is refused, with the reason at the reference.
        if !has_value && matches!(request.source, FetchSource::Secret(_)) {
            return None;
        }
        let (object, path) = (owner.to_string(), path.to_string());
        Some(match (has_value, failure.is_absent) {
            (false, _) => Problem::error(object, path, format!("{place} cannot be fetched: {message}"))
                .hint("requests that need it are refused until it arrives"),
            (true, true) => Problem::error(object, path, format!("{place} has ended: {message}"))
                .hint("the last value stays in use; remove the reference or restore the value"),
            (true, false) => {
                Problem::warning(object, path, format!("{place} cannot be refreshed: {message}"))
                    .hint("the last value stays in use until the server answers")
            }
        })
    }

    /// The owners of failing values.
    pub(crate) fn failing_owners(&self) -> impl Iterator<Item = &ObjectName> {
        self.required.values().filter(|entry| entry.failure.is_some()).flat_map(|entry| entry.owners.keys())
    }
}

#[cfg(test)]
mod tests;

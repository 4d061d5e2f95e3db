//! The problems of staging and linking, by object, and the objects whose problems a change may have altered.

use std::collections::BTreeMap;

use yumen_base::Problem;

use super::SetOfNames;
use crate::compile::names::ObjectName;

type ProblemsByObject = BTreeMap<ObjectName, Vec<Problem>>;

/// The problems that a compilation step returned, until the same step runs again for the object.
#[derive(Debug, Default)]
pub(crate) struct ProblemLedger {
    /// Problems of staging. No list is empty.
    staging: ProblemsByObject,
    /// Problems of linking. No list is empty.
    linking: ProblemsByObject,
    touched: SetOfNames,
}

impl ProblemLedger {
    /// Replaces the problems that staging found in an object.
    pub(crate) fn set_staging(&mut self, name: &ObjectName, problems: Vec<Problem>) {
        replace(&mut self.staging, name, problems);
    }

    /// Replaces the problems that linking found in an object.
    pub(crate) fn set_linking(&mut self, name: &ObjectName, problems: Vec<Problem>) {
        replace(&mut self.linking, name, problems);
    }

    /// Removes all problems of an object.
    pub(crate) fn remove(&mut self, name: &ObjectName) {
        self.staging.remove(name);
        self.linking.remove(name);
    }

    /// Notes that the problems of an object may have changed, including those derived from other tables.
    pub(crate) fn touch(&mut self, name: ObjectName) {
        self.touched.insert(name);
    }

    pub(crate) fn touch_all(&mut self, names: impl IntoIterator<Item = ObjectName>) {
        self.touched.extend(names);
    }

    /// The touched objects since the last call.
    pub(crate) fn take_touched(&mut self) -> SetOfNames {
        std::mem::take(&mut self.touched)
    }

    /// The problems of an object: those of staging come first.
    pub(crate) fn of(&self, name: &ObjectName) -> impl Iterator<Item = &Problem> {
        [&self.staging, &self.linking].into_iter().filter_map(|all| all.get(name)).flatten()
    }

    /// The objects with problems.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &ObjectName> {
        self.staging.keys().chain(self.linking.keys())
    }
}

fn replace(all: &mut ProblemsByObject, name: &ObjectName, problems: Vec<Problem>) {
    if problems.is_empty() {
        all.remove(name);
    } else {
        all.insert(name.clone(), problems);
    }
}

#[cfg(test)]
mod tests;

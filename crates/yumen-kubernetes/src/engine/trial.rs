//! Trials: the effect of one change on the translation, without the change.
//!
//! A trial runs the units that the change concerns on the state in force, and puts back each output that it replaced.
//! Its cost is that of the change and its reverse, whatever the number of objects.

use std::sync::Arc;

use yumen_base::problem::Problem;
use yumen_base::time::Now;

use super::output::UnitOutput;
use super::scheduler::{RunInputs, TranslationEngine, UnitRecord, UnreadObjects};
use super::tracked_view::TrackedView;
use super::unit::TranslationUnit;
use crate::model::{ClusterChange, ClusterObject, ObjectKey};
use crate::resources::ResourceName;
use crate::status::StatusDraft;

/// The differences that a change would make.
#[derive(Debug)]
pub(crate) struct TrialEffect {
    /// The object as it is in force; `None` for a new one.
    pub(crate) former: Option<ClusterObject>,
    /// Resources that would be new, differ, or be removed.
    pub(crate) resources: Vec<ResourceTransition>,
    /// The status of the object.
    pub(crate) status: Option<StatusDraft>,
    /// Problems of all units that the change concerns.
    pub(crate) problems: Vec<Problem>,
    /// Whether an object that the change refers to does not exist, or was not read yet.
    pub(crate) lacks_references: bool,
}

/// A resource before and after a change.
#[derive(Debug)]
pub(crate) struct ResourceTransition {
    pub(crate) name: ResourceName,
    pub(crate) before: Option<Arc<str>>,
    pub(crate) after: Option<Arc<str>>,
}

/// The last run of a unit before the trial.
struct FormerRun {
    unit: TranslationUnit,
    /// `None` for a unit that did not exist.
    record: Option<UnitRecord>,
    output: UnitOutput,
}

impl TranslationEngine {
    /// Runs the units that a new form of an object concerns, passes the effect to `judge`, and restores the state.
    ///
    /// A Secret or ConfigMap that was not read yet counts as missing.
    pub(crate) fn attempt<R>(
        &mut self,
        object: ClusterObject,
        now: Now,
        translate: impl Fn(&TranslationUnit, &TrackedView<'_>) -> UnitOutput,
        judge: impl FnOnce(&TrackedView<'_>, &TrialEffect) -> R,
    ) -> R {
        let key = object.key();
        let former = self.objects.find(&key).cloned();
        let ports = self.context.ports.borrow().clone();
        let undecodable = self.undecodable.get(&key).cloned();
        let changed = (self.undecodable_changed, self.tables.has_changed_problems());
        // Units that wait for the first run, which is still to come.
        let marked = self.marked.clone();
        self.change(ClusterChange::Put(object), now);
        let (mut runs, mut lacks_references) = (Vec::new(), false);
        while let Some(unit) = self.marked.pop_first() {
            runs.push(self.former_run(&unit));
            let inputs = self.run_unit(unit, now, &translate, UnreadObjects::CountAsMissing);
            lacks_references |= inputs == RunInputs::Lacking;
        }
        let effect = self.effect(&key, former, &runs, lacks_references);
        // The last unit in the order of runs, so that the view shows the results of all others.
        let last = TranslationUnit::ListenerSetStatus(key.clone());
        let view = TrackedView::new(&self.objects, &self.tables, &self.context, now, &last);
        let result = judge(&view, &effect);
        self.restore(runs);
        match effect.former {
            Some(former) => drop(self.objects.put(former)),
            None => drop(self.objects.remove(&key)),
        }
        self.marked = marked;
        *self.context.ports.get_mut() = ports;
        self.undecodable.extend(undecodable.map(|problem| (key, problem)));
        self.undecodable_changed = changed.0;
        self.tables.set_changed_problems(changed.1);
        result
    }

    fn former_run(&self, unit: &TranslationUnit) -> FormerRun {
        let record = self.units.get(unit).cloned();
        let output = record.as_ref().map(|record| self.tables.output_of(unit, &record.output));
        FormerRun { unit: unit.clone(), record, output: output.unwrap_or_default() }
    }

    fn effect(
        &mut self,
        key: &ObjectKey,
        former: Option<ClusterObject>,
        runs: &[FormerRun],
        lacks_references: bool,
    ) -> TrialEffect {
        let resources = self.tables.resources.take_transitions().into_iter();
        let mut problems: Vec<Problem> = Vec::new();
        for problem in runs.iter().flat_map(|run| self.tables.problems_of(&run.unit)) {
            if !problems.contains(problem) {
                problems.push(problem.clone());
            }
        }
        TrialEffect {
            former,
            resources: resources
                .map(|(name, before, after)| ResourceTransition { name, before, after })
                .collect(),
            status: self.tables.statuses.get(key).cloned(),
            problems,
            lacks_references,
        }
    }

    /// Puts back the runs of a trial, the last one first, since a unit may have run twice.
    fn restore(&mut self, runs: Vec<FormerRun>) {
        for FormerRun { unit, record, output } in runs.into_iter().rev() {
            let tried = self.units.remove(&unit).unwrap_or_default();
            let former = record.clone().unwrap_or_default();
            self.replace_reads(&unit, &tried.reads, &former.reads);
            self.replace_wanted(&tried.wanted, &former.wanted);
            // The readers of the output are put back too, so nothing is marked.
            let _ = self.tables.replace(&unit, tried.output, output);
            if let Some(record) = record {
                self.units.insert(unit, record);
            }
        }
        // No object may be read or forgotten because of a trial.
        self.wanted_changes.clear();
        self.tables.resources.take_changes();
        self.tables.statuses.take_changes();
        self.tables.objects.take_changes();
    }
}

//! The problems of an object from all tables that have some.

use yumen_base::Problem;
use yumen_config::Kind;

use super::Compiler;
use super::names::ObjectName;
use super::tables::SetOfNames;

impl Compiler {
    /// All problems in force, by object.
    pub fn problems(&self) -> Vec<Problem> {
        let mut names: SetOfNames = self.problems.objects().cloned().collect();
        names.extend(self.consumers.objects_with_duplicates().cloned());
        names.extend(
            self.downstream
                .server_names
                .contested_objects()
                .map(|id| ObjectName::new(Kind::Ssls, id.clone())),
        );
        names.extend(self.inputs.failing_objects().cloned());
        names.extend(self.bindings.agreements().disagreeing_objects().cloned());
        names.extend(self.misplaced_objects());
        names.iter().flat_map(|name| self.problems_of(name)).collect()
    }

    /// The problems of one object: those of its text and links first, then those that other objects and inputs cause.
    pub(super) fn problems_of(&self, name: &ObjectName) -> Vec<Problem> {
        let mut problems: Vec<Problem> = self.problems.of(name).cloned().collect();
        problems.extend(self.consumers.duplicates_of(name).cloned());
        if name.kind == Kind::Ssls {
            problems.extend(self.downstream.server_names.problems_of(name));
        }
        problems.extend(self.problems_of_places(name));
        problems.extend(self.bindings.agreements().problems_of(name));
        problems.extend(self.inputs.problems_of(name));
        problems
    }
}

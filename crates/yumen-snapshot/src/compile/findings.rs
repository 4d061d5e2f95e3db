//! What is wrong with objects: found when they are staged or linked, or what comes of others.
//!
//! Finds nothing itself; must not know how objects are compiled.

use std::collections::BTreeMap;

use yumen_base::Problem;
use yumen_config::Kind;

use super::{Compiler, ObjectName, SetOfNames};

impl Compiler {
    /// All findings in force, by object.
    pub fn problems(&self) -> Vec<Problem> {
        let mut names: SetOfNames = self.staged_problems.keys().cloned().collect();
        names.extend(self.linked_problems.keys().cloned());
        names.extend(self.duplicates.keys().map(|(name, _)| name.clone()));
        let rivals = self.contested_snis.iter().filter_map(|sni| self.sni_claims.get(sni)).flatten();
        names.extend(rivals.map(|id| ObjectName::new(Kind::Ssls, id.clone())));
        names.extend(
            self.unresolved.iter().filter_map(|host| self.hosts.get(host)).flat_map(|of| &of.owners).cloned(),
        );
        names.extend(self.discovered.failing_objects().cloned());
        names.extend(self.disagreeing_objects());
        names.iter().flat_map(|name| self.problems_of(name)).collect()
    }

    pub(super) fn problems_of(&self, name: &ObjectName) -> Vec<Problem> {
        let known = [&self.staged_problems, &self.linked_problems];
        let mut problems: Vec<Problem> =
            known.iter().filter_map(|of| of.get(name)).flatten().cloned().collect();
        let duplicates = self.duplicates.range((name.clone(), "")..).take_while(|((of, _), _)| of == name);
        problems.extend(duplicates.map(|(_, problem)| problem.clone()));
        if name.kind == Kind::Ssls {
            problems.extend(self.sni_problems(name));
        }
        problems.extend(self.disagreement_problems(name));
        let Some(links) = self.upstream_links.get(name) else { return problems };
        for host in links.hosts.iter().filter(|host| self.unresolved.contains(*host)) {
            let message = format!("{host} has no address");
            problems.push(Problem::warning(name.to_string(), "nodes", message));
        }
        let service = links.service.as_ref();
        problems.extend(service.and_then(|service| self.discovered.problem(service, name)));
        problems
    }
}

pub(super) fn set_problems(
    of: &mut BTreeMap<ObjectName, Vec<Problem>>,
    name: &ObjectName,
    problems: Vec<Problem>,
) {
    if problems.is_empty() {
        of.remove(name);
    } else {
        of.insert(name.clone(), problems);
    }
}

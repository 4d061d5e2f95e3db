//! Plans as text for terminals.

use std::fmt::{self, Display, Formatter};

use super::{ChangePlan, ObjectChangeKind, PlannedProblem};
use crate::explain::RequestDestination;

impl Display for ChangePlan {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.changes.is_empty() {
            writeln!(f, "No object changes.")?;
        }
        for change in &self.changes {
            let sign = match change.what {
                ObjectChangeKind::Added => "+",
                ObjectChangeKind::Changed => "~",
                ObjectChangeKind::Removed => "-",
            };
            let paths = change.paths.join(", ");
            let colon = if paths.is_empty() { "" } else { ": " };
            writeln!(f, "{sign} {}/{}{colon}{paths}", change.kind, change.id)?;
        }
        self.fmt_problems(f)?;
        self.fmt_impact(f)?;
        match &self.needs_confirmation {
            Some(reason) => writeln!(f, "\nNeeds confirmation: {reason}"),
            None => Ok(()),
        }
    }
}

impl ChangePlan {
    fn fmt_problems(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (new, known): (Vec<&PlannedProblem>, Vec<&PlannedProblem>) =
            self.problems.iter().partition(|planned| planned.is_new);
        // Earlier problems of unrelated objects are only counted.
        let (near, far): (Vec<&PlannedProblem>, Vec<&PlannedProblem>) =
            known.into_iter().partition(|planned| planned.is_near);
        for (title, problems) in [("New problems", new), ("Already present before this change", near)] {
            if !problems.is_empty() {
                writeln!(f, "\n{title}")?;
            }
            for planned in problems {
                writeln!(f, "{}", planned.problem)?;
            }
        }
        match far.len() {
            0 => Ok(()),
            1 => writeln!(f, "\n1 problem exists already"),
            count => writeln!(f, "\n{count} problems exist already"),
        }
    }

    fn fmt_impact(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let impact = &self.impact;
        if impact.asked + impact.refused == 0 {
            return Ok(());
        }
        writeln!(f, "\n{} of {} sampled requests would change", impact.changed, impact.asked)?;
        for (count, what) in [
            (impact.lose_route, "would become 404"),
            (impact.change_route, "would get to another route"),
            (impact.change_answer, "would get another local response"),
            (impact.change_upstream, "would go to another upstream"),
            (impact.refused, "sampled entries are not requests"),
        ] {
            if count > 0 {
                writeln!(f, "  {count} {what}")?;
            }
        }
        for example in &impact.examples {
            writeln!(
                f,
                "  {}: {} -> {}",
                example.request,
                DestinationText(&example.before),
                DestinationText(&example.after)
            )?;
        }
        Ok(())
    }
}

/// The destination of a request in a few words.
struct DestinationText<'o>(&'o RequestDestination);

impl Display for DestinationText<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let RequestDestination { route, status, plugin, upstream } = self.0;
        match route {
            Some(route) => write!(f, "route {route}")?,
            None => write!(f, "no route")?,
        }
        match (status, plugin, upstream) {
            (Some(status), Some(plugin), _) => write!(f, ", {status} by {plugin}"),
            (Some(status), None, _) => write!(f, ", {status}"),
            (None, _, Some(upstream)) => write!(f, ", {upstream}"),
            (None, _, None) => Ok(()),
        }
    }
}

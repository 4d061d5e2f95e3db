//! A plan as people read it in a terminal.

use std::fmt::{self, Display, Formatter};

use super::{Plan, Planned, What};
use crate::explain::Outcome;

impl Display for Plan {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.changes.is_empty() {
            writeln!(f, "No object changes.")?;
        }
        for change in &self.changes {
            let sign = match change.what {
                What::Added => "+",
                What::Changed => "~",
                What::Removed => "-",
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

impl Plan {
    fn fmt_problems(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (new, known): (Vec<&Planned>, Vec<&Planned>) =
            self.problems.iter().partition(|planned| planned.is_new);
        let (near, far): (Vec<&Planned>, Vec<&Planned>) =
            known.into_iter().partition(|planned| planned.is_near);
        for (title, problems) in [("New problems", new), ("There already, where this leads to", near)] {
            if !problems.is_empty() {
                writeln!(f, "\n{title}")?;
            }
            for planned in problems {
                writeln!(f, "{}", planned.problem)?;
            }
        }
        if far.is_empty() { Ok(()) } else { writeln!(f, "\n{} problems are there already", far.len()) }
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
            (impact.change_answer, "would get another answer of the gateway"),
            (impact.change_upstream, "would go to another upstream"),
            (impact.refused, "of the sample are no requests"),
        ] {
            if count > 0 {
                writeln!(f, "  {count} {what}")?;
            }
        }
        for example in &impact.examples {
            writeln!(f, "  {}: {} -> {}", example.request, Way(&example.before), Way(&example.after))?;
        }
        Ok(())
    }
}

/// Where a request goes, in a few words.
struct Way<'o>(&'o Outcome);

impl Display for Way<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Outcome { route, status, plugin, upstream } = self.0;
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

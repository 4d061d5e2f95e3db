//! Comparison of the successor's configuration with the predecessor's.
//!
//! Compares the reports of the two; communicates with neither.

use std::collections::BTreeSet;

use yumen_base::{Problem, ProblemLevel};

use super::message::SuccessorReady;

/// Objects that serve now and would not in the successor.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct HandoverLosses {
    /// Objects that the successor cannot compile, with messages.
    broken: Vec<(String, String)>,
    /// Objects that the successor does not have.
    absent: Vec<String>,
}

impl HandoverLosses {
    /// Compares the successor's report with the problems and object names of this process.
    ///
    /// The successor reads last good versions from a file next to the store. A resource file has no such
    /// versions.
    pub(super) fn of(ready: &SuccessorReady, problems: &[Problem], objects: &[String]) -> HandoverLosses {
        HandoverLosses { broken: broken(ready, problems), absent: absent(ready, problems, objects) }
    }

    pub(super) fn is_none(&self) -> bool {
        self.broken.is_empty() && self.absent.is_empty()
    }

    /// Whether all losses may be deletions that this process has not received yet. Both processes receive
    /// them, not necessarily at the same moment.
    pub(super) fn are_deletions(&self) -> bool {
        self.broken.is_empty() && !self.absent.is_empty()
    }

    /// Message for the user; `version` is that of the successor.
    pub(super) fn message(&self, version: &str) -> String {
        let count = self.broken.len() + self.absent.len();
        let first = match (self.broken.first(), self.absent.first()) {
            (Some((object, message)), _) => format!("{object}: {message}"),
            (None, Some(object)) => format!("{object}: the new process does not have it"),
            (None, None) => return format!("yumen {version} serves all that is served now"),
        };
        format!(
            "{count} objects that work now would not with yumen {version}; the first is {first} \
             (--force upgrades anyway)"
        )
    }
}

fn broken(ready: &SuccessorReady, problems: &[Problem]) -> Vec<(String, String)> {
    let errors = problems.iter().filter(|problem| problem.level == ProblemLevel::Error);
    let (quarantined, known): (Vec<&Problem>, Vec<&Problem>) = errors.partition(|problem| problem.last_good);
    let known: BTreeSet<&str> = known.iter().map(|problem| &*problem.object).collect();
    let served_last_good =
        ready.last_good.iter().map(String::as_str).filter(|object| !is_of_document(object));
    let served_last_good: BTreeSet<&str> = served_last_good.collect();
    let new = ready.broken.iter();
    // An object that is broken here as well is no loss.
    let new = new.filter(|(object, _)| !known.contains(&**object) && !served_last_good.contains(&**object));
    // The successor cannot detect losses against a document that was rejected as a whole.
    let whole = quarantined.iter().filter(|problem| is_of_document(&problem.object));
    let whole = whole.map(|problem| (problem.object.clone(), problem.message.clone()));
    let mut named = BTreeSet::new();
    new.cloned().chain(whole).filter(|(object, _)| named.insert(object.clone())).collect()
}

fn absent(ready: &SuccessorReady, problems: &[Problem], objects: &[String]) -> Vec<String> {
    // Older versions do not report their objects.
    let Some(had) = &ready.objects else { return Vec::new() };
    let had: BTreeSet<&str> = had.iter().map(String::as_str).collect();
    let is_broken = |problem: &&Problem| problem.level == ProblemLevel::Error && !problem.last_good;
    let broken: BTreeSet<&str> = problems.iter().filter(is_broken).map(|problem| &*problem.object).collect();
    let objects = objects.iter().filter(|object| !had.contains(&***object) && !broken.contains(&***object));
    objects.cloned().collect()
}

/// Whether a problem concerns the whole document, such as a failed test in it.
fn is_of_document(object: &str) -> bool {
    object == "file" || object.starts_with("tests/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn ready(broken: &[&str], last_good: &[&str]) -> SuccessorReady {
        SuccessorReady {
            version: "2".into(),
            broken: texts(broken).into_iter().map(|object| (object, "broken".to_owned())).collect(),
            last_good: texts(last_good),
            objects: None,
        }
    }

    fn problem(object: &str, last_good: bool) -> Problem {
        Problem { last_good, ..Problem::error(object, "", "broken") }
    }

    fn lost(ready: &SuccessorReady, problems: &[Problem]) -> Vec<String> {
        HandoverLosses::of(ready, problems, &[]).broken.into_iter().map(|(object, _)| object).collect()
    }

    #[test]
    fn an_object_broken_in_both_is_no_loss_unless_its_last_good_version_serves() {
        let both = ready(&["routes/a", "routes/b"], &[]);
        assert_eq!(lost(&both, &[problem("routes/a", false)]), ["routes/b"]);
        assert_eq!(lost(&both, &[problem("routes/a", false), problem("routes/b", true)]), ["routes/b"]);
    }

    #[test]
    fn a_last_good_version_in_both_or_no_longer_needed_is_no_loss() {
        assert!(lost(&ready(&["routes/a"], &["routes/a"]), &[problem("routes/a", true)]).is_empty());
        assert!(lost(&ready(&[], &[]), &[problem("routes/a", true)]).is_empty());
    }

    #[test]
    fn a_rejected_document_is_a_loss_whatever_the_successor_reports() {
        for of in ["file", "tests/a"] {
            assert_eq!(lost(&ready(&[], &[]), &[problem(of, true)]), [of]);
            assert_eq!(lost(&ready(&[of], &[of]), &[problem(of, true)]), [of]);
        }
    }

    #[test]
    fn a_document_unusable_in_the_successor_is_a_loss_unless_it_serves_in_neither() {
        for of in ["file", "tests/a"] {
            for claimed in [&[][..], &[of]] {
                assert_eq!(lost(&ready(&[of], claimed), &[]), [of]);
                assert!(lost(&ready(&[of], claimed), &[problem(of, false)]).is_empty());
            }
        }
    }

    #[test]
    fn an_object_absent_in_the_successor_is_a_loss_unless_it_is_broken_now() {
        let of = |has: Option<&[&str]>, problems: &[Problem]| {
            let ready = SuccessorReady { objects: has.map(texts), ..ready(&[], &[]) };
            HandoverLosses::of(&ready, problems, &texts(&["routes/a", "ssls/a"]))
        };
        assert!(of(Some(&["ssls/a", "routes/a", "routes/b"]), &[]).is_none());
        assert_eq!(of(Some(&["ssls/a"]), &[]).absent, ["routes/a"]);
        assert!(of(Some(&["ssls/a"]), &[]).are_deletions());
        assert!(of(Some(&["ssls/a"]), &[problem("routes/a", false)]).is_none());
        assert_eq!(of(Some(&["ssls/a"]), &[problem("routes/a", true)]).absent, ["routes/a"]);
        assert!(of(None, &[]).is_none(), "a version that sends none");
    }
}

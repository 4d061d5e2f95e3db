//! Whether a new process makes as much of the configuration as the one that serves.
//!
//! Compares what the two say of it; knows neither process.

use std::collections::BTreeSet;

use yumen_base::{Level, Problem};

use super::message::Ready;

/// Which objects serve now, given what is wrong in the process that serves, and would not in the new one; and why.
///
/// What is in force only because it was good once is nowhere but in the memory of the process that serves.
pub(super) fn losses(ready: &Ready, problems: &[Problem]) -> Vec<(String, String)> {
    let errors = problems.iter().filter(|problem| problem.level == Level::Error);
    let (kept, known): (Vec<&Problem>, Vec<&Problem>) = errors.partition(|problem| problem.last_good);
    let known: BTreeSet<&str> = known.iter().map(|problem| &*problem.object).collect();
    let kept_on: BTreeSet<&str> = ready.last_good.iter().map(String::as_str).collect();
    let broken = ready.broken.iter();
    let mut lost: Vec<(String, String)> = broken
        .filter(|(object, _)| !known.contains(&**object) && !kept_on.contains(&**object))
        .cloned()
        .collect();
    // Of a document that was not taken as a whole the new process cannot tell that it lacks anything.
    let whole = kept.iter().filter(|problem| is_of_document(&problem.object));
    lost.extend(whole.map(|problem| (problem.object.clone(), problem.message.clone())));
    lost.dedup_by(|one, other| one.0 == other.0);
    lost
}

/// Whether a problem is one of the whole document, such as a test in it that fails.
fn is_of_document(object: &str) -> bool {
    object == "file" || object.starts_with("tests/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(broken: &[&str], last_good: &[&str]) -> Ready {
        let texts = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        Ready {
            version: "2".into(),
            broken: texts(broken).into_iter().map(|object| (object, "broken".to_owned())).collect(),
            last_good: texts(last_good),
        }
    }

    fn problem(object: &str, last_good: bool) -> Problem {
        Problem { last_good, ..Problem::error(object, "", "broken") }
    }

    fn lost(ready: &Ready, problems: &[Problem]) -> Vec<String> {
        losses(ready, problems).into_iter().map(|(object, _)| object).collect()
    }

    #[test]
    fn what_is_broken_in_both_is_no_loss_unless_its_last_good_version_serves() {
        let both = ready(&["routes/a", "routes/b"], &[]);
        assert_eq!(lost(&both, &[problem("routes/a", false)]), ["routes/b"]);
        assert_eq!(lost(&both, &[problem("routes/a", false), problem("routes/b", true)]), ["routes/b"]);
    }

    #[test]
    fn a_last_good_version_the_new_process_has_too_is_no_loss_and_neither_is_one_it_needs_no_more() {
        assert!(lost(&ready(&["routes/a"], &["routes/a"]), &[problem("routes/a", true)]).is_empty());
        assert!(lost(&ready(&[], &[]), &[problem("routes/a", true)]).is_empty());
    }

    #[test]
    fn a_document_that_was_not_taken_is_a_loss_whatever_the_new_process_makes_of_it() {
        for of in ["file", "tests/a"] {
            assert_eq!(lost(&ready(&[], &[]), &[problem(of, true)]), [of]);
            assert_eq!(lost(&ready(&[of], &[of]), &[problem(of, true)]), [of]);
        }
    }
}

//! What is said while one process takes over from another. Changes here are changes between versions: a member
//! may be added with a default; anything else is a new [`PROTOCOL`].

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use yumen_base::{Level, Problem};
use yumen_plugin::Told;

use crate::sockets::Label;

/// The version of what is said.
pub(super) const PROTOCOL: u32 = 1;
/// The oldest version that is understood.
pub(super) const PROTOCOL_MIN: u32 = 1;

/// The first thing said; the one document that never changes but by more members.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) protocol: u32,
    /// The version of the program.
    pub(super) version: String,
}

/// What the process that serves gives to the one that takes over. The descriptors follow it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Offer {
    /// What the descriptors are for, in their order.
    pub(super) sockets: Vec<Label>,
    /// The keys of session tickets in base64, the oldest first.
    #[serde(default)]
    pub(super) ticket_keys: Vec<String>,
    /// What identifiers of HTTP/3 connections are made of, in base64, and the number of this process in them.
    #[serde(default)]
    pub(super) http3_identity: Option<(String, u8)>,
}

/// What the process that serves says after its offer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FromServing {
    /// The store can be opened.
    StoreIsFree,
    /// The store cannot be given away, and why.
    StoreStays(String),
    /// What is known of limits and endpoints; serve now.
    Serve(Told),
    /// The one that takes over is the one that counts now.
    TakenOver,
    /// What was counted on connections of the old process meanwhile.
    Counted(Told),
}

/// What the process that takes over says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FromSuccessor {
    /// It does not take over, and why.
    Refuses(String),
    /// What it is about to do.
    Does(String),
    /// It needs the store, which only one process can have open.
    WantsStore,
    /// It could serve now.
    Ready(Ready),
    /// It serves.
    Serves,
    /// It can be asked for the next upgrade.
    Settled,
    /// The gateway is ending. A version that does not know of it does not listen any more by then.
    Ends,
}

/// What the new process made of the configuration.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Ready {
    /// The version of the program.
    pub(super) version: String,
    /// Objects with errors, and what is wrong with them.
    #[serde(default)]
    pub(super) broken: Vec<(String, String)>,
    /// Those of them whose last good version is in force.
    #[serde(default)]
    pub(super) last_good: Vec<String>,
}

impl Ready {
    /// Which objects serve now, given what is wrong in the process that serves, and would not in the new one; and why.
    ///
    /// What is in force only because it was good once is nowhere but in the memory of the process that serves.
    pub(super) fn loses(&self, problems: &[Problem]) -> Vec<(String, String)> {
        let errors = problems.iter().filter(|problem| problem.level == Level::Error);
        let (kept, known): (Vec<&Problem>, Vec<&Problem>) = errors.partition(|problem| problem.last_good);
        let known: BTreeSet<&str> = known.iter().map(|problem| &*problem.object).collect();
        let kept_on: BTreeSet<&str> = self.last_good.iter().map(String::as_str).collect();
        let broken = self.broken.iter();
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
        ready.loses(problems).into_iter().map(|(object, _)| object).collect()
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

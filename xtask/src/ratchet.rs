//! Lists of exceptions that only shrink: `subject number`, one per line.

use std::collections::BTreeMap;

use crate::Finding;

/// A list of exceptions, and the advice for a subject that is not on it.
pub(crate) struct RatchetList<'a> {
    /// Path of the list, for messages.
    pub(crate) path: &'a str,
    pub(crate) text: &'a str,
}

impl RatchetList<'_> {
    /// Findings for each subject that the list lacks, that grew, that shrank, and that has disappeared. `describe` gets a
    /// subject and its number.
    pub(crate) fn compare(
        &self,
        found: BTreeMap<String, usize>,
        describe: impl Fn(&str, usize) -> String,
    ) -> Vec<Finding> {
        let RatchetList { path, text } = self;
        let mut listed = entries(text);
        let mut findings = Vec::new();
        for (subject, number) in found {
            // Removal leaves the entries without a subject.
            match listed.remove(&subject) {
                None => findings.push(describe(&subject, number)),
                Some(allowed) if number > allowed => {
                    findings.push(format!("{} (grew from {allowed})", describe(&subject, number)));
                }
                // A finding too, because an entry that is too high would let the subject grow again.
                Some(allowed) if number < allowed => {
                    findings.push(format!(
                        "{subject}: shrank from {allowed} to {number}; write {number} in {path}"
                    ));
                }
                Some(_) => {}
            }
        }
        findings.extend(
            listed
                .into_keys()
                .map(|subject| format!("{subject}: no longer an exception; remove it from {path}")),
        );
        findings
    }
}

fn entries(text: &str) -> BTreeMap<String, usize> {
    let entry = |line: &str| {
        let (subject, number) = line.rsplit_once(' ')?;
        Some((subject.to_owned(), number.parse().ok()?))
    };
    text.lines().filter(|line| !line.starts_with('#')).filter_map(entry).collect()
}

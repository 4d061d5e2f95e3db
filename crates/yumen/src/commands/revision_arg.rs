//! Revisions on the command line: by number, or relative to the newest.

use std::str::FromStr;

use anyhow::{Context, bail};
use yumen_base::quantity;

use super::client::OperatorClient;

/// A revision as the user names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RevisionArg {
    /// Its number.
    Number(u64),
    /// This many revisions before the newest.
    Before(u64),
}

/// Parses `12`, `~1` or `HEAD~1`, as in Git.
impl FromStr for RevisionArg {
    type Err = String;

    fn from_str(text: &str) -> Result<RevisionArg, String> {
        let allowed =
            || format!("\"{text}\" is no revision: write its number, or ~1 for the one before the newest");
        match text.strip_prefix("HEAD").unwrap_or(text).strip_prefix('~') {
            Some(steps) => steps.parse().map(RevisionArg::Before).map_err(|_| allowed()),
            None => text.parse().map(RevisionArg::Number).map_err(|_| allowed()),
        }
    }
}

impl RevisionArg {
    /// The number of the revision, by the history of the gateway.
    pub(crate) fn resolve(self, client: &OperatorClient) -> anyhow::Result<u64> {
        let steps = match self {
            RevisionArg::Number(number) => return Ok(number),
            RevisionArg::Before(steps) => steps,
        };
        // The history has numbers without a gap, except where a store of a cluster has revisions of other keys.
        let mut before: Option<u64> = None;
        let mut left = steps;
        loop {
            let page = before.map(|before| format!("&before={before}")).unwrap_or_default();
            let found = client.get(&format!("/yumen/v1/revisions?limit=500{page}"))?.json()?;
            let revisions = found["revisions"].as_array().context("invalid response of the gateway")?;
            let numbers: Vec<u64> = revisions.iter().filter_map(|one| one["revision"].as_u64()).collect();
            match (numbers.get(left as usize), numbers.last()) {
                (Some(number), _) => return Ok(*number),
                (None, Some(last)) => (before, left) = (Some(*last), left - numbers.len() as u64),
                (None, None) => {
                    let count = usize::try_from(steps - left).unwrap_or(usize::MAX);
                    bail!("there is no revision ~{steps}: the history has {}", quantity(count, "revision"))
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::RevisionArg;

    fn check(text: &str, expected: Option<RevisionArg>) {
        assert_eq!(text.parse().ok(), expected, "{text}");
    }

    #[test]
    fn numbers_and_steps_are_revisions() {
        check("12", Some(RevisionArg::Number(12)));
        check("~2", Some(RevisionArg::Before(2)));
        check("HEAD~1", Some(RevisionArg::Before(1)));
        check("last", None);
        check("~", None);
        check("-1", None);
    }
}

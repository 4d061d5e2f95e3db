//! Problems of plugins whose service does not respond.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;
use yumen_base::Problem;
use yumen_proxy::AllCounters;

use super::{ControlHandle, ControlMessage, ProblemSource};

/// Interval of checks.
const INTERVAL: Duration = Duration::from_secs(1);
/// Time for which a problem stays after the last call without a response.
const REPORTED_FOR: Duration = Duration::from_secs(60);

/// Last count of calls without a response, by plugin.
#[derive(Default)]
struct CallWatch {
    seen: BTreeMap<&'static str, (u64, Instant)>,
}

impl CallWatch {
    /// Takes the current counts and returns the problems.
    fn observe(&mut self, unanswered: &BTreeMap<&'static str, u64>, now: Instant) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (plugin, count) in unanswered.iter().filter(|(_, count)| **count > 0) {
            let last = self.seen.get(plugin).filter(|(seen, _)| seen == count).map_or(now, |(_, last)| *last);
            if now.duration_since(last) < REPORTED_FOR {
                problems.push(problem(plugin));
            }
            self.seen.insert(*plugin, (*count, last));
        }
        problems
    }
}

/// The message contains no number, so that it stays constant while calls fail.
fn problem(plugin: &str) -> Problem {
    let message = "the service of the plugin does not respond: within the last minute calls timed out, or were not sent \
                   because others wait; requests got no decision";
    let hint = "restore the service, or shorten the time limit of the plugin; yumen_plugin_calls_total counts the calls";
    Problem::warning(format!("plugins/{plugin}"), "", message).hint(hint)
}

/// Reports problems to the control thread until that ends.
pub(crate) async fn watch(counters: AllCounters, control: ControlHandle) {
    let (mut watch, mut reported) = (CallWatch::default(), Vec::new());
    loop {
        tokio::time::sleep(INTERVAL).await;
        let problems = watch.observe(&counters.unanswered_calls(), Instant::now());
        if problems == reported {
            continue;
        }
        reported.clone_from(&problems);
        if control.messages.send(ControlMessage::Problems(ProblemSource::Calls, problems)).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_names_the_plugin_and_stays_for_a_minute_after_the_last_call() {
        let (mut watch, begun) = (CallWatch::default(), Instant::now());
        let mut objects = |seconds: u64, counts: &[(&'static str, u64)]| {
            let counts = counts.iter().copied().collect();
            let problems = watch.observe(&counts, begun + Duration::from_secs(seconds));
            problems.into_iter().map(|problem| problem.object).collect::<Vec<_>>()
        };
        assert!(objects(0, &[("opa", 0)]).is_empty());
        assert_eq!(objects(1, &[("opa", 5)]), ["plugins/opa"]);
        assert_eq!(objects(30, &[("forward-auth", 1), ("opa", 6)]), ["plugins/forward-auth", "plugins/opa"]);
        assert_eq!(objects(89, &[("forward-auth", 1), ("opa", 7)]), ["plugins/forward-auth", "plugins/opa"]);
        assert_eq!(objects(100, &[("forward-auth", 1), ("opa", 7)]), ["plugins/opa"]);
        assert!(objects(149, &[("forward-auth", 1), ("opa", 7)]).is_empty());
    }
}

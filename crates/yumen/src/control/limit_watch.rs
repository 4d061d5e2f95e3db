//! Problems of limits whose keys were evicted from a full table.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use yumen_base::Problem;
use yumen_plugins::limit_usage::{LimitEvictions, LimitTables};

use super::{ControlHandle, ControlMessage, ProblemSource};

/// Interval of eviction checks.
const INTERVAL: Duration = Duration::from_secs(1);
/// Time for which a problem stays after the last eviction.
const REPORTED_FOR: Duration = Duration::from_secs(600);

/// Last eviction count of each limit, by plugin and object.
#[derive(Default)]
struct EvictionWatch {
    seen: HashMap<(Box<str>, Box<str>), (u64, Instant)>,
}

impl EvictionWatch {
    /// Takes the current counts and returns the problems.
    fn observe(&mut self, evictions: &[LimitEvictions], now: Instant) -> Vec<Problem> {
        let mut seen = HashMap::new();
        let mut problems = Vec::new();
        for LimitEvictions { plugin, owner, evicted } in evictions {
            let key = (plugin.clone(), owner.clone());
            let last =
                self.seen.get(&key).filter(|(count, _)| count == evicted).map_or(now, |(_, last)| *last);
            if now.duration_since(last) < REPORTED_FOR {
                problems.push(problem(plugin, owner));
            }
            seen.insert(key, (*evicted, last));
        }
        self.seen = seen;
        problems
    }
}

/// The message contains no number, so that it stays constant while evictions continue.
fn problem(plugin: &str, owner: &str) -> Problem {
    let name = plugin.split('/').next().unwrap_or(plugin);
    let message = "keys were evicted before their counters had ended: the table of the plugin was full, and this \
                   limit held the most keys; requests with these keys are counted from zero";
    let hint = "use a key that clients cannot make up, such as remote_addr, or a shorter window; \
                yumen_limit_keys_evicted_total counts the evictions";
    Problem::warning(owner, format!("plugins.{name}"), message).hint(hint)
}

/// Reports problems to the control thread until that ends.
pub(crate) async fn watch(tables: Arc<LimitTables>, control: ControlHandle) {
    let (mut watch, mut reported) = (EvictionWatch::default(), Vec::new());
    loop {
        tokio::time::sleep(INTERVAL).await;
        let problems = watch.observe(&tables.evictions(), Instant::now());
        if problems == reported {
            continue;
        }
        reported.clone_from(&problems);
        if control.messages.send(ControlMessage::Problems(ProblemSource::Limits, problems)).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evictions(counts: &[(&str, u64)]) -> Vec<LimitEvictions> {
        let one = |(owner, evicted): &(&str, u64)| LimitEvictions {
            plugin: "limit-count".into(),
            owner: (*owner).into(),
            evicted: *evicted,
        };
        counts.iter().map(one).collect()
    }

    #[test]
    fn a_problem_names_the_object_and_stays_for_a_while_after_the_last_eviction() {
        let (mut watch, begun) = (EvictionWatch::default(), Instant::now());
        let mut objects = |seconds: u64, counts: &[(&str, u64)]| {
            let problems = watch.observe(&evictions(counts), begun + Duration::from_secs(seconds));
            problems.into_iter().map(|problem| problem.object).collect::<Vec<_>>()
        };
        assert!(objects(0, &[]).is_empty());
        assert_eq!(objects(1, &[("routes/a", 5)]), ["routes/a"]);
        assert_eq!(objects(500, &[("routes/a", 6), ("routes/b", 1)]), ["routes/a", "routes/b"]);
        assert_eq!(objects(1000, &[("routes/a", 6), ("routes/b", 2)]), ["routes/a", "routes/b"]);
        assert_eq!(objects(1200, &[("routes/a", 6), ("routes/b", 2)]), ["routes/b"]);
        assert!(objects(1201, &[]).is_empty());
    }
}

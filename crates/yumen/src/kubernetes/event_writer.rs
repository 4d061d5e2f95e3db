//! Events on Ingresses: one for each problem of the translation, written by the leader.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::json;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use yumen_base::time::utc_text;
use yumen_base::{Problem, ProblemLevel};
use yumen_kubernetes_client::{ApiClient, ApiError, LeaseView, ObjectAddress};
use yumen_proxy::clock::exact as wall_clock;

/// Pause between two events: the API server keeps each for an hour.
const PAUSE: Duration = Duration::from_millis(100);
/// Problems that are remembered; further ones get no event.
const EVENTS_MAX: usize = 10_000;
const MESSAGE_MAX: usize = 1000;

/// An event to write.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct EventDraft {
    namespace: String,
    name: String,
    reason: &'static str,
    message: String,
}

#[derive(Default)]
struct EventQueue {
    /// The problems in force.
    current: BTreeSet<EventDraft>,
    due: BTreeSet<EventDraft>,
}

struct SharedEvents {
    queue: Mutex<EventQueue>,
    changed: Notify,
}

/// The queue of events. Dropping it ends the writes.
pub(super) struct EventWriter {
    shared: Arc<SharedEvents>,
    task: JoinHandle<()>,
}

impl Drop for EventWriter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl EventWriter {
    /// Starts the writer, which writes while the lease is held.
    pub(super) fn start(client: ApiClient, lease: LeaseView) -> EventWriter {
        let shared = Arc::new(SharedEvents { queue: Mutex::default(), changed: Notify::new() });
        let task = tokio::spawn(write(client, lease, shared.clone()));
        EventWriter { shared, task }
    }

    /// Takes all problems in force; new ones of Ingresses become events.
    pub(super) fn observe(&self, problems: &[Problem]) {
        let current: BTreeSet<EventDraft> = problems.iter().filter_map(draft_of).take(EVENTS_MAX).collect();
        let mut queue = self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let new: Vec<EventDraft> = current.difference(&queue.current).cloned().collect();
        queue.due.extend(new);
        queue.due.retain(|draft| current.contains(draft));
        queue.current = current;
        drop(queue);
        self.shared.changed.notify_one();
    }
}

/// The event of a problem; `None` for objects of other kinds.
fn draft_of(problem: &Problem) -> Option<EventDraft> {
    let (namespace, name) = problem.object.strip_prefix("Ingress/")?.split_once('/')?;
    let reason = match (problem.level, problem.path.contains('/')) {
        // The reason of ingress-nginx, which alerts look for.
        (_, true) => "AnnotationParsingFailed",
        (ProblemLevel::Error, false) => "Refused",
        (ProblemLevel::Warning, false) => "PartlyServed",
    };
    let path = if problem.path.is_empty() { String::new() } else { format!("{}: ", problem.path) };
    let hint = problem.hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default();
    let message: String = format!("{path}{}{hint}", problem.message).chars().take(MESSAGE_MAX).collect();
    Some(EventDraft { namespace: namespace.to_owned(), name: name.to_owned(), reason, message })
}

async fn write(client: ApiClient, mut lease: LeaseView, shared: Arc<SharedEvents>) {
    loop {
        let next = match lease.is_held() {
            true => shared.queue.lock().unwrap_or_else(PoisonError::into_inner).due.pop_first(),
            false => None,
        };
        match next {
            Some(draft) => {
                if let Err(error) = write_one(&client, &draft).await {
                    tracing::debug!(object = %draft.name, %error, "event not written");
                }
                tokio::time::sleep(PAUSE).await;
            }
            None => tokio::select! {
                () = shared.changed.notified() => {}
                held = lease.changed() => if held.is_none() { return },
            },
        }
    }
}

async fn write_one(client: &ApiClient, draft: &EventDraft) -> Result<(), ApiError> {
    let mut hasher = DefaultHasher::new();
    draft.hash(&mut hasher);
    // One name for one finding, so that a new leader adds no second event.
    let stem: String = draft.name.chars().take(200).collect();
    let name = format!("{stem}.{:016x}", hasher.finish());
    let now = utc_text(wall_clock().unix_ms / 1000);
    let body = json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": { "namespace": draft.namespace, "name": name },
        "involvedObject": {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "Ingress",
            "namespace": draft.namespace,
            "name": draft.name,
        },
        "type": "Warning",
        "reason": draft.reason,
        "message": draft.message,
        "source": { "component": "yumen" },
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    });
    let at = ObjectAddress {
        group: "".into(),
        version: "v1".into(),
        plural: "events".into(),
        namespace: Some(draft.namespace.as_str().into()),
        name: name.as_str().into(),
    };
    match client.create(&at, &body.to_string()).await {
        Ok(_) | Err(ApiError::Conflict(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_of_ingresses_become_events() {
        let check = |problem: Problem, expected: Option<(&str, &str)>| {
            let found = draft_of(&problem);
            let found = found.as_ref().map(|draft| (draft.reason, draft.message.as_str()));
            assert_eq!(found, expected, "{problem}");
        };
        let annotation = "nginx.ingress.kubernetes.io/auth-url";
        check(
            Problem::error("Ingress/shop/web", annotation, "no URL").hint("write http://"),
            Some(("AnnotationParsingFailed", "nginx.ingress.kubernetes.io/auth-url: no URL; write http://")),
        );
        check(Problem::warning("Ingress/shop/web", "", "late"), Some(("PartlyServed", "late")));
        check(Problem::error("Gateway/shop/web", "", "late"), None);
        check(Problem::error("routes/1", "", "late"), None);
    }
}

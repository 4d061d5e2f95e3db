use std::sync::Arc;
use std::time::Duration;

use yumen_base::Problem;
use yumen_config::Kind;
use yumen_plugin::Carry;
use yumen_snapshot::Publisher;
use yumen_store::{LastGoodVersions, ResourceKey, Revision, StoreEntry, StoreState};

use super::*;
use crate::config::compiler;
use crate::control::applied_tracker::AppliedTracker;
use crate::control::{ControlContext, ControlMessage, ProblemSource, start};
use crate::endpoints::inputs::KnownInputs;

fn control() -> ControlHandle {
    let (carry, publisher) = (Arc::new(Carry::default()), Arc::new(Publisher::default()));
    let node = yumen_config::NodeConfig::default();
    let compiler = compiler::new(&node, 1, Arc::default(), Arc::default(), Arc::default());
    let context = ControlContext {
        carry,
        publisher,
        versions: Arc::new(LastGoodVersions::default()),
        applied_tracker: AppliedTracker::alone(),
        initial_inputs: KnownInputs::default(),
        huge_pages: false,
    };
    start(compiler, context).unwrap()
}

/// A state of `count` routes, of which the last cannot be compiled.
fn state(count: usize) -> StoreState {
    let first = Revision(1);
    let entry = |at: usize| {
        let settings = if at + 1 == count { "" } else { "\"response_example\":\"x\"" };
        let json = format!("{{\"uri\":\"/{at}\",\"plugins\":{{\"mocking\":{{{settings}}}}}}}").into();
        let key = ResourceKey::new(Kind::Routes, at.to_string());
        (key, StoreEntry { json, created: first, modified: first, expires_ms: None })
    };
    StoreState::new(first, (0..count).map(entry), [])
}

fn send(control: &ControlHandle, message: ControlMessage) {
    control.messages.send(message).unwrap();
}

/// Waits until the control thread has handled all earlier messages.
fn settle(control: &ControlHandle) {
    let (done, mut handled) = tokio::sync::oneshot::channel();
    send(control, ControlMessage::LocalObjects(Vec::new(), Some(done)));
    while handled.try_recv().is_err() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn early_problems_do_not_end_the_wait_for_the_configuration() {
    let control = control();
    let early = |object: &str| vec![Problem::warning(object, "", "known before the first compile")];
    send(&control, ControlMessage::Document(early("file")));
    send(&control, ControlMessage::Problems(ProblemSource::Store, early("store")));
    settle(&control);
    assert_eq!(control.status.problems().len(), 2);
    assert!(control.readiness().unwrap_err().contains("has not been compiled yet"));
    // After the wait, all problems and the revision are visible.
    send(&control, ControlMessage::State(state(500), Vec::new()));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    control.wait_for_first_publication(&runtime).unwrap();
    assert_eq!((control.readiness(), control.status.broken()), (Ok(()), vec!["routes/499".to_owned()]));
    assert_eq!(control.applied_tracker.revision(), Revision(1));
}

#[test]
fn an_absent_configuration_ends_the_wait_and_leaves_the_node_unready() {
    let control = control();
    send(&control, ControlMessage::NoState);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    control.wait_for_first_publication(&runtime).unwrap();
    assert!(control.readiness().unwrap_err().contains("no configuration that can be used"));
    // A snapshot published for another reason does not count as a configuration.
    send(&control, ControlMessage::Resolved("unknown.test".into(), Vec::new()));
    settle(&control);
    assert!(control.readiness().is_err());
    send(&control, ControlMessage::State(state(2), Vec::new()));
    settle(&control);
    assert_eq!(control.readiness(), Ok(()));
    // After a later failure of the source, the last good configuration stays active.
    send(&control, ControlMessage::NoState);
    settle(&control);
    assert_eq!(control.readiness(), Ok(()));
}

#[test]
fn the_end_of_the_control_thread_ends_the_wait() {
    let mut control = control();
    // The thread ends with its last sender.
    control.messages = std::sync::mpsc::channel().0;
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert!(control.wait_for_first_publication(&runtime).is_err());
}

//! The predecessor receives the complete state once, then changes. A revision is applied only after the
//! predecessor has published it.

use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use serde_json::json;
use yumen_config::{Kind, Resource};
use yumen_store::{HistoryRetention, MemoryMedium, Revision};

use super::*;
use crate::control::{ControlMessage, ProblemSource};

const LONG: Duration = Duration::from_secs(20);

/// A serving process, and the predecessor's end of its channel.
struct SenderFixture {
    store: Arc<HandoverStore>,
    applied_tracker: Arc<AppliedTracker>,
    reports: Arc<PredecessorReports>,
    predecessor: HandoverChannel,
    problems: Receiver<ControlMessage>,
    sender: Option<std::thread::JoinHandle<()>>,
}

impl SenderFixture {
    fn of(resources: &[(&str, &str)]) -> SenderFixture {
        let retention = HistoryRetention { revisions_max: 1, bytes_max: 1, age_max: None };
        let memory: Arc<dyn yumen_store::Store> =
            Arc::new(MemoryMedium::store_of(StoreState::default(), retention).unwrap());
        let store = Arc::new(HandoverStore::new(&memory, None));
        let (one, other) = UnixStream::pair().unwrap();
        let applied_tracker = Arc::new(AppliedTracker::with_predecessor());
        let reports = Arc::new(PredecessorReports::default());
        let (messages, problems) = channel();
        let (tracker, reported, sent) = (applied_tracker.clone(), reports.clone(), store.clone());
        let sender = std::thread::spawn(move || {
            let (channel, lag) = (HandoverChannel::new(one), Arc::new(LagReport::new(messages)));
            let (store, applied_tracker) = (sent, tracker);
            ConfigSender { channel: &channel, reports: &reported, store, applied_tracker, lag }.run();
        });
        let predecessor = HandoverChannel::new(other);
        let sender = Some(sender);
        let fixture = SenderFixture { store, applied_tracker, reports, predecessor, problems, sender };
        fixture.publish(1, resources);
        fixture
    }

    /// Publishes a state with these resources.
    fn publish(&self, revision: u64, resources: &[(&str, &str)]) {
        let put = resources.iter().map(|(id, uri)| {
            let json = Resource::new(Kind::Routes, id, &json!({"uri": uri})).json;
            (ResourceKey::new(Kind::Routes, *id), Some((json, None)))
        });
        self.store.override_state(StoreState::default().with(Revision(revision), put));
        self.applied_tracker.record_publication(Revision(revision));
    }

    /// Receives the next complete update, with all its parts.
    fn receive(&self) -> (u64, bool, Vec<String>) {
        let mut all = Vec::new();
        loop {
            let message = self.predecessor.receive(Some(Instant::now() + LONG)).unwrap();
            let SuccessorMessage::Configured(update) = message else { panic!("{message:?}") };
            all.extend(update.objects.into_iter().map(|ObjectText { kind, id, json, .. }| {
                format!("{kind}/{id} {}", json.unwrap_or_else(|| "gone".to_owned()).len())
            }));
            if !update.is_more_to_come {
                return (update.revision, update.is_whole, all);
            }
        }
    }

    /// Reports as the predecessor that one more update is published there.
    fn acknowledge(&self) {
        self.reports.update(|all| all.updates_published += 1);
    }

    fn applied_within(&self, revision: u64, within: Duration) -> bool {
        let until = Instant::now() + within;
        while *self.applied_tracker.applied().borrow() != Revision(revision) {
            if Instant::now() > until {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }
}

#[test]
fn the_whole_state_is_sent_once_and_then_differences() {
    let fixture = SenderFixture::of(&[("1", "/1"), ("2", "/2")]);
    let text = r#"{"uri":"/1"}"#.len();
    assert_eq!(fixture.receive(), (1, true, vec![format!("routes/1 {text}"), format!("routes/2 {text}")]));
    assert!(!fixture.applied_within(1, Duration::from_millis(50)));
    // Changes during the wait are combined into one update.
    fixture.publish(2, &[("1", "/1"), ("2", "/22")]);
    fixture.publish(3, &[("1", "/1"), ("3", "/3")]);
    fixture.acknowledge();
    assert_eq!(fixture.receive(), (3, false, vec!["routes/2 4".to_owned(), format!("routes/3 {text}")]));
    assert!(fixture.applied_within(1, LONG));
    fixture.acknowledge();
    assert!(fixture.applied_within(3, LONG));
    // Resolved addresses cause no update.
    fixture.applied_tracker.record_publication(Revision(4));
    assert!(fixture.applied_within(4, LONG));
}

#[test]
fn the_expiry_of_an_object_is_sent() {
    let fixture = SenderFixture::of(&[("1", "/1")]);
    fixture.receive();
    fixture.acknowledge();
    let text = Resource::new(Kind::Routes, "1", &json!({"uri": "/1"})).json;
    let expiring = (ResourceKey::new(Kind::Routes, "1"), Some((text, Some(7))));
    fixture.store.override_state(StoreState::default().with(Revision(2), [expiring]));
    fixture.applied_tracker.record_publication(Revision(2));
    let message = fixture.predecessor.receive(Some(Instant::now() + LONG)).unwrap();
    let SuccessorMessage::Configured(update) = message else { panic!("{message:?}") };
    assert_eq!(update.objects[0].expires_ms, Some(7));
}

#[test]
fn a_large_configuration_is_sent_in_parts() {
    let uri = format!("/{}", "x".repeat(PART_BYTES_MAX / 2));
    let ids: Vec<String> = (0..5).map(|number| number.to_string()).collect();
    let all: Vec<(&str, &str)> = ids.iter().map(|id| (&**id, &*uri)).collect();
    let fixture = SenderFixture::of(&all);
    let (_, is_whole, objects) = fixture.receive();
    assert_eq!((is_whole, objects.len()), (true, 5));
}

#[test]
fn a_stalled_predecessor_is_a_problem_until_it_exits() {
    let mut fixture = SenderFixture::of(&[]);
    fixture.receive();
    let expect_problems = |expected: usize| match fixture.problems.recv_timeout(LONG).unwrap() {
        ControlMessage::Problems(ProblemSource::Upgrade, problems) => {
            assert_eq!(problems.len(), expected, "{problems:?}")
        }
        _ => panic!("not a problem"),
    };
    expect_problems(1);
    assert!(!fixture.applied_within(1, Duration::ZERO));
    fixture.reports.update(|all| all.has_exited = true);
    fixture.applied_tracker.predecessor_ended();
    expect_problems(0);
    assert!(fixture.applied_within(1, LONG));
    fixture.sender.take().unwrap().join().unwrap();
}

//! The predecessor receives the complete state once, then changes. A revision is applied only after it has
//! followed.

use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use serde_json::json;
use yumen_config::{Kind, Resource};
use yumen_store::{HistoryRetention, MemoryMedium, Revision};

use super::*;

/// A serving process, and the predecessor's end of its channel.
struct Pair {
    held: Arc<HandoverStore>,
    reach: Arc<AppliedTracker>,
    before: Arc<PredecessorStatus>,
    other: HandoverChannel,
    problems: Receiver<ControlMessage>,
    telling: Option<std::thread::JoinHandle<()>>,
}

impl Pair {
    fn of(resources: &[(&str, &str)]) -> Pair {
        let retention = HistoryRetention { revisions_max: 1, bytes_max: 1, age_max: None };
        let store: Arc<dyn yumen_store::Store> =
            Arc::new(MemoryMedium::store_of(StoreState::default(), retention).unwrap());
        let held = Arc::new(HandoverStore::new(&store, None));
        let (one, other) = UnixStream::pair().unwrap();
        let (reach, before) = (Arc::new(AppliedTracker::new(false)), Arc::new(PredecessorStatus::default()));
        let (messages, problems) = channel();
        let (telling_of, to, told) = (reach.clone(), before.clone(), held.clone());
        let telling = std::thread::spawn(move || {
            let channel = HandoverChannel::new(one);
            ConfigSender { channel: &channel, before: &to, held: told, reach: telling_of, messages }.run();
        });
        let pair = Pair {
            held,
            reach,
            before,
            other: HandoverChannel::new(other),
            problems,
            telling: Some(telling),
        };
        pair.publish(1, resources);
        pair
    }

    /// Publishes a state with these resources.
    fn publish(&self, revision: u64, resources: &[(&str, &str)]) {
        let key = |id: &str| yumen_store::ResourceKey::new(Kind::Routes, id);
        let put = resources.iter().map(|(id, uri)| {
            let json = Resource::new(Kind::Routes, id, &json!({"uri": uri})).json;
            (key(id), Some((json, None)))
        });
        self.held.override_state(StoreState::default().with(Revision(revision), put));
        self.reach.published_here(Revision(revision));
    }

    /// Receives the next complete update, with all its parts.
    fn hear(&self) -> (u64, bool, Vec<String>) {
        let mut all = Vec::new();
        loop {
            let said = self.other.receive(Some(Instant::now() + Duration::from_secs(20))).unwrap();
            let SuccessorMessage::Configured(told) = said else { panic!("{said:?}") };
            all.extend(told.objects.into_iter().map(|ObjectText { kind, id, json, .. }| {
                format!("{kind}/{id} {}", json.unwrap_or_else(|| "gone".to_owned()).len())
            }));
            if !told.is_more_to_come {
                return (told.revision, told.is_whole, all);
            }
        }
    }

    fn applied_within(&self, revision: u64, within: Duration) -> bool {
        let until = Instant::now() + within;
        while *self.reach.applied().borrow() != Revision(revision) {
            if Instant::now() > until {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }
}

const LONG: Duration = Duration::from_secs(20);

#[test]
fn the_whole_is_told_once_and_then_what_differs() {
    let pair = Pair::of(&[("1", "/1"), ("2", "/2")]);
    let text = r#"{"uri":"/1"}"#.len();
    assert_eq!(pair.hear(), (1, true, vec![format!("routes/1 {text}"), format!("routes/2 {text}")]));
    assert!(!pair.applied_within(1, Duration::from_millis(50)));
    // Changes during the wait are combined into one update.
    pair.publish(2, &[("1", "/1"), ("2", "/22")]);
    pair.publish(3, &[("1", "/1"), ("3", "/3")]);
    pair.before.is_in_force();
    assert_eq!(pair.hear(), (3, false, vec!["routes/2 4".to_owned(), format!("routes/3 {text}")]));
    assert!(!pair.applied_within(1, Duration::from_millis(50)), "those before it have yet to follow");
    pair.before.has_followed(1, &pair.reach);
    assert!(pair.applied_within(1, LONG));
    pair.before.is_in_force();
    pair.before.has_followed(2, &pair.reach);
    assert!(pair.applied_within(3, LONG));
    // Resolved addresses cause no update.
    pair.reach.published_here(Revision(4));
    assert!(pair.applied_within(4, LONG));
}

#[test]
fn the_end_of_an_object_is_told_with_it() {
    let pair = Pair::of(&[("1", "/1")]);
    pair.hear();
    pair.before.is_in_force();
    let text = Resource::new(Kind::Routes, "1", &json!({"uri": "/1"})).json;
    let ends = (yumen_store::ResourceKey::new(Kind::Routes, "1"), Some((text, Some(7))));
    pair.held.override_state(StoreState::default().with(Revision(2), [ends]));
    pair.reach.published_here(Revision(2));
    let said = pair.other.receive(Some(Instant::now() + LONG)).unwrap();
    let SuccessorMessage::Configured(told) = said else { panic!("{said:?}") };
    assert_eq!(told.objects[0].expires_ms, Some(7));
}

#[test]
fn a_large_configuration_comes_in_parts() {
    let uri = format!("/{}", "x".repeat(TOGETHER_BYTES / 2));
    let ids: Vec<String> = (0..5).map(|number| number.to_string()).collect();
    let all: Vec<(&str, &str)> = ids.iter().map(|id| (&**id, &*uri)).collect();
    let pair = Pair::of(&all);
    let (_, is_whole, objects) = pair.hear();
    assert_eq!((is_whole, objects.len()), (true, 5));
}

#[test]
fn a_process_that_does_not_follow_is_told_of_until_it_has_ended() {
    let mut pair = Pair::of(&[]);
    pair.hear();
    let told = |expected: usize| match pair.problems.recv_timeout(LONG).unwrap() {
        ControlMessage::Problems(ProblemSource::Upgrade, problems) => {
            assert_eq!(problems.len(), expected, "{problems:?}")
        }
        _ => panic!("something else is said"),
    };
    told(1);
    assert!(!pair.applied_within(1, Duration::ZERO));
    pair.before.has_ended();
    pair.reach.go_on_alone();
    told(0);
    assert!(pair.applied_within(1, LONG));
    pair.telling.take().unwrap().join().unwrap();
}

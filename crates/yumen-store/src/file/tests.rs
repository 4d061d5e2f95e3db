use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use super::*;
use FileEvent::{Changed, HalfWritten, Recovered, Unreadable, Vanished};

/// A directory per test, removed at the end, with a watched file.
struct Bench {
    directory: PathBuf,
    path: PathBuf,
    events: Receiver<(Instant, FileEvent)>,
    guard: Option<WatchGuard>,
}

impl Bench {
    fn new(name: &str, prepare: impl FnOnce(&Path) -> PathBuf) -> Bench {
        let directory = std::env::temp_dir().join(format!("yumen-file-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        let path = prepare(&directory);
        let store = FileStore::open(&path).unwrap();
        store.read().unwrap();
        let (sender, events) = channel();
        let guard = store.watch(move |event| sender.send((Instant::now(), event)).unwrap()).unwrap();
        // After the first check, so that the next write is a change and not the initial text.
        thread::sleep(Duration::from_millis(50));
        Bench { directory, path, events, guard: Some(guard) }
    }

    fn of(name: &str, text: &str) -> Bench {
        Bench::new(name, |directory| {
            let path = directory.join("routes.yaml");
            fs::write(&path, text).unwrap();
            path
        })
    }

    fn expect(&self, expected: FileEvent) -> Instant {
        let (at, event) = self.events.recv_timeout(Duration::from_secs(60)).expect("an event");
        assert_eq!(event, expected);
        at
    }

    fn expect_nothing(&self, within: Duration) {
        assert_eq!(self.events.recv_timeout(within).ok(), None);
    }

    fn replace(&self, text: &str) {
        let draft = self.directory.join("draft");
        fs::write(&draft, text).unwrap();
        fs::rename(&draft, &self.path).unwrap();
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.guard.take();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn changed(text: &str) -> FileEvent {
    Changed(text.to_owned())
}

const SUPPRESS_FOR: Duration = Duration::from_millis(150);

#[test]
fn write_in_place_is_reported_once() {
    let bench = Bench::of("in-place", "a");
    fs::write(&bench.path, "b").unwrap();
    bench.expect(changed("b"));
    bench.expect_nothing(Duration::from_millis(1200));
}

#[test]
fn every_rename_over_the_file_is_reported() {
    let bench = Bench::of("rename", "a");
    let mut waits: Vec<Duration> = ["b", "c", "d", "e", "f", "g", "h", "i", "j"]
        .map(|text| {
            let start = Instant::now();
            bench.replace(text);
            bench.expect(changed(text)).saturating_duration_since(start)
        })
        .into();
    waits.sort();
    // Most of them sooner than polling once per second.
    assert!(waits[3] < Duration::from_millis(500), "{waits:?}");
}

#[cfg(unix)]
#[test]
fn every_swapped_directory_link_is_reported() {
    use std::os::unix::fs::symlink;
    let version = |directory: &Path, name: &str| {
        fs::create_dir(directory.join(name)).unwrap();
        fs::write(directory.join(name).join("routes.yaml"), name).unwrap();
    };
    let bench = Bench::new("links", |directory| {
        version(directory, "..one");
        symlink("..one", directory.join("..data")).unwrap();
        symlink("..data/routes.yaml", directory.join("routes.yaml")).unwrap();
        directory.join("routes.yaml")
    });
    for (old, new) in [("..one", "..two"), ("..two", "..three")] {
        version(&bench.directory, new);
        symlink(new, bench.directory.join("..draft")).unwrap();
        fs::rename(bench.directory.join("..draft"), bench.directory.join("..data")).unwrap();
        fs::remove_dir_all(bench.directory.join(old)).unwrap();
        bench.expect(changed(new));
    }
}

#[cfg(unix)]
#[test]
fn write_to_a_link_target_is_reported() {
    let bench = Bench::new("target", |directory| {
        fs::create_dir(directory.join("elsewhere")).unwrap();
        fs::write(directory.join("elsewhere/real.yaml"), "a").unwrap();
        std::os::unix::fs::symlink("elsewhere/real.yaml", directory.join("routes.yaml")).unwrap();
        directory.join("routes.yaml")
    });
    fs::write(bench.directory.join("elsewhere/real.yaml"), "b changed").unwrap();
    bench.expect(changed("b changed"));
}

#[test]
fn removal_and_return_of_the_file_are_reported() {
    let bench = Bench::of("vanish", "a");
    fs::remove_file(&bench.path).unwrap();
    bench.expect(Vanished);
    fs::write(&bench.path, "a").unwrap();
    bench.expect(Recovered("a".into()));
    fs::remove_file(&bench.path).unwrap();
    bench.expect(Vanished);
    bench.expect_nothing(Duration::from_millis(1200));
    fs::write(&bench.path, "b").unwrap();
    bench.expect(changed("b"));
}

#[test]
fn a_directory_that_is_replaced_is_watched_again() {
    let bench = Bench::new("directory", |directory| {
        fs::create_dir(directory.join("sub")).unwrap();
        fs::write(directory.join("sub/routes.yaml"), "a").unwrap();
        directory.join("sub/routes.yaml")
    });
    fs::remove_dir_all(bench.directory.join("sub")).unwrap();
    bench.expect(Vanished);
    fs::create_dir(bench.directory.join("sub")).unwrap();
    fs::write(&bench.path, "b").unwrap();
    bench.expect(changed("b"));
    thread::sleep(Duration::from_millis(50));
    fs::write(&bench.path, "c").unwrap();
    bench.expect(changed("c"));
}

#[test]
fn a_text_that_lost_its_end_is_kept_back_until_it_is_whole() {
    let bench = Bench::of("half", "a\n#END\n");
    fs::write(&bench.path, "b\n").unwrap();
    bench.expect_nothing(Duration::from_millis(300));
    fs::write(&bench.path, "b\nc\n#END\n").unwrap();
    bench.expect(changed("b\nc\n#END\n"));
    bench.expect_nothing(Duration::from_millis(1200));
}

#[test]
fn unterminated_text_is_reported_once_and_not_used() {
    let bench = Bench::of("stays-half", "a\n#END\n");
    let start = Instant::now();
    fs::write(&bench.path, "b\n").unwrap();
    let waited = bench.expect(HalfWritten).saturating_duration_since(start);
    assert!(waited >= Duration::from_millis(900), "told after {waited:?}");
    bench.expect_nothing(Duration::from_millis(1500));
    fs::write(&bench.path, "a\n#END\n").unwrap();
    bench.expect(Recovered("a\n#END\n".into()));
}

#[test]
fn json_says_by_itself_whether_it_is_whole() {
    let bench = Bench::of("json", "a\n#END\n");
    fs::write(&bench.path, "{\"routes\": [").unwrap();
    bench.expect(HalfWritten);
    for whole in ["{\"routes\": []}\n", "a: 1\n#END\n", "\u{feff} {}", "b: 1\n"] {
        fs::write(&bench.path, whole).unwrap();
        bench.expect(changed(whole));
    }
    let store = FileStore::open(&bench.path).unwrap().expecting_end();
    fs::write(&bench.path, "{}").unwrap();
    assert_eq!(store.read().unwrap(), "{}");
    // A text that starts like JSON and continues as YAML needs its `#END` line.
    for part in ["{}: 1\n", "{} {", "[]", "1"] {
        assert!(!is_whole(part), "{part}");
    }
}

#[test]
fn a_touch_tells_nothing() {
    let bench = Bench::of("touch", "a");
    let file = fs::File::options().write(true).open(&bench.path).unwrap();
    file.set_modified(std::time::SystemTime::now() + Duration::from_secs(60)).unwrap();
    drop(file);
    bench.replace("a");
    bench.expect_nothing(Duration::from_millis(1200));
}

#[test]
fn of_rapid_writes_the_last_wins() {
    let bench = Bench::of("rapid", "0");
    let text = |n: u32| format!("{n} ").repeat(2000);
    for n in 0..200 {
        fs::write(&bench.path, text(n)).unwrap();
    }
    let mut last = String::new();
    while last != text(199) {
        let (_, event) = bench.events.recv_timeout(Duration::from_secs(60)).expect("the last text");
        let Changed(state) = event else { panic!("{event:?}") };
        last = state;
    }
    bench.expect_nothing(SUPPRESS_FOR);
}

#[test]
fn growing_file_is_reported_when_stable() {
    use std::io::Write as _;
    let bench = Bench::of("growing", "a");
    let mut file = fs::File::create(&bench.path).unwrap();
    // Pauses far below the required rest. The machine may stall the test, so torn reads are counted.
    for _ in 0..100 {
        file.write_all(b"x").unwrap();
        thread::sleep(Duration::from_millis(1));
    }
    drop(file);
    let whole = changed(&"x".repeat(100));
    let mut events = 0;
    while let Ok((_, event)) = bench.events.recv_timeout(Duration::from_secs(60)) {
        events += 1;
        if event == whole {
            break;
        }
    }
    assert!((1..=30).contains(&events), "{events} events");
    bench.expect_nothing(SUPPRESS_FOR);
}

#[test]
fn non_text_file_is_unreadable() {
    let bench = Bench::of("bytes", "a");
    fs::write(&bench.path, [0xff, 0xfe]).unwrap();
    let (_, event) = bench.events.recv_timeout(Duration::from_secs(60)).unwrap();
    assert!(matches!(event, Unreadable(_)), "{event:?}");
    fs::write(&bench.path, "a").unwrap();
    bench.expect(Recovered("a".into()));
}

#[test]
fn neighbours_tell_nothing() {
    let bench = Bench::of("neighbours", "a");
    for n in 0..50 {
        fs::write(bench.directory.join(format!("other-{n}")), "x").unwrap();
    }
    bench.expect_nothing(SUPPRESS_FOR);
}

#[test]
fn change_between_read_and_watch_is_reported() {
    let bench = Bench::of("between", "a");
    let store = FileStore::open(&bench.path).unwrap();
    assert_eq!(store.read().unwrap(), "a");
    fs::write(&bench.path, "b").unwrap();
    let (sender, events) = channel();
    let _guard = store.watch(move |event| sender.send(event).unwrap()).unwrap();
    assert_eq!(events.recv_timeout(Duration::from_secs(60)).unwrap(), changed("b"));
}

#[test]
fn a_dropped_guard_ends_the_watch_at_once() {
    let mut bench = Bench::of("dropped", "a");
    let start = Instant::now();
    bench.guard.take();
    assert!(start.elapsed() < Duration::from_secs(10), "the guard waited");
    fs::write(&bench.path, "b").unwrap();
    bench.expect_nothing(SUPPRESS_FOR);
}

#[test]
fn a_missing_file_and_a_directory_cannot_be_opened() {
    let directory = std::env::temp_dir();
    assert!(FileStore::open(directory.join("yumen-no-such-file")).is_err());
    assert!(FileStore::open(directory).is_err());
}

//! Rules of the watch machine, one by one. `simulation` checks them together.

use super::{WatchInput, WatchMachine, WatchOutput, WatchStep};
use crate::error::ApiError;
use crate::kind::WatchTarget;
use crate::object::RawObjectChange;

fn machine() -> WatchMachine {
    WatchMachine::new(WatchTarget::new("g", "things", "Thing", &["v1", "v1beta1"]), 1)
}

fn page(version: u64, objects: &[(&str, u64)], token: &str) -> String {
    let items: Vec<String> = objects.iter().map(|(name, version)| object(name, *version)).collect();
    let items = items.join(",");
    format!(r#"{{"metadata":{{"resourceVersion":"{version}","continue":"{token}"}},"items":[{items}]}}"#)
}

fn object(name: &str, version: u64) -> String {
    format!(r#"{{"metadata":{{"name":"{name}","resourceVersion":"{version}"}}}}"#)
}

fn line(kind: &str, name: &str, version: u64) -> String {
    format!(r#"{{"type":"{kind}","object":{}}}"#, object(name, version))
}

/// Outputs in short: `= a b` replaced, `+ a` put, `- a` deleted, and the names of the others.
fn brief(outputs: &[WatchOutput]) -> Vec<String> {
    let word = |output: &WatchOutput| match output {
        WatchOutput::Replaced(objects) => {
            let names: Vec<&str> = objects.iter().map(|object| &*object.name).collect();
            format!("={}", names.join(" "))
        }
        WatchOutput::Changed(RawObjectChange::Put(object)) => format!("+{}", object.name),
        WatchOutput::Changed(RawObjectChange::Delete(object)) => format!("-{}", object.name),
        WatchOutput::Absent => "absent".to_owned(),
        WatchOutput::Denied(_) => "denied".to_owned(),
        WatchOutput::Failed(_) => "failed".to_owned(),
    };
    outputs.iter().map(word).collect()
}

/// Feeds an input and compares outputs and the step that follows.
fn check(machine: &mut WatchMachine, now_ms: u64, input: WatchInput<'_>, outputs: &[&str], step: &WatchStep) {
    let text = format!("{input:?}");
    let found = machine.take(input, now_ms);
    assert_eq!(brief(&found), outputs, "{text}");
    assert_eq!(&machine.next(now_ms), step, "{text}");
}

fn list(token: Option<&str>) -> WatchStep {
    WatchStep::List { version: "v1".to_owned(), limit: Some(500), continue_token: token.map(str::to_owned) }
}

fn watch(version: &str) -> WatchStep {
    WatchStep::Watch { version: "v1".to_owned(), resource_version: version.to_owned() }
}

fn served() -> WatchInput<'static> {
    WatchInput::Served(Some("v1".to_owned()))
}

/// A machine that watches from version 10 with objects `a` and `b`.
fn watching() -> WatchMachine {
    let mut machine = machine();
    assert_eq!(machine.next(0), WatchStep::Discover);
    check(&mut machine, 0, served(), &[], &list(None));
    check(
        &mut machine,
        0,
        WatchInput::Page(page(10, &[("a", 3), ("b", 7)], "").as_bytes()),
        &["=a b"],
        &watch("10"),
    );
    machine
}

/// The end of the pause that the machine is in.
fn pause_end(machine: &mut WatchMachine, now_ms: u64) -> u64 {
    match machine.next(now_ms) {
        WatchStep::Pause { until_ms } => until_ms,
        step => panic!("{step:?} instead of a pause"),
    }
}

#[test]
fn pages_are_collected_and_replace_once() {
    let mut machine = machine();
    check(&mut machine, 0, served(), &[], &list(None));
    check(&mut machine, 0, WatchInput::Page(page(10, &[("a", 3)], "t1").as_bytes()), &[], &list(Some("t1")));
    check(&mut machine, 0, WatchInput::Page(page(10, &[("b", 4)], "t2").as_bytes()), &[], &list(Some("t2")));
    check(&mut machine, 0, WatchInput::Page(page(10, &[("c", 5)], "").as_bytes()), &["=a b c"], &watch("10"));
}

#[test]
fn changes_and_bookmarks_move_the_position() {
    let mut machine = watching();
    check(&mut machine, 1, WatchInput::Line(line("ADDED", "c", 12).as_bytes()), &["+c"], &watch("12"));
    check(&mut machine, 2, WatchInput::Line(line("DELETED", "a", 13).as_bytes()), &["-a"], &watch("13"));
    check(&mut machine, 3, WatchInput::Line(line("BOOKMARK", "", 20).as_bytes()), &[], &watch("20"));
    assert_eq!(machine.confirmed_ms(), Some(3));
}

#[test]
fn changes_at_or_before_the_position_are_ignored() {
    let mut machine = watching();
    check(&mut machine, 1, WatchInput::Line(line("DELETED", "a", 13).as_bytes()), &["-a"], &watch("13"));
    check(&mut machine, 1, WatchInput::Line(line("ADDED", "a", 3).as_bytes()), &[], &watch("13"));
    check(&mut machine, 1, WatchInput::Line(line("MODIFIED", "b", 13).as_bytes()), &[], &watch("13"));
    check(&mut machine, 1, WatchInput::Line(line("BOOKMARK", "", 9).as_bytes()), &[], &watch("13"));
}

#[test]
fn an_expired_position_lists_again_after_a_pause() {
    let mut machine = watching();
    let error = br#"{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old"}}"#;
    assert!(machine.take(WatchInput::Line(error), 5000).is_empty());
    assert!(!machine.is_watching());
    let until_ms = pause_end(&mut machine, 5000);
    assert!((5800..=6200).contains(&until_ms), "{until_ms}");
    assert_eq!(machine.next(until_ms), list(None));
    let again = page(30, &[("b", 7)], "");
    check(&mut machine, until_ms, WatchInput::Page(again.as_bytes()), &["=b"], &watch("30"));
}

#[test]
fn an_expired_token_lists_without_pages() {
    let mut machine = machine();
    check(&mut machine, 0, served(), &[], &list(None));
    check(&mut machine, 0, WatchInput::Page(page(10, &[("a", 3)], "t1").as_bytes()), &[], &list(Some("t1")));
    assert!(machine.take(WatchInput::Failed(ApiError::Gone(String::new())), 0).is_empty());
    let until_ms = pause_end(&mut machine, 0);
    let whole = WatchStep::List { version: "v1".to_owned(), limit: None, continue_token: None };
    assert_eq!(machine.next(until_ms), whole);
    check(
        &mut machine,
        until_ms,
        WatchInput::Page(page(12, &[("z", 3)], "").as_bytes()),
        &["=z"],
        &watch("12"),
    );
}

#[test]
fn a_failed_page_is_repeated_with_its_token() {
    let mut machine = machine();
    check(&mut machine, 0, served(), &[], &list(None));
    check(&mut machine, 0, WatchInput::Page(page(10, &[("a", 3)], "t1").as_bytes()), &[], &list(Some("t1")));
    let outputs = machine.take(WatchInput::Failed(ApiError::Unreachable(String::new())), 0);
    assert_eq!(brief(&outputs), ["failed"]);
    let until_ms = pause_end(&mut machine, 0);
    assert_eq!(machine.next(until_ms), list(Some("t1")));
    check(
        &mut machine,
        until_ms,
        WatchInput::Page(page(10, &[("b", 4)], "").as_bytes()),
        &["=a b"],
        &watch("10"),
    );
}

#[test]
fn a_watch_that_ends_looks_up_the_version_and_resumes() {
    let mut machine = watching();
    check(&mut machine, 290_000, WatchInput::Ended, &[], &WatchStep::Discover);
    check(&mut machine, 290_000, served(), &[], &watch("10"));
    check(&mut machine, 620_000, WatchInput::Silent, &[], &WatchStep::Discover);
    check(&mut machine, 620_000, served(), &[], &watch("10"));
    // An end right after the start pauses.
    machine.take(WatchInput::Ended, 620_100);
    assert!(pause_end(&mut machine, 620_100) >= 620_900);
}

#[test]
fn another_version_lists_again() {
    let mut machine = watching();
    check(&mut machine, 9000, WatchInput::Recheck, &[], &WatchStep::Discover);
    let other = WatchInput::Served(Some("v1beta1".to_owned()));
    let step = WatchStep::List { version: "v1beta1".to_owned(), limit: Some(500), continue_token: None };
    check(&mut machine, 9000, other, &[], &step);
}

#[test]
fn a_denied_kind_is_tried_again_after_1_s_and_later_every_30_s() {
    let mut machine = watching();
    check(
        &mut machine,
        5,
        WatchInput::Failed(ApiError::Denied(String::new())),
        &["denied"],
        &WatchStep::Pause { until_ms: 1005 },
    );
    // Reported once.
    let mut now_ms = 1005;
    for pause_ms in [2000, 4000, 8000, 16_000, 30_000, 30_000] {
        assert_eq!(machine.next(now_ms), WatchStep::Discover);
        check(&mut machine, now_ms, served(), &[], &list(None));
        assert!(machine.take(WatchInput::Failed(ApiError::Denied(String::new())), now_ms).is_empty());
        assert_eq!(pause_end(&mut machine, now_ms), now_ms + pause_ms);
        now_ms += pause_ms;
    }
    // A changed definition or role is tried at once.
    let now_ms = now_ms - 5000;
    check(&mut machine, now_ms, WatchInput::Recheck, &[], &WatchStep::Discover);
    check(&mut machine, now_ms, served(), &[], &list(None));
    check(&mut machine, now_ms, WatchInput::Page(page(50, &[], "").as_bytes()), &["="], &watch("50"));
}

#[test]
fn denied_discovery_tries_versions_in_order() {
    let mut machine = machine();
    let denied = || WatchInput::Failed(ApiError::Denied(String::new()));
    let missing = || WatchInput::Failed(ApiError::NotFound(String::new()));
    check(&mut machine, 0, denied(), &[], &list(None));
    assert!(machine.take(missing(), 0).is_empty());
    let until_ms = pause_end(&mut machine, 0);
    check(&mut machine, until_ms, denied(), &[], &list(None));
    assert_eq!(brief(&machine.take(missing(), until_ms)), ["absent"]);
    let later_ms = pause_end(&mut machine, until_ms);
    machine.take(denied(), later_ms);
    assert_eq!(machine.api_version(), Some("v1"));
    machine.take(missing(), later_ms);
    let later_ms = pause_end(&mut machine, later_ms);
    machine.take(denied(), later_ms);
    assert_eq!(machine.api_version(), Some("v1beta1"));
}

#[test]
fn an_absent_kind_keeps_its_objects_for_60_s() {
    let mut machine = watching();
    machine.take(WatchInput::Ended, 2000);
    let pause = |until_ms| WatchStep::Pause { until_ms };
    check(&mut machine, 2000, WatchInput::Served(None), &["absent"], &pause(3000));
    check(&mut machine, 32_000, WatchInput::Served(None), &[], &pause(34_000));
    check(&mut machine, 62_000, WatchInput::Served(None), &["="], &pause(66_000));
    check(&mut machine, 92_000, WatchInput::Served(None), &[], &pause(100_000));
    check(&mut machine, 93_000, WatchInput::Recheck, &[], &WatchStep::Discover);
    check(&mut machine, 93_000, served(), &[], &list(None));
    check(
        &mut machine,
        93_000,
        WatchInput::Page(page(90, &[("n", 80)], "").as_bytes()),
        &["=n"],
        &watch("90"),
    );
}

#[test]
fn an_obstacle_is_reported_again_after_a_failure() {
    let unreachable = || WatchInput::Failed(ApiError::Unreachable("no answer".into()));
    let denied = || WatchInput::Failed(ApiError::Denied(String::new()));
    let mut machine = machine();
    assert_eq!(brief(&machine.take(WatchInput::Served(None), 0)), ["absent"]);
    assert_eq!(brief(&machine.take(unreachable(), 1000)).len(), 1);
    assert_eq!(brief(&machine.take(WatchInput::Served(None), 7000)), ["absent"]);
    assert!(machine.take(WatchInput::Served(None), 40_000).is_empty());
    let mut machine = watching();
    assert_eq!(brief(&machine.take(denied(), 5)), ["denied"]);
    assert_eq!(brief(&machine.take(unreachable(), 1005)).len(), 1);
    machine.take(served(), 7000);
    assert_eq!(brief(&machine.take(denied(), 7000)), ["denied"]);
}

#[test]
fn a_changed_definition_is_looked_for_every_second() {
    let mut machine = machine();
    let pause = |until_ms| WatchStep::Pause { until_ms };
    check(&mut machine, 0, WatchInput::Served(None), &["absent"], &pause(1000));
    check(&mut machine, 5_000, WatchInput::Recheck, &[], &WatchStep::Discover);
    check(&mut machine, 5_100, WatchInput::Served(None), &[], &pause(6_100));
    check(&mut machine, 14_900, WatchInput::Served(None), &[], &pause(15_900));
    check(&mut machine, 15_900, WatchInput::Served(None), &[], &pause(17_900));
}

#[test]
fn a_kind_that_was_never_listed_is_absent_only() {
    let mut machine = machine();
    let pause = |until_ms| WatchStep::Pause { until_ms };
    check(&mut machine, 0, WatchInput::Served(None), &["absent"], &pause(1000));
    check(&mut machine, 60_000, WatchInput::Served(None), &[], &pause(62_000));
}

#[test]
fn retry_after_is_kept() {
    let mut machine = watching();
    let throttled = ApiError::Throttled { after_ms: 45_000, message: String::new() };
    let pause = WatchStep::Pause { until_ms: 45_001 };
    check(&mut machine, 1, WatchInput::Failed(throttled), &["failed"], &pause);
    // A changed definition does not end it.
    let outputs = machine.take(WatchInput::Recheck, 2);
    assert!(outputs.is_empty());
    assert_eq!(machine.next(2), pause);
}

#[test]
fn an_older_list_is_refused_until_it_persists() {
    let mut machine = watching();
    machine.take(WatchInput::Line(line("ADDED", "c", 40).as_bytes()), 0);
    machine.take(WatchInput::Failed(ApiError::Gone(String::new())), 0);
    let mut now_ms = pause_end(&mut machine, 0);
    for _ in 0..5 {
        let outputs = machine.take(WatchInput::Page(page(39, &[("a", 3)], "").as_bytes()), now_ms);
        assert_eq!(brief(&outputs), ["failed"]);
        now_ms = pause_end(&mut machine, now_ms);
    }
    check(
        &mut machine,
        now_ms,
        WatchInput::Page(page(39, &[("a", 3)], "").as_bytes()),
        &["=a"],
        &watch("39"),
    );
}

#[test]
fn malformed_lines_list_again() {
    let mut machine = watching();
    for text in [&b"{"[..], b"", b"null", b"{\"type\":\"ADDED\"}", b"{\"type\":\"ADDED\",\"object\":{}}"] {
        assert_eq!(brief(&machine.take(WatchInput::Line(text), 0)), ["failed"], "{text:?}");
        let until_ms = pause_end(&mut machine, 0);
        assert_eq!(machine.next(until_ms), list(None));
        check(&mut machine, until_ms, WatchInput::Page(page(10, &[], "").as_bytes()), &["="], &watch("10"));
    }
}

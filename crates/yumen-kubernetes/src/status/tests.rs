use serde_json::{Value, json};
use yumen_base::time::Now;

use super::*;
use crate::resources::{ResourceName, TranslatedKind};

const US: &str = "gateway.yumen.io/controller";

/// Facts by the last letter of an id: `o`pen, opening (`w`ait), `f`ailed, `b`roken.
struct LetterFacts;

impl RuntimeFacts for LetterFacts {
    fn is_applied(&self, name: &ResourceName) -> bool {
        !name.id.ends_with('w')
    }

    fn listener(&self, id: &str) -> ListenerFact {
        match id.as_bytes().last() {
            Some(b'w') => ListenerFact::Opening,
            Some(b'f') => ListenerFact::Failed("0.0.0.0:80: address in use".to_owned()),
            _ => ListenerFact::Open,
        }
    }

    fn defect(&self, name: &ResourceName) -> Option<String> {
        name.id.ends_with('b').then(|| "unknown field".to_owned())
    }
}

fn at(seconds: u64) -> Now {
    Now { mono_us: 0, unix_ms: seconds * 1000 }
}

fn entry(place: StatusPlace, conditions: Vec<ConditionDraft>) -> StatusEntry {
    StatusEntry { place, conditions, fields: serde_json::Map::new() }
}

fn draft(generation: i64, entries: Vec<StatusEntry>) -> StatusDraft {
    StatusDraft { generation, entries, fields: serde_json::Map::new() }
}

fn accepted(is_true: bool) -> Vec<ConditionDraft> {
    vec![ConditionDraft::fixed("Accepted", is_true, if is_true { "Accepted" } else { "Invalid" }, "m")]
}

#[test]
fn facts_decide_conditions() {
    let check = |value: ConditionValue, listeners: &str, expected: (&str, &str)| {
        let needs = listeners.chars().map(|c| ResourceName::new(TranslatedKind::Listeners, format!("l!{c}")));
        let condition = ConditionDraft::depending("Programmed", value, "Programmed", needs.collect());
        let status = finish(
            &draft(1, vec![entry(StatusPlace::Root, vec![condition])]),
            US,
            &LetterFacts,
            &Value::Null,
            at(0),
        );
        let condition = &status["conditions"][0];
        let found = (condition["status"].as_str().unwrap(), condition["reason"].as_str().unwrap());
        assert_eq!(found, expected, "{value:?} {listeners}");
    };
    check(ConditionValue::WhenApplied, "", ("True", "Programmed"));
    check(ConditionValue::WhenApplied, "oo", ("True", "Programmed"));
    check(ConditionValue::WhenApplied, "ow", ("False", "Pending"));
    check(ConditionValue::WhenApplied, "wf", ("False", "Invalid"));
    check(ConditionValue::WhenApplied, "ob", ("False", "Invalid"));
    check(ConditionValue::WhenAnyApplied, "of", ("True", "Programmed"));
    check(ConditionValue::WhenAnyApplied, "wf", ("False", "Pending"));
    check(ConditionValue::WhenAnyApplied, "fb", ("False", "Invalid"));
    check(ConditionValue::UnlessFailed, "ow", ("True", "Programmed"));
    check(ConditionValue::UnlessFailed, "of", ("False", "PortUnavailable"));
    check(ConditionValue::UnlessFailed, "ob", ("False", "UnsupportedValue"));
}

#[test]
fn time_changes_with_the_state_only() {
    let root = |is_true| draft(1, vec![entry(StatusPlace::Root, accepted(is_true))]);
    let first = finish(&root(true), US, &LetterFacts, &Value::Null, at(60));
    assert_eq!(first["conditions"][0]["lastTransitionTime"], "1970-01-01T00:01:00Z");
    let second = finish(&root(true), US, &LetterFacts, &first, at(120));
    assert_eq!(second, first);
    let third = finish(&root(false), US, &LetterFacts, &second, at(120));
    assert_eq!(third["conditions"][0]["lastTransitionTime"], "1970-01-01T00:02:00Z");
}

#[test]
fn entries_of_other_controllers_stay_in_place() {
    let parent = |name: &str| json!({ "kind": "Gateway", "name": name });
    let foreign =
        json!({ "parentRef": parent("x"), "controllerName": "other", "conditions": [{ "type": "Odd" }] });
    let ours = |name: &str| json!({ "parentRef": parent(name), "controllerName": US, "conditions": [] });
    let previous = json!({ "parents": [ours("a"), foreign, ours("b"), ours("b")] });
    let next =
        draft(3, ["b", "c"].map(|name| entry(StatusPlace::Parent(parent(name)), accepted(true))).into());
    let status = finish(&next, US, &LetterFacts, &previous, at(0));
    let parents = status["parents"].as_array().unwrap();
    let names: Vec<&Value> = parents.iter().map(|entry| &entry["parentRef"]["name"]).collect();
    assert_eq!(names, ["x", "b", "c"]);
    assert_eq!(parents[0], foreign);
    assert_eq!(parents[1]["conditions"][0]["observedGeneration"], 3);

    let cleared = finish(&StatusDraft::default(), US, &LetterFacts, &status, at(0));
    assert_eq!(cleared, json!({ "parents": [foreign] }));
}

#[test]
fn newer_generations_are_not_overwritten() {
    let previous =
        json!({ "conditions": [{ "type": "Accepted", "status": "True", "observedGeneration": 5 }] });
    let old = draft(4, vec![entry(StatusPlace::Root, accepted(false))]);
    assert_eq!(finish(&old, US, &LetterFacts, &previous, at(0)), previous);
}

#[test]
fn conditions_of_other_writers_and_listeners_of_the_draft_remain() {
    let odd = json!({ "type": "example.com/Odd", "status": "True" });
    let previous = json!({
        "conditions": [odd, { "type": "Accepted", "status": "Unknown", "observedGeneration": 0 }],
        "listeners": [{ "name": "gone", "conditions": [] }],
        "addresses": [{ "value": "192.0.2.1" }],
    });
    let mut next = draft(
        1,
        vec![
            entry(StatusPlace::Root, accepted(true)),
            entry(StatusPlace::Listener("http".to_owned()), accepted(true)),
        ],
    );
    next.fields.insert("addresses".to_owned(), Value::Null);
    let status = finish(&next, US, &LetterFacts, &previous, at(0));
    assert_eq!(status["conditions"][1], odd);
    assert_eq!(status["conditions"].as_array().unwrap().len(), 2);
    assert_eq!(status["listeners"][0]["name"], "http");
    assert_eq!(status["listeners"].as_array().unwrap().len(), 1);
    assert_eq!(status.get("addresses"), None);
}

use super::*;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN: &str = "00f067aa0ba902b7";

#[test]
fn traceparent_is_parsed_by_the_recommendation() {
    fn check(text: &str, expected: Option<(bool, bool)>) {
        let parsed = TraceParent::parse(text.as_bytes());
        assert_eq!(parsed.map(|parent| (parent.is_sampled, parent.is_random)), expected, "{text}");
    }
    let of = |version: &str, flags: &str| format!("{version}-{TRACE}-{SPAN}-{flags}");
    check(&of("00", "01"), Some((true, false)));
    check(&of("00", "00"), Some((false, false)));
    check(&of("00", "03"), Some((true, true)));
    check(&of("00", "02"), Some((false, true)));
    // Unknown flags are ignored.
    check(&of("00", "ff"), Some((true, true)));
    check(&of("00", "08"), Some((false, false)));
    // A later version may be longer.
    check(&of("cc", "01"), Some((true, false)));
    check(&of("cc", "01-what-the-future-will-be-like"), Some((true, false)));
    check(&of("cc", "01.what-the-future-will-not-be-like"), None);
    check(&of("00", "01-more"), None);
    check(&of("00", "01-"), None);
    check(&of("ff", "01"), None);
    for bad in ["0x", "0", "00 ", "", "-0", "0G"] {
        check(&of(bad, "01"), None);
    }
    for bad in [".1", "0", "", "0G", "1 "] {
        check(&of("00", bad), None);
    }
    check(&format!("00-{}-{SPAN}-01", "0".repeat(32)), None);
    check(&format!("00-{TRACE}-{}-01", "0".repeat(16)), None);
    check(&format!("00-{}-{SPAN}-01", TRACE.to_uppercase()), None);
    check(&format!("00-{TRACE}-{}-01", SPAN.to_uppercase()), None);
    check(&format!("00-{TRACE}-{SPAN}_01"), None);
    check(&format!("00-{}.-{SPAN}-01", &TRACE[1..]), None);
    check(&format!("00-{}-{SPAN}-01", &TRACE[1..]), None);
    check(&format!("00-{TRACE}0-{SPAN}-01"), None);
    check(&format!("00-{TRACE}-{}.-01", &SPAN[1..]), None);
    check("", None);
    check("00", None);
    check(&"\u{e9}".repeat(40), None);
}

#[test]
fn traceparent_is_written_as_it_was_read() {
    for flags in ["00", "01", "02", "03"] {
        let text = format!("00-{TRACE}-{SPAN}-{flags}");
        let parent = TraceParent::parse(text.as_bytes()).expect("valid");
        assert_eq!(parent.text(), text.as_bytes());
    }
}

#[test]
fn several_parents_begin_a_new_trace() {
    let mut fields = Fields::default();
    assert_eq!(TraceParent::of(&fields), None);
    let text = format!("00-{TRACE}-{SPAN}-01");
    fields.add("Traceparent", text.as_bytes());
    assert!(TraceParent::of(&fields).is_some(), "names are case-insensitive");
    fields.add("traceparent", text.as_bytes());
    assert_eq!(TraceParent::of(&fields), None);
}

fn settled(lines: &[&str], has_parent: bool) -> Option<String> {
    let mut fields = Fields::default();
    lines.iter().for_each(|line| fields.add("tracestate", line.as_bytes()));
    settle_state(&mut fields, has_parent);
    assert!(fields.all("tracestate").count() <= 1);
    state(&fields).map(|text| String::from_utf8(text.to_vec()).expect("UTF-8"))
}

#[test]
fn tracestate_is_passed_on_if_it_is_valid() {
    fn check(lines: &[&str], expected: Option<&str>) {
        assert_eq!(settled(lines, true).as_deref(), expected, "{lines:?}");
        assert_eq!(settled(lines, false), None, "a new trace has no state");
    }
    check(&["congo=t61rcWkgMzE,rojo=00f067aa0ba902b7"], Some("congo=t61rcWkgMzE,rojo=00f067aa0ba902b7"));
    check(&["a=1, ,b=2"], Some("a=1, ,b=2"));
    check(&["a=1", "b=2, c=3"], Some("a=1,b=2,c=3"));
    check(&["foo@=1,foo@bar@baz=2,0a-_*/=3"], Some("foo@=1,foo@bar@baz=2,0a-_*/=3"));
    check(&["foo=a b  c"], Some("foo=a b  c"));
    for bad in
        ["foo", "foo=", "=1", "Foo=1", "foo =1", "foo=1=2", "_a=1", "foo=1,bar", "foo=\u{e9}", "fo.o=1"]
    {
        check(&[bad], None);
    }
    check(&[&format!("{}=1", "a".repeat(256))], Some(&format!("{}=1", "a".repeat(256))));
    check(&[&format!("{}=1", "a".repeat(257))], None);
    let members = |count: usize| (0..count).map(|at| format!("a{at}=1")).collect::<Vec<_>>().join(",");
    check(&[&members(32)], Some(&members(32)));
    check(&[&members(33)], None);
}

#[test]
fn a_long_tracestate_loses_long_members_first() {
    let long = format!("long={}", "x".repeat(200));
    let short = |at: usize| format!("k{at:02}={}", "y".repeat(20));
    let members: Vec<String> = (0..16).map(short).collect();
    let written = format!("{},{long},{}", members[..8].join(","), members[8..].join(","));
    assert_eq!(settled(&[&written], true), Some(members.join(",")));
    let members: Vec<String> = (0..30).map(short).collect();
    let kept = settled(&[&members.join(",")], true).expect("kept");
    assert!(kept.len() <= 512 && members.join(",").starts_with(&kept), "{kept}");
    assert!(kept.len() > 480, "no more than needed is left out");
}

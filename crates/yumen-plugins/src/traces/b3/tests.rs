use super::*;

const TRACE: &str = "80f198ee56343ba864fe8b2a57d3eff7";
const SHORT: &str = "64fe8b2a57d3eff7";
const SPAN: &str = "e457b5a2e4d86bd1";
const PARENT: &str = "05e3ac9a4f6e3b90";

/// Identifiers as `TRACE SPAN PARENT`, and the decision.
fn shown(context: B3Context) -> (String, B3Sampling) {
    let text = |id: Option<SpanId>| {
        id.map_or("-".to_owned(), |id| String::from_utf8_lossy(&hex_id::span_text(id)).into_owned())
    };
    let ids = context.ids.map_or(String::new(), |ids| {
        let trace = ids.trace_id.with_text(|text| String::from_utf8_lossy(text).into_owned());
        format!("{trace} {} {}", text(ids.span_id), text(ids.parent_id))
    });
    (ids, context.sampling)
}

#[test]
fn the_single_field_is_parsed() {
    fn check(text: &str, ids: &str, sampling: B3Sampling) {
        let found = B3Context::parse(text.as_bytes()).map(shown);
        assert_eq!(found, Ok((ids.to_owned(), sampling)), "{text}");
    }
    use B3Sampling::{Accepted, Debug, Denied, Undecided};
    check(&format!("{TRACE}-{SPAN}-1-{PARENT}"), &format!("{TRACE} {SPAN} {PARENT}"), Accepted);
    check(&format!("{TRACE}-{SPAN}-1"), &format!("{TRACE} {SPAN} -"), Accepted);
    check(&format!("{TRACE}-{SPAN}"), &format!("{TRACE} {SPAN} -"), Undecided);
    check(&format!("{SHORT}-{SPAN}-0"), &format!("{SHORT} {SPAN} -"), Denied);
    check(&format!("{TRACE}-{SPAN}-d"), &format!("{TRACE} {SPAN} -"), Debug);
    check(&format!("{TRACE}-{SPAN}-true"), &format!("{TRACE} {SPAN} -"), Accepted);
    check(&format!("{}-{SPAN}", TRACE.to_uppercase()), &format!("{TRACE} {SPAN} -"), Undecided);
    check("0", "", Denied);
    check("1", "", Accepted);
    check("d", "", Debug);
    // Invalid identifiers begin a new trace; the decision stays.
    check(&format!("{}-{SPAN}-1", &TRACE[1..]), "", Accepted);
    check(&format!("{TRACE}-{}-1", &SPAN[1..]), "", Accepted);
    check(&format!("{TRACE}-{SPAN}-1-{}", &PARENT[1..]), "", Accepted);
    check(&format!("{TRACE}-{SPAN}-1-{PARENT}-more"), "", Accepted);
    check(&format!("{}-{SPAN}-0", "0".repeat(32)), "", Denied);
    check(&format!("{TRACE}-{SPAN}-x"), &format!("{TRACE} {SPAN} -"), Undecided);
    check("-", "", Undecided);
    check("g-h-\u{e9}-i", "", Undecided);
}

#[test]
fn a_single_field_without_a_span_is_malformed() {
    for text in ["", "2", "true", TRACE, SHORT, "\u{e9}"] {
        assert_eq!(B3Context::parse(text.as_bytes()), Err(MalformedB3), "{text}");
    }
}

#[test]
fn several_fields_are_parsed() {
    fn check(written: &[(&str, &str)], ids: &str, sampling: B3Sampling) {
        let mut fields = Fields::default();
        written.iter().for_each(|(name, value)| fields.add(name, value.as_bytes()));
        assert_eq!(B3Context::of(&fields).map(shown), Ok((ids.to_owned(), sampling)), "{written:?}");
    }
    use B3Sampling::{Accepted, Debug, Denied, Undecided};
    let ids = [("X-B3-TraceId", TRACE), ("X-B3-SpanId", SPAN)];
    let all = format!("{TRACE} {SPAN} -");
    check(&[], "", Undecided);
    check(&ids, &all, Undecided);
    check(&[ids[0]], &format!("{TRACE} - -"), Undecided);
    check(&[ids[1]], "", Undecided);
    check(&[ids[0], ids[1], ("X-B3-ParentSpanId", PARENT)], &format!("{TRACE} {SPAN} {PARENT}"), Undecided);
    check(&[ids[0], ids[1], ("X-B3-Sampled", "1")], &all, Accepted);
    check(&[ids[0], ids[1], ("X-B3-Sampled", "0")], &all, Denied);
    check(&[ids[0], ids[1], ("X-B3-Sampled", "0"), ("X-B3-Flags", "1")], &all, Debug);
    check(&[ids[0], ids[1], ("X-B3-Sampled", "1"), ("X-B3-Flags", "0")], &all, Accepted);
    check(&[("X-B3-TraceId", "abc"), ids[1], ("X-B3-Sampled", "1")], "", Accepted);
    check(&[ids[0], ("X-B3-SpanId", "xyz")], "", Undecided);
    // The single field takes precedence.
    check(&[ids[0], ids[1], ("b3", "0")], "", Denied);
}

//! The response field that explains a request: compact JSON in ASCII, at most 6 KiB.

use std::fmt::Write;

use serde_json::{Value, json};
use yumen_plugin::{AttemptTiming, Exchange, PluginTiming};

use super::ExchangeStopwatch;

/// Size limit of the field, within the common limits of clients and proxies for one field.
const BYTES_MAX: usize = 6 * 1024;

/// Returns the explanation of an exchange as of its response head.
pub(crate) fn explain(watch: &ExchangeStopwatch, ex: &Exchange<'_>, upstream: Option<&str>) -> String {
    let arrival = watch.arrival.borrow();
    let arrival = arrival.as_ref();
    bounded(json!({
        "request": arrival.map(|arrival| &arrival.request),
        "certificate": arrival.and_then(|arrival| arrival.certificate.as_ref()),
        "matched_uri": arrival.map(|arrival| &arrival.matched_uri),
        "matched_host": arrival.map(|arrival| &arrival.matched_host),
        "candidates": arrival.map(|arrival| &arrival.candidates),
        "revision": watch.revision.get(),
        "route": ex.route.info.map(|route| &route.id),
        "consumer": ex.consumer.map(|consumer| &consumer.username),
        "upstream": upstream,
        "status": ex.response.status,
        "plugins": plugins(watch),
        "attempts": attempts(watch),
        "total_ns": watch.total_ns(),
    }))
}

/// Serializes the explanation; members that exceed the limit are replaced by a remark.
fn bounded(mut explanation: Value) -> String {
    let mut text = ascii(&explanation);
    // Long member lists and paths are replaced in this order until the text fits.
    for (member, instead) in [
        ("candidates", "omitted: too many"),
        ("plugins", "omitted: too many"),
        ("request", "omitted: too long"),
    ] {
        if text.len() <= BYTES_MAX {
            return text;
        }
        explanation[member] = Value::from(instead);
        text = ascii(&explanation);
    }
    if text.len() <= BYTES_MAX { text } else { r#"{"error":"omitted: too long"}"#.to_owned() }
}

fn plugins(watch: &ExchangeStopwatch) -> Vec<Value> {
    let describe = |ran: &PluginTiming| {
        let mut plugin = json!({
            "name": ran.name,
            "origin": ran.origin.as_deref(),
            "phase": ran.phase.name(),
            "run_ns": ran.run_ns,
        });
        if ran.wait_ns > 0 {
            plugin["wait_ns"] = ran.wait_ns.into();
        }
        if ran.answered {
            plugin["answered"] = true.into();
        }
        plugin
    };
    watch.plugins.borrow().iter().map(describe).collect()
}

fn attempts(watch: &ExchangeStopwatch) -> Vec<Value> {
    let describe = |tried: &AttemptTiming| {
        let mut attempt = json!({
            "endpoint": tried.endpoint.to_string(),
            "head_ns": tried.head_ns,
            "outcome": if tried.fault.is_empty() { "answered" } else { tried.fault },
        });
        match tried.connect_ns {
            Some(connect_ns) => attempt["connect_ns"] = connect_ns.into(),
            None => attempt["reused"] = true.into(),
        }
        attempt
    };
    watch.attempts.borrow().iter().map(describe).collect()
}

/// Serializes JSON with all other characters escaped, since peers differ in the encoding of non-ASCII field
/// values (RFC 9110 §5.5).
fn ascii(value: &Value) -> String {
    let mut out = String::new();
    for character in value.to_string().chars() {
        if character.is_ascii() && character != '\x7f' {
            out.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            // Writing to a string cannot fail.
            let _ = write!(out, "\\u{unit:04x}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{BYTES_MAX, ascii, bounded};

    fn check(candidates: usize, plugins: usize, id_bytes: usize, expected: &str) {
        let plugins = vec![json!({ "name": "limit-count", "phase": "access" }); plugins];
        let candidates = vec![json!({ "route": "beaten", "lost": "vars" }); candidates];
        let text =
            bounded(json!({ "route": "r".repeat(id_bytes), "plugins": plugins, "candidates": candidates }));
        assert!(text.len() <= BYTES_MAX && text.contains(expected), "{expected} is not in {text}");
        assert!(serde_json::from_str::<Value>(&text).is_ok(), "{text}");
    }

    #[test]
    fn an_explanation_fits_a_field_however_much_there_is_to_tell() {
        check(3, 3, 10, r#""candidates":[{"#);
        check(500, 3, 10, r#""candidates":"omitted: too many""#);
        check(500, 3, 10, "limit-count");
        check(3, 500, 10, r#""plugins":"omitted: too many""#);
        check(3, 500, 10_000, r#""error":"omitted: too long""#);
    }

    #[test]
    fn non_ascii_text_is_escaped_losslessly() {
        for text in ["plain \"quoted\"", "Straße", "門\u{7f}\r\n", "\u{1f600}"] {
            let (value, written) = (json!({ "route": text }), ascii(&json!({ "route": text })));
            assert!(written.bytes().all(|byte| (0x20..0x7f).contains(&byte)), "{written}");
            assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), value);
        }
    }
}

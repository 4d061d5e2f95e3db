//! Serialized objects: an envelope around the stored text, alone or in a list.

use std::sync::Arc;

use serde_json::Value;
use yumen_config::Kind;
use yumen_store::StoreEntry;

use crate::secrets::{self, SecretVisibility};

/// A kind, and the part of its objects that a reader may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KindView {
    pub(crate) kind: Kind,
    pub(crate) visibility: SecretVisibility,
}

/// Writes `{"key": ..., "value": ...}`, with `createdIndex` and `modifiedIndex` if requested.
pub(crate) fn object(out: &mut String, view: KindView, id: &str, entry: &StoreEntry, with_revisions: bool) {
    out.push_str(r#"{"key":"#);
    quote(out, view.kind, id);
    out.push_str(r#","value":"#);
    // Mostly the stored text itself, which is not parsed.
    out.push_str(&secrets::shown(view.visibility, view.kind, &entry.json));
    if with_revisions {
        out.push_str(r#","createdIndex":"#);
        digits(out, entry.created.0);
        out.push_str(r#","modifiedIndex":"#);
        digits(out, entry.modified.0);
    }
    out.push('}');
}

/// Writes the name of an object as a JSON string. Almost no id needs escaping.
fn quote(out: &mut String, kind: Kind, id: &str) {
    // Credentials are below their consumers.
    let collection = kind.collection();
    if id.bytes().any(|byte| byte < b' ' || matches!(byte, b'"' | b'\\')) {
        out.push_str(&Value::String(format!("/apisix/{collection}/{id}")).to_string());
        return;
    }
    for part in ["\"/apisix/", collection, "/", id, "\""] {
        out.push_str(part);
    }
}

/// Writes a number. A long list has many, and `write!` takes several times as long.
fn digits(out: &mut String, mut number: u64) {
    let mut text = [0; 20];
    let mut at = text.len();
    loop {
        at -= 1;
        text[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend(text[at..].iter().map(|digit| char::from(*digit)));
}

/// Upper bound of the bytes around an object.
const NODE_BYTES: usize = 128;

/// Upper bound of the bytes of a row.
pub(crate) fn row_bytes(id: &str, entry: &StoreEntry) -> usize {
    entry.json.len() + id.len() + NODE_BYTES
}

/// Writes the rows of a list, separated by commas.
pub(crate) fn rows<'a>(
    out: &mut String,
    view: KindView,
    rows: impl Iterator<Item = (&'a Arc<str>, &'a StoreEntry)>,
) {
    for (i, (id, entry)) in rows.enumerate() {
        if i > 0 {
            out.push(',');
        }
        object(out, view, id, entry, true);
    }
}

//! Text format of a last good state: a sealed state, followed by one record per later change.
//!
//! Pure functions; no access to files.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use aws_lc_rs::digest;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use yumen_config::Kind;

use crate::seal::OptionalSeal;
use crate::state::{ResourceKey, Revision, StoreEntry, StoreState};

/// Format version. Version 1 had no records.
const FORMAT: u64 = 2;

/// Length of a SHA-256 digest in hexadecimal.
const DIGEST_BYTES: usize = 64;

/// Line of one entry, a JSON array: name, revision of creation, revision of the last change, expiry, text.
#[derive(Serialize, Deserialize)]
struct EntryLine<'a>(#[serde(borrow)] Cow<'a, str>, u64, u64, Option<u64>, #[serde(borrow)] Cow<'a, str>);

/// A setting; `None` removes it.
type SettingLine<'a> = (Cow<'a, str>, Option<Cow<'a, str>>);

/// Changes between one state and a later one.
#[derive(Default, Serialize, Deserialize)]
struct DeltaRecord<'a> {
    revision: u64,
    #[serde(borrow)]
    put: Vec<EntryLine<'a>>,
    #[serde(borrow)]
    deleted: Vec<Cow<'a, str>>,
    #[serde(borrow)]
    settings: Vec<SettingLine<'a>>,
}

/// A parsed text; its entries are still sealed.
pub(super) struct ParsedLastGood {
    pub(super) state: StoreState,
    /// Fault of the first damaged record. This record and later ones are not in `state`.
    pub(super) torn: Option<String>,
}

impl ParsedLastGood {
    /// Describes the changes missing from the file at `path`.
    pub(super) fn damage(&self, path: &Path) -> Option<String> {
        let (file, revision) = (path.display(), self.state.revision.0);
        let reason = self.torn.as_ref()?;
        Some(format!("{file}: {reason}, so all changes after revision {revision} are missing"))
    }
}

/// Serializes a whole state; returns the digest that its first record continues.
pub(super) fn whole(state: &StoreState, edge: &OptionalSeal) -> (Vec<u8>, String) {
    let body = body_of(state, edge);
    let digest = sha256(&[&body]);
    let mut text = Vec::new();
    put_line(&mut text, &json!({ "yumen_last_good": FORMAT, "bytes": body.len(), "sha256": digest }));
    text.extend_from_slice(&body);
    (text, digest)
}

/// Serializes the changes between two states; returns the digest that the next record continues.
pub(super) fn record(
    from: &StoreState,
    to: &StoreState,
    edge: &OptionalSeal,
    continued: &str,
) -> (Vec<u8>, String) {
    let mut record = DeltaRecord { revision: to.revision.0, ..DeltaRecord::default() };
    let mut put = Vec::new();
    for (key, _, after) in from.differences(to) {
        match after {
            Some(entry) => put.push((key, edge.sealed(key, entry))),
            None => record.deleted.push(name_of(key).into()),
        }
    }
    record.put.extend(put.iter().map(|(key, entry)| EntryLine::new(key, entry)));
    let forgotten = from.settings().filter(|(name, _)| to.setting(name).is_none());
    // `None` removes the setting; absence would leave it.
    record.settings.extend(forgotten.map(|(name, _)| (Cow::Borrowed(&**name), None)));
    let changed = to.settings().filter(|(name, value)| from.setting(name) != Some(value));
    record.settings.extend(changed.map(|(name, value)| (Cow::Borrowed(&**name), Some((&**value).into()))));
    // Room for the digest, which covers the text behind it.
    let mut text = vec![0; DIGEST_BYTES];
    text.push(b' ');
    put_line(&mut text, &record);
    // The digest covers the previous one, so a removed or reordered record breaks the chain.
    let digest = sha256(&[continued.as_bytes(), &text[DIGEST_BYTES + 1..]]);
    text[..DIGEST_BYTES].copy_from_slice(digest.as_bytes());
    (text, digest)
}

/// Parses a text; fails if the state itself is damaged.
pub(super) fn parse(bytes: &[u8]) -> Result<ParsedLastGood, String> {
    let (body, records, digest) = parts(bytes)?;
    let state = parse_body(body).map_err(|line| format!("line {} cannot be read", line + 2))?;
    Ok(continue_with(state, records, digest))
}

/// Whether the text holds a complete state, according to its seal.
pub(super) fn is_whole(bytes: &[u8]) -> bool {
    parts(bytes).is_ok()
}

/// Splits a text into the state under the seal, the records, and the digest that the first record continues.
fn parts(bytes: &[u8]) -> Result<(&[u8], &[u8], String), String> {
    const NOT_A_SEAL: &str = "the first line is not that of a last good state";
    let (seal, rest) = line_of(bytes).ok_or(NOT_A_SEAL)?;
    let seal: Value = serde_json::from_slice(seal).map_err(|_| NOT_A_SEAL)?;
    match seal["yumen_last_good"].as_u64() {
        Some(1..=FORMAT) => {}
        // A newer format may have rules that this version would break silently.
        Some(found) => return Err(format!("it is of format {found}, this version reads format {FORMAT}")),
        None => return Err(NOT_A_SEAL.into()),
    }
    // Without a length the split fails, as for a truncated text.
    let written = seal["bytes"].as_u64().unwrap_or(u64::MAX);
    let parts = usize::try_from(written).ok().and_then(|written| rest.split_at_checked(written));
    let (body, records) =
        parts.ok_or_else(|| format!("truncated: {} bytes of {}", rest.len(), seal["bytes"]))?;
    let digest = sha256(&[body]);
    match seal["sha256"].as_str() == Some(&digest) {
        true => Ok((body, records, digest)),
        false => Err("corrupt: digest mismatch".into()),
    }
}

/// Applies records in order, up to the first damaged one.
fn continue_with(mut state: StoreState, mut records: &[u8], mut digest: String) -> ParsedLastGood {
    let mut count = 0;
    while !records.is_empty() {
        // A crash during an append leaves a record without its line feed.
        let Some((line, rest)) = line_of(records) else {
            return ParsedLastGood {
                state,
                torn: Some(format!("record {count} behind the state is cut off")),
            };
        };
        // A line that is too short fails the comparison of digests.
        let (written, text) = line.split_at_checked(DIGEST_BYTES).unwrap_or_default();
        let text = text.strip_prefix(b" ").unwrap_or_default();
        let found = sha256(&[digest.as_bytes(), text, b"\n"]);
        let applied = (written == found.as_bytes()).then(|| apply(&mut state, text)).flatten();
        if applied.is_none() {
            return ParsedLastGood {
                state,
                torn: Some(format!("record {count} behind the state was altered")),
            };
        }
        (records, digest, count) = (rest, found, count + 1);
    }
    ParsedLastGood { state, torn: None }
}

fn apply(state: &mut StoreState, text: &[u8]) -> Option<()> {
    let record: DeltaRecord<'_> = serde_json::from_slice(text).ok()?;
    // Parsed in full before the first change, so that an unreadable record changes nothing.
    let put: Vec<_> = record.put.into_iter().map(EntryLine::into_entry).collect::<Option<_>>()?;
    let deleted: Vec<_> = record.deleted.iter().map(|name| key_of(name)).collect::<Option<_>>()?;
    state.revision = Revision(record.revision);
    for (key, entry) in put {
        state.replace(&key, Some(entry));
    }
    for key in deleted {
        state.replace(&key, None);
    }
    for (name, value) in record.settings {
        state.replace_setting(&Arc::from(name), value.map(Arc::from));
    }
    Some(())
}

fn body_of(state: &StoreState, edge: &OptionalSeal) -> Vec<u8> {
    let mut body = Vec::new();
    put_line(&mut body, &json!({ "revision": state.revision.0, "entries": state.len() }));
    for (key, entry) in state.entries() {
        put_line(&mut body, &EntryLine::new(key, &edge.sealed(key, entry)));
    }
    for (name, value) in state.settings() {
        put_line(&mut body, &(&**name, &**value));
    }
    body
}

/// Parses a body; the error is the index of the unreadable line.
fn parse_body(body: &[u8]) -> Result<StoreState, usize> {
    let mut lines = body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).enumerate();
    let head: Value = lines.next().and_then(|(_, head)| serde_json::from_slice(head).ok()).ok_or(0_usize)?;
    let revision = Revision(head["revision"].as_u64().ok_or(0_usize)?);
    let count = head["entries"].as_u64().ok_or(0_usize)? as usize;
    let entry = |line| serde_json::from_slice::<EntryLine<'_>>(line).ok().and_then(EntryLine::into_entry);
    let entries: Vec<(ResourceKey, StoreEntry)> =
        lines.by_ref().take(count).map(|(at, line)| entry(line).ok_or(at)).collect::<Result<_, _>>()?;
    // Fewer lines than announced: the body ends early.
    if entries.len() != count {
        return Err(entries.len() + 1);
    }
    let setting = |line| serde_json::from_slice::<(Cow<str>, Cow<str>)>(line).ok();
    let settings = lines.map(|(at, line)| setting(line).ok_or(at));
    let settings: Vec<(Cow<str>, Cow<str>)> = settings.collect::<Result<_, _>>()?;
    let settings = settings.into_iter().map(|(name, value)| (Arc::from(name), Arc::from(value)));
    Ok(StoreState::new(revision, entries, settings))
}

impl<'a> EntryLine<'a> {
    fn new(key: &ResourceKey, entry: &'a StoreEntry) -> EntryLine<'a> {
        let StoreEntry { json, created, modified, expires_ms } = entry;
        EntryLine(name_of(key).into(), created.0, modified.0, *expires_ms, Cow::Borrowed(json))
    }

    /// The entry; `None` if the name is not that of a resource.
    fn into_entry(self) -> Option<(ResourceKey, StoreEntry)> {
        let EntryLine(name, created, modified, expires_ms, json) = self;
        let (created, modified) = (Revision(created), Revision(modified));
        Some((key_of(&name)?, StoreEntry { json: Arc::from(json), created, modified, expires_ms }))
    }
}

fn name_of(key: &ResourceKey) -> String {
    format!("{}/{}", key.kind.name(), key.id)
}

fn key_of(name: &str) -> Option<ResourceKey> {
    let (kind, id) = name.split_once('/')?;
    Some(ResourceKey::new(Kind::from_name(kind)?, id))
}

/// Returns the first line without its line feed, and the rest.
fn line_of(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

fn put_line(text: &mut Vec<u8>, line: &impl Serialize) {
    serde_json::to_writer(&mut *text, line).expect("writing plain data to memory cannot fail");
    text.push(b'\n');
}

fn sha256(parts: &[&[u8]]) -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    parts.iter().for_each(|part| context.update(part));
    context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

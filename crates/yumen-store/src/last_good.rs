//! The last good state on disk: what a node runs on while its store cannot be reached.
//!
//! Knows files and states; must not know what kind of store the state came from.

mod keeper;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use aws_lc_rs::digest;
use serde_json::{Value, json};
use yumen_config::Kind;

pub use keeper::Keeper;

use crate::directory::{self, about};
use crate::seal::{Edge, SealError};
use crate::state::{Entry, Key, Revision, State};
use crate::store::StoreError;

/// The file in the data directory.
pub const FILE: &str = "last-good.json";
/// The one before it, for the case that the newest was damaged.
pub const PREVIOUS: &str = "last-good.json.previous";

/// The version of the text.
const FORMAT: u64 = 1;

/// Saves states to a directory, and loads the newest that is whole.
///
/// The text is JSON, one value per line: the seal (version, bytes and digest of all that follows), the
/// revision and the number of entries, the entries, the settings.
#[derive(Debug)]
pub struct LastGood;

/// One line per entry: name, created, modified, expiry, text.
type EntryLine<'a> = (Cow<'a, str>, u64, u64, Option<u64>, Cow<'a, str>);

impl LastGood {
    /// Makes `state` the last good one, durably; the one before is kept beside it.
    pub(crate) fn save(directory: &Path, state: &State, edge: &Edge) -> Result<(), StoreError> {
        let (place, draft) = (directory.join(FILE), directory.join(format!("{FILE}.new")));
        let body = body_of(state, edge);
        let mut file = BufWriter::new(directory::create_private(&draft)?);
        let written = writeln!(file, "{}", seal_of(&body)).and_then(|()| file.write_all(&body));
        written.and_then(|()| file.flush()).map_err(|error| about(&draft, &error))?;
        drop(file);
        directory::keep_as(&place, &directory.join(PREVIOUS))?;
        Ok(directory::put_in_place(&draft, &place)?)
    }

    /// The newest saved state that is whole; the error tells what is wrong with each file.
    pub(crate) fn load(directory: &Path, edge: &Edge) -> Result<State, StoreError> {
        LastGood::read(&directory.join(FILE), edge).or_else(|newest| {
            // It is whole: one from before it is no substitute.
            if matches!(newest, StoreError::Sealed(_)) {
                return Err(newest);
            }
            let previous = LastGood::read(&directory.join(PREVIOUS), edge);
            let previous = previous.map_err(|previous| match is_missing(&previous) {
                true => newest.clone(),
                false => StoreError::Corrupt(format!("{newest}; {previous}")),
            })?;
            tracing::warn!(reason = %newest, "the last good state is damaged, the one before it is used");
            Ok(previous)
        })
    }

    /// The state in one file.
    pub(crate) fn read(path: &Path, edge: &Edge) -> Result<State, StoreError> {
        let bytes = fs::read(path).map_err(|error| about(path, &error))?;
        let damaged = |found: String| StoreError::Corrupt(format!("{}: {found}", path.display()));
        let state = parse(&bytes).map_err(damaged)?;
        opened(state, edge).map_err(|error| match error {
            SealError::Altered(_) => damaged(error.to_string()),
            without_key => StoreError::Sealed(format!("{}: {without_key}", path.display())),
        })
    }
}

fn is_missing(error: &StoreError) -> bool {
    matches!(error, StoreError::Io(error) if error.kind() == io::ErrorKind::NotFound)
}

fn body_of(state: &State, edge: &Edge) -> Vec<u8> {
    let mut body = Vec::new();
    put_line(&mut body, &json!({ "revision": state.revision.0, "entries": state.len() }));
    for (key, entry) in state.entries() {
        let name = format!("{}/{}", key.kind.name(), key.id);
        let entry = edge.sealed(key, entry);
        put_line(&mut body, &(name, entry.created.0, entry.modified.0, entry.expires_ms, &*entry.json));
    }
    for (name, value) in state.settings() {
        put_line(&mut body, &(&**name, &**value));
    }
    body
}

/// The state with the texts as they were.
fn opened(state: State, edge: &Edge) -> Result<State, SealError> {
    let entries = state.entries().map(|(key, entry)| Ok((key.clone(), edge.opened(key, entry.clone())?)));
    let entries = entries.collect::<Result<Vec<_>, SealError>>()?;
    let settings = state.settings().map(|(name, value)| (name.clone(), value.clone()));
    Ok(State::new(state.revision, entries, settings))
}

fn put_line(body: &mut Vec<u8>, line: &impl serde::Serialize) {
    serde_json::to_writer(&mut *body, line).expect("writing plain data to memory cannot fail");
    body.push(b'\n');
}

fn seal_of(body: &[u8]) -> Value {
    json!({ "yumen_last_good": FORMAT, "bytes": body.len(), "sha256": sha256(body) })
}

fn sha256(bytes: &[u8]) -> String {
    let digest = digest::digest(&digest::SHA256, bytes);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn parse(bytes: &[u8]) -> Result<State, String> {
    const NOT_A_SEAL: &str = "the first line is not that of a last good state";
    let (seal, body) = bytes.split_at(bytes.iter().position(|byte| *byte == b'\n').ok_or(NOT_A_SEAL)?);
    let seal: Value = serde_json::from_slice(seal).map_err(|_| NOT_A_SEAL)?;
    match seal["yumen_last_good"].as_u64() {
        Some(FORMAT) => {}
        Some(found) => return Err(format!("it is of format {found}, this version reads format {FORMAT}")),
        None => return Err(NOT_A_SEAL.into()),
    }
    let body = &body[1..];
    if seal["bytes"].as_u64() != Some(body.len() as u64) {
        return Err(format!("cut off: it holds {} bytes where {} were written", body.len(), seal["bytes"]));
    }
    if seal["sha256"].as_str() != Some(&sha256(body)) {
        return Err("altered: its digest is not that of what was written".into());
    }
    let unreadable = |line: usize| format!("line {} cannot be read", line + 2);
    parse_body(body).map_err(unreadable)
}

/// The state of a body, or the line that made no sense.
fn parse_body(body: &[u8]) -> Result<State, usize> {
    let mut lines = body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).enumerate();
    let head: Value = lines.next().and_then(|(_, head)| serde_json::from_slice(head).ok()).ok_or(0_usize)?;
    let revision = Revision(head["revision"].as_u64().ok_or(0_usize)?);
    let count = head["entries"].as_u64().ok_or(0_usize)? as usize;
    let entries: Vec<(Key, Entry)> =
        lines.by_ref().take(count).map(|(at, line)| entry_of(line).ok_or(at)).collect::<Result<_, _>>()?;
    if entries.len() != count {
        return Err(entries.len() + 1);
    }
    let setting = |line| serde_json::from_slice::<(Cow<str>, Cow<str>)>(line).ok();
    let settings = lines.map(|(at, line)| setting(line).ok_or(at));
    let settings: Vec<(Cow<str>, Cow<str>)> = settings.collect::<Result<_, _>>()?;
    let settings = settings.into_iter().map(|(name, value)| (Arc::from(name), Arc::from(value)));
    Ok(State::new(revision, entries, settings))
}

fn entry_of(line: &[u8]) -> Option<(Key, Entry)> {
    let (name, created, modified, expires_ms, json): EntryLine = serde_json::from_slice(line).ok()?;
    let (kind, id) = name.split_once('/')?;
    let (created, modified) = (Revision(created), Revision(modified));
    let entry = Entry { json: Arc::from(json), created, modified, expires_ms };
    Some((Key::new(Kind::from_name(kind)?, id), entry))
}

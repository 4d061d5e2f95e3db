//! Binary encoding of entries and revisions: LEB128 numbers and length-prefixed texts.
//!
//! Independent of the tables. The encoding changes only together with the format version.

use std::sync::Arc;

use yumen_config::Kind;

use crate::state::{Authorship, EntryChange, ResourceKey, Revision, StoreCommit, StoreEntry};

/// A key as `kind/id`, with the kind's name in URIs.
pub(super) fn key_text(key: &ResourceKey) -> String {
    format!("{}/{}", key.kind.name(), key.id)
}

/// Parses `kind/id`; `None` for a kind unknown to this version.
pub(super) fn key_of(text: &str) -> Option<ResourceKey> {
    let (kind, id) = text.split_once('/')?;
    Some(ResourceKey::new(Kind::from_name(kind)?, id))
}

pub(super) fn encode_entry(entry: &StoreEntry) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(entry.json.len() + 16);
    put_entry_head(&mut bytes, entry);
    bytes.extend_from_slice(entry.json.as_bytes());
    bytes
}

pub(super) fn decode_entry(bytes: &[u8]) -> Option<StoreEntry> {
    let mut reader = EncodingReader(bytes);
    let head = reader.entry_head()?;
    Some(head.with(std::str::from_utf8(reader.0).ok()?))
}

/// The time is the first field, so that trimming by age decodes nothing else.
pub(super) fn encode_revision(committed: &StoreCommit) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_number(&mut bytes, committed.time_ms);
    put_text(&mut bytes, &committed.by.author);
    put_optional(&mut bytes, committed.by.reason.as_deref(), put_text);
    put_number(&mut bytes, committed.changes.len() as u64);
    for changed in &committed.changes {
        put_text(&mut bytes, &key_text(&changed.key));
        put_optional(&mut bytes, changed.before.as_ref(), put_entry);
        put_optional(&mut bytes, changed.after.as_ref(), put_entry);
    }
    bytes
}

pub(super) fn decode_revision(revision: Revision, bytes: &[u8]) -> Option<StoreCommit> {
    let mut reader = EncodingReader(bytes);
    let time_ms = reader.number()?;
    let author = reader.text()?.to_owned();
    let reason = reader.optional(|reader| Some(reader.text()?.to_owned()))?;
    let count = reader.number()?;
    let mut changes = Vec::new();
    for _ in 0..count {
        let key = key_of(reader.text()?)?;
        let before = reader.optional(EncodingReader::entry)?;
        let after = reader.optional(EncodingReader::entry)?;
        changes.push(EntryChange { key, before, after });
    }
    // Trailing bytes mean that the encoding is damaged.
    let whole = reader.0.is_empty();
    whole.then_some(StoreCommit { revision, time_ms, by: Authorship { author, reason }, changes })
}

/// Commit time of an encoded revision in milliseconds since the Unix epoch.
pub(super) fn time_ms_of(bytes: &[u8]) -> Option<u64> {
    EncodingReader(bytes).number()
}

fn put_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    put_number(bytes, text.len() as u64);
    bytes.extend_from_slice(text.as_bytes());
}

fn put_optional<T>(bytes: &mut Vec<u8>, value: Option<T>, put: impl FnOnce(&mut Vec<u8>, T)) {
    bytes.push(u8::from(value.is_some()));
    if let Some(value) = value {
        put(bytes, value);
    }
}

fn put_entry(bytes: &mut Vec<u8>, entry: &StoreEntry) {
    put_entry_head(bytes, entry);
    put_text(bytes, &entry.json);
}

fn put_entry_head(bytes: &mut Vec<u8>, entry: &StoreEntry) {
    put_number(bytes, entry.created.0);
    put_number(bytes, entry.modified.0);
    put_optional(bytes, entry.expires_ms, put_number);
}

/// An entry without its text.
struct EntryHead {
    created: Revision,
    modified: Revision,
    expires_ms: Option<u64>,
}

impl EntryHead {
    fn with(self, json: &str) -> StoreEntry {
        let EntryHead { created, modified, expires_ms } = self;
        StoreEntry { json: Arc::from(json), created, modified, expires_ms }
    }
}

/// The rest of an encoding. Methods return `None` if the bytes are malformed.
struct EncodingReader<'a>(&'a [u8]);

impl<'a> EncodingReader<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        // Ten groups of seven bits cover 64 bits; a longer encoding is invalid.
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn text(&mut self) -> Option<&'a str> {
        let length = usize::try_from(self.number()?).ok()?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        std::str::from_utf8(text).ok()
    }

    fn optional<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        match self.byte()? {
            0 => Some(None),
            1 => read(self).map(Some),
            // Another flag means damage or a newer encoding.
            _ => None,
        }
    }

    fn entry_head(&mut self) -> Option<EntryHead> {
        Some(EntryHead {
            created: Revision(self.number()?),
            modified: Revision(self.number()?),
            expires_ms: self.optional(EncodingReader::number)?,
        })
    }

    fn entry(&mut self) -> Option<StoreEntry> {
        let head = self.entry_head()?;
        Some(head.with(self.text()?))
    }
}

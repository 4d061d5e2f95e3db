//! The tables of the database file and every transaction on them.
//!
//! Uses redb; independent of the path of the file and the time of opening.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use redb::{Database, ReadTransaction, ReadableDatabase, ReadableTable, ReadableTableMetadata};
use redb::{Table, TableDefinition, WriteTransaction};

use super::encoding::{decode_entry, decode_revision, encode_entry, encode_revision};
use super::encoding::{key_of, key_text, time_ms_of};
use super::{EmbeddedOptions, format};
use crate::engine::CommitBatch;
use crate::seal::{OptionalSeal, SealError};
use crate::state::{ResourceKey, Revision, StoreCommit, StoreEntry, StoreState};

/// `kind/id` to the output of [`encode_entry`].
const ENTRIES: TableDefinition<&str, &[u8]> = TableDefinition::new("entries");
/// Values stored by the APIs.
const SETTINGS: TableDefinition<&str, &str> = TableDefinition::new("settings");
/// Revision to the output of [`encode_revision`].
const REVISIONS: TableDefinition<u64, &[u8]> = TableDefinition::new("revisions");
/// Counters and versions, by the names below.
const META: TableDefinition<&str, u64> = TableDefinition::new("meta");

/// Key of the format version; see [`format`].
const FORMAT: &str = "format";
/// Key of the newest revision.
const REVISION: &str = "revision";
/// Key of the size of all encoded revisions, in bytes.
const HISTORY_BYTES: &str = "history_bytes";

/// Revisions trimmed per transaction, so that a lowered bound does not stall one write.
const TRIMMED_MAX: usize = 4096;

pub(super) type Result<T> = std::result::Result<T, redb::Error>;

/// Creates the tables in an empty database, with `state` and without history.
pub(super) fn initialise(database: &Database, state: &StoreState, edge: &OptionalSeal) -> Result<()> {
    let transaction = database.begin_write()?;
    {
        let mut entries = transaction.open_table(ENTRIES)?;
        for (key, entry) in state.entries() {
            // Sealed here, so that no plain text reaches a page of the file.
            let encoded = encode_entry(&edge.sealed(key, entry));
            entries.insert(key_text(key).as_str(), encoded.as_slice())?;
        }
        let mut settings = transaction.open_table(SETTINGS)?;
        for (name, value) in state.settings() {
            settings.insert(&**name, &**value)?;
        }
        // Opening creates the table.
        transaction.open_table(REVISIONS)?;
        let mut meta = transaction.open_table(META)?;
        meta.insert(FORMAT, format::CURRENT)?;
        meta.insert(REVISION, state.revision.0)?;
        meta.insert(HISTORY_BYTES, 0)?;
    }
    Ok(transaction.commit()?)
}

/// Reads the format version of the file.
pub(super) fn format_of(database: &Database) -> Result<u64> {
    let found = database.begin_read()?.open_table(META)?.get(FORMAT)?.map(|value| value.value());
    // A file without a format was not written by this program.
    found.ok_or_else(|| corrupted("the format version is missing".into()))
}

pub(super) fn set_format(transaction: &WriteTransaction, version: u64) -> Result<()> {
    transaction.open_table(META)?.insert(FORMAT, version)?;
    Ok(())
}

/// Loads everything except the history.
pub(super) fn load(database: &Database, edge: &OptionalSeal) -> Result<StoreState> {
    let transaction = database.begin_read()?;
    let mut entries = Vec::new();
    for row in transaction.open_table(ENTRIES)?.iter()? {
        let (name, bytes) = row?;
        let key = key_of(name.value());
        // An older version must not drop objects of kinds that it does not know.
        let key = key.ok_or_else(|| corrupted(format!("no kind of this version: {}", name.value())))?;
        let entry = decode_entry(bytes.value());
        let entry = entry.ok_or_else(|| corrupted(format!("unreadable: {}", name.value())))?;
        let entry = edge.opened(&key, entry).map_err(closed)?;
        entries.push((key, entry));
    }
    let mut settings: Vec<(Arc<str>, Arc<str>)> = Vec::new();
    for row in transaction.open_table(SETTINGS)?.iter()? {
        let (name, value) = row?;
        settings.push((name.value().into(), value.value().into()));
    }
    Ok(StoreState::new(newest(&transaction)?, entries, settings))
}

/// Reads the newest revision.
pub(super) fn revision_of(database: &Database) -> Result<Revision> {
    newest(&database.begin_read()?)
}

fn newest(transaction: &ReadTransaction) -> Result<Revision> {
    let revision = transaction.open_table(META)?.get(REVISION)?.map(|value| value.value());
    revision.map(Revision).ok_or_else(|| corrupted("the revision is missing".into()))
}

/// Appends an empty revision with a number above those used by another history.
pub(super) fn skip_revisions(database: &Database, committed: &StoreCommit) -> Result<()> {
    let transaction = database.begin_write()?;
    let mut history = HistoryTable::open(&transaction)?;
    // An empty revision: it only moves the number (decision 16).
    history.append(committed)?;
    history.close(committed.revision)?;
    Ok(transaction.commit()?)
}

/// Reads revisions older than `before`, newest first.
pub(super) fn history(
    database: &Database,
    before: Revision,
    limit: usize,
    edge: &OptionalSeal,
) -> Result<Vec<Arc<StoreCommit>>> {
    let revisions = database.begin_read()?.open_table(REVISIONS)?;
    let mut page = Vec::new();
    // The range ends before `before`, as `Store::history` promises.
    for row in revisions.range(..before.0)?.rev().take(limit) {
        let (revision, bytes) = row?;
        page.push(Arc::new(decoded(revision.value(), bytes.value(), edge)?));
    }
    Ok(page)
}

/// Decodes every revision as a check, and returns their number.
pub(super) fn verify_history(database: &Database, edge: &OptionalSeal) -> Result<usize> {
    let revisions = database.begin_read()?.open_table(REVISIONS)?;
    let mut count = 0;
    for row in revisions.iter()? {
        let (revision, bytes) = row?;
        // Decoded and discarded: a backup with an unreadable revision must fail at restore, not at the first look.
        decoded(revision.value(), bytes.value(), edge)?;
        count += 1;
    }
    Ok(count)
}

/// Writes a batch and trims the history in one transaction.
pub(super) fn write(
    database: &Database,
    batch: &CommitBatch,
    options: &EmbeddedOptions,
    now_ms: u64,
) -> Result<()> {
    let changes = batch.revisions.iter().flat_map(|committed| &committed.changes);
    // Collected by key, so that the last change of a batch to an object is written, once.
    let entries: BTreeMap<&ResourceKey, Option<&StoreEntry>> =
        changes.map(|changed| (&changed.key, changed.after.as_ref())).collect();
    let settings = batch.settings.iter().map(|(name, value)| (&**name, value.as_deref()));
    let edge = options.edge();
    let transaction = database.begin_write()?;
    write_entries(&transaction, entries, &edge)?;
    write_settings(&transaction, settings)?;
    if let Some(newest) = batch.revisions.last() {
        let mut history = HistoryTable::open(&transaction)?;
        for committed in &batch.revisions {
            history.append(&edge.sealed_revision(committed))?;
        }
        history.trim(options, now_ms)?;
        history.close(newest.revision)?;
    }
    Ok(transaction.commit()?)
}

/// Restores `batch.base` in the file, whether or not the batch was committed.
pub(super) fn take_back(database: &Database, batch: &CommitBatch, edge: &OptionalSeal) -> Result<()> {
    let base = &batch.base;
    if !is_committed(database, batch)? {
        // The common case. A full disk would also refuse a further write.
        return Ok(());
    }
    let changes = batch.revisions.iter().flat_map(|committed| &committed.changes);
    let entries: BTreeMap<&ResourceKey, Option<&StoreEntry>> =
        // The texts before the batch, from the state in memory: it is the last durable one.
        changes.map(|changed| (&changed.key, base.get(changed.key.kind, &changed.key.id))).collect();
    let settings = batch.settings.keys().map(|name| (&**name, base.setting(name).map(|value| &**value)));
    let transaction = database.begin_write()?;
    write_entries(&transaction, entries, edge)?;
    write_settings(&transaction, settings)?;
    let mut history = HistoryTable::open(&transaction)?;
    history.forget_after(base.revision)?;
    history.close(base.revision)?;
    Ok(transaction.commit()?)
}

/// Whether the batch is in the file. Transactions are atomic, so one difference is proof.
fn is_committed(database: &Database, batch: &CommitBatch) -> Result<bool> {
    let transaction = database.begin_read()?;
    let revision = transaction.open_table(META)?.get(REVISION)?.map(|value| value.value());
    if revision != Some(batch.base.revision.0) {
        return Ok(true);
    }
    // A batch with settings alone does not change the revision.
    let settings = transaction.open_table(SETTINGS)?;
    for name in batch.settings.keys() {
        let found = settings.get(&**name)?;
        if found.as_ref().map(|value| value.value()) != batch.base.setting(name).map(|value| &**value) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Copies all tables, as of one moment, into an empty database.
pub(super) fn copy(from: &Database, to: &Database) -> Result<()> {
    // A read transaction is a snapshot, so writes may continue during the copy.
    let (source, target) = (from.begin_read()?, to.begin_write()?);
    copy_table(&source, &target, ENTRIES)?;
    copy_table(&source, &target, SETTINGS)?;
    copy_table(&source, &target, REVISIONS)?;
    copy_table(&source, &target, META)?;
    Ok(target.commit()?)
}

fn copy_table<K: redb::Key, V: redb::Value>(
    source: &ReadTransaction,
    target: &WriteTransaction,
    definition: TableDefinition<K, V>,
) -> Result<()> {
    let mut table = target.open_table(definition)?;
    for row in source.open_table(definition)?.iter()? {
        let (key, value) = row?;
        table.insert(key.value(), value.value())?;
    }
    Ok(())
}

fn write_entries(
    transaction: &WriteTransaction,
    entries: BTreeMap<&ResourceKey, Option<&StoreEntry>>,
    edge: &OptionalSeal,
) -> Result<()> {
    let mut table = transaction.open_table(ENTRIES)?;
    for (key, entry) in entries {
        let name = key_text(key);
        match entry {
            Some(entry) => {
                let encoded = encode_entry(&edge.sealed(key, entry));
                table.insert(name.as_str(), encoded.as_slice())?;
            }
            None => drop(table.remove(name.as_str())?),
        }
    }
    Ok(())
}

fn write_settings<'a>(
    transaction: &WriteTransaction,
    settings: impl Iterator<Item = (&'a str, Option<&'a str>)>,
) -> Result<()> {
    let mut table = transaction.open_table(SETTINGS)?;
    for (name, value) in settings {
        match value {
            Some(value) => drop(table.insert(name, value)?),
            None => drop(table.remove(name)?),
        }
    }
    Ok(())
}

/// The revisions of a transaction, and their size in bytes.
struct HistoryTable<'t> {
    revisions: Table<'t, u64, &'static [u8]>,
    meta: Table<'t, &'static str, u64>,
    bytes: u64,
}

impl<'t> HistoryTable<'t> {
    fn open(transaction: &'t WriteTransaction) -> Result<HistoryTable<'t>> {
        let (revisions, meta) = (transaction.open_table(REVISIONS)?, transaction.open_table(META)?);
        let bytes = meta.get(HISTORY_BYTES)?.map_or(0, |value| value.value());
        Ok(HistoryTable { revisions, meta, bytes })
    }

    fn append(&mut self, committed: &StoreCommit) -> Result<()> {
        let encoded = encode_revision(committed);
        // Counted in the same transaction, so that the sum never disagrees with the table.
        self.bytes += encoded.len() as u64;
        self.revisions.insert(committed.revision.0, encoded.as_slice())?;
        Ok(())
    }

    /// Removes the oldest revisions while a bound is exceeded; the newest stays.
    fn trim(&mut self, options: &EmbeddedOptions, now_ms: u64) -> Result<()> {
        let oldest_ms = options.revisions_age_max.map(|age| now_ms.saturating_sub(age.as_millis() as u64));
        let mut count = self.revisions.len()?;
        for _ in 0..TRIMMED_MAX {
            let over = count > options.revisions_max.max(1) as u64 || self.bytes > options.history_bytes_max;
            let stays = match self.revisions.first()? {
                _ if count <= 1 => true,
                Some((_, bytes)) => {
                    let is_old = |oldest_ms| time_ms_of(bytes.value()).is_some_and(|at_ms| at_ms < oldest_ms);
                    !over && !oldest_ms.is_some_and(is_old)
                }
                None => true,
            };
            if stays {
                return Ok(());
            }
            if let Some((_, bytes)) = self.revisions.pop_first()? {
                self.bytes = self.bytes.saturating_sub(bytes.value().len() as u64);
            }
            count -= 1;
        }
        Ok(())
    }

    fn forget_after(&mut self, revision: Revision) -> Result<()> {
        loop {
            let newest = self.revisions.last()?.map(|(newest, _)| newest.value());
            if newest.is_none_or(|newest| newest <= revision.0) {
                return Ok(());
            }
            if let Some((_, bytes)) = self.revisions.pop_last()? {
                self.bytes = self.bytes.saturating_sub(bytes.value().len() as u64);
            }
        }
    }

    fn close(mut self, newest: Revision) -> Result<()> {
        self.meta.insert(REVISION, newest.0)?;
        self.meta.insert(HISTORY_BYTES, self.bytes)?;
        Ok(())
    }
}

fn decoded(revision: u64, bytes: &[u8], edge: &OptionalSeal) -> Result<StoreCommit> {
    let committed = decode_revision(Revision(revision), bytes);
    let committed = committed.ok_or_else(|| corrupted(format!("revision {revision} is unreadable")))?;
    edge.opened_revision(committed).map_err(closed)
}

/// An altered text is damage. A text without its key is intact, and `store_error` maps it to `Sealed`.
fn closed(error: SealError) -> redb::Error {
    match error {
        SealError::Altered(_) => corrupted(error.to_string()),
        without_key => redb::Error::Io(io::Error::other(without_key)),
    }
}

pub(super) fn corrupted(what: String) -> redb::Error {
    redb::Error::Corrupted(what)
}

//! A disk in memory that fails on demand and loses unsynced writes at a power loss.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use redb::{Database, DatabaseError, StorageBackend};

use super::{EmbeddedMedium, EmbeddedOptions, OpenCheck, file, tables};
use crate::seal::OptionalSeal;
use crate::state::StoreState;
use crate::store::StoreError;
use crate::test_kit::Random;

#[derive(Debug, Clone)]
pub(super) struct Disk(Arc<Mutex<Platter>>);

#[derive(Debug)]
struct Platter {
    /// Content visible to the process.
    seen: Vec<u8>,
    /// Content that survives a power loss.
    durable: Vec<u8>,
    /// Writes since the last sync.
    pending: Vec<Change>,
    random: Random,
    /// Failures per thousand writes and syncs.
    faults_per_mille: u64,
    dead: bool,
}

#[derive(Debug, Clone)]
enum Change {
    Length(u64),
    Bytes(u64, Vec<u8>),
}

impl Disk {
    /// Creates a disk with an empty store.
    pub(super) fn new(seed: u64) -> Disk {
        let platter = Platter {
            seen: Vec::new(),
            durable: Vec::new(),
            pending: Vec::new(),
            random: Random(seed),
            faults_per_mille: 0,
            dead: false,
        };
        let disk = Disk(Arc::new(Mutex::new(platter)));
        let database = disk.open(OpenCheck::Quick).unwrap();
        tables::initialise(&database, &StoreState::default(), &OptionalSeal::default()).unwrap();
        database.close().unwrap();
        disk
    }

    pub(super) fn open(&self, care: OpenCheck) -> Result<Database, DatabaseError> {
        file::builder(care).create_with_backend(self.clone())
    }

    pub(super) fn load(&self, options: EmbeddedOptions) -> Result<(EmbeddedMedium, StoreState), StoreError> {
        let disk = self.clone();
        EmbeddedMedium::load("disk".into(), Box::new(move |care| disk.open(care)), options, None)
    }

    pub(super) fn fail(&self, per_mille: u64) {
        self.platter().faults_per_mille = per_mille;
    }

    /// Drops all later writes, as after the kill of a process.
    pub(super) fn kill(&self) {
        self.platter().dead = true;
    }

    /// Loses some unsynced writes, completes others, and tears the rest.
    pub(super) fn power_loss(&self) {
        let mut platter = self.platter();
        platter.settle_some();
        platter.pending.clear();
        platter.seen = platter.durable.clone();
        platter.dead = false;
    }

    fn platter(&self) -> MutexGuard<'_, Platter> {
        self.0.lock().unwrap()
    }
}

impl Platter {
    fn fault(&mut self) -> io::Result<()> {
        if self.dead || self.random.below(1000) < self.faults_per_mille {
            let kinds = [io::ErrorKind::StorageFull, io::ErrorKind::Other];
            return Err(kinds[self.random.below(2) as usize].into());
        }
        Ok(())
    }

    fn note(&mut self, change: Change) {
        change.apply(&mut self.seen);
        self.pending.push(change);
    }

    fn settle_some(&mut self) {
        for change in self.pending.clone() {
            match (self.random.below(3), change) {
                (0, _) => {}
                (1, Change::Bytes(offset, mut bytes)) => {
                    // Disks write whole sectors.
                    let sectors = bytes.len().div_ceil(512) as u64;
                    bytes.truncate(512 * self.random.below(sectors + 1) as usize);
                    Change::Bytes(offset, bytes).apply(&mut self.durable);
                }
                (_, change) => change.apply(&mut self.durable),
            }
        }
    }
}

impl Change {
    fn apply(&self, to: &mut Vec<u8>) {
        match self {
            Change::Length(length) => to.resize(*length as usize, 0),
            Change::Bytes(offset, bytes) => {
                let end = *offset as usize + bytes.len();
                to.resize(to.len().max(end), 0);
                to[*offset as usize..end].copy_from_slice(bytes);
            }
        }
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.platter().seen.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let platter = self.platter();
        let bytes = platter.seen.get(offset as usize..offset as usize + out.len());
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let mut platter = self.platter();
        platter.fault()?;
        platter.note(Change::Length(length));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut platter = self.platter();
        if let Err(error) = platter.fault() {
            // The result of a failed sync is undefined.
            if !platter.dead {
                platter.settle_some();
            }
            return Err(error);
        }
        let pending = std::mem::take(&mut platter.pending);
        pending.iter().for_each(|change| change.apply(&mut platter.durable));
        Ok(())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut platter = self.platter();
        if let Err(error) = platter.fault() {
            if !platter.dead {
                let written = platter.random.below(bytes.len() as u64 + 1) as usize;
                platter.note(Change::Bytes(offset, bytes[..written].to_vec()));
            }
            return Err(error);
        }
        platter.note(Change::Bytes(offset, bytes.to_vec()));
        Ok(())
    }
}

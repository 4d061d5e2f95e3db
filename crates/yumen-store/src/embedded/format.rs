//! The format version of the tables, and the migrations between versions.
//!
//! The version increases with every change that an older Yumen would misread.

use redb::{Database, WriteTransaction};

use super::tables::{self, Result};

/// A migration to the next version, in the transaction that also writes the new version.
pub(super) type MigrationStep = fn(&WriteTransaction) -> Result<()>;

/// Migrations in order; the first leads from version 1 to version 2.
const STEPS: &[MigrationStep] = &[];

/// The version that this program writes.
pub(super) const CURRENT: u64 = 1 + STEPS.len() as u64;

/// Migrates a file to the current version. Each step is durable before the next.
///
/// A file of a newer version is refused and left unchanged.
pub(super) fn migrate(database: &Database) -> Result<()> {
    migrate_by(database, STEPS)
}

pub(super) fn migrate_by(database: &Database, steps: &[MigrationStep]) -> Result<()> {
    let found = tables::format_of(database)?;
    let current = 1 + steps.len() as u64;
    if found == 0 || found > current {
        return Err(tables::corrupted(format!(
            "the file is of format {found}, this version of Yumen reads formats 1 to {current}; \
             run the version that wrote it, or restore a backup"
        )));
    }
    for (version, step) in (1..).zip(steps).filter(|(version, _)| *version >= found) {
        let transaction = database.begin_write()?;
        step(&transaction)?;
        tables::set_format(&transaction, version + 1)?;
        transaction.commit()?;
        tracing::info!(from = version, to = version + 1, "store migrated to a newer format");
    }
    Ok(())
}

//! The mechanism of incremental translation.
//!
//! A [`TranslationUnit`] is a function from objects and results of units of lower rank to a [`UnitOutput`]. It reads
//! through a [`TrackedView`], which records each [`ReadKey`]. A change marks the units that read a changed key; marked
//! units run in rank order, and only differences of their outputs are passed on. The functions themselves are in
//! other modules; `translator` dispatches to them.

mod compact_set;
mod object_table;
mod output;
mod output_tables;
mod owned_table;
mod read_key;
mod scheduler;
#[cfg(test)]
mod tests;
mod tracked_view;
mod trial;
mod unit;

pub(crate) use output::{DerivedOutput, PolicyUse, UnitOutput};
pub(crate) use read_key::IndexKey;
pub(crate) use scheduler::TranslationEngine;
pub(crate) use tracked_view::{ReferencedObject, TrackedView};
pub(crate) use trial::{ResourceTransition, TrialEffect};
pub(crate) use unit::TranslationUnit;

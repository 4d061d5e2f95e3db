//! Values that plugins carry from one phase of an exchange to a later one.

use std::any::Any;

use crate::tap::BodyTaps;
use crate::{ExchangeTimeline, PluginInstance};

/// State of plugins in one exchange.
#[derive(Default)]
pub(crate) struct PluginState {
    notes: Vec<Box<dyn Any>>,
    /// Results of `_meta.filter`, one per plugin.
    filter_verdicts: Vec<(*const PluginInstance, bool)>,
    /// Whether a plugin reads the timeline in the log phase.
    pub(super) requires_timeline: bool,
    pub(super) timeline: Option<Box<ExchangeTimeline>>,
    /// Boxed, since few exchanges have taps.
    pub(super) taps: Option<Box<BodyTaps>>,
}

impl PluginState {
    pub(super) fn leave<T: 'static>(&mut self, note: T) {
        self.notes.push(Box::new(note));
    }

    pub(super) fn notes<T: 'static>(&self) -> impl Iterator<Item = &T> {
        self.notes.iter().rev().filter_map(|note| note.downcast_ref())
    }

    pub(super) fn notes_mut<T: 'static>(&mut self) -> impl Iterator<Item = &mut T> {
        self.notes.iter_mut().rev().filter_map(|note| note.downcast_mut())
    }

    pub(super) fn note_mut<T: 'static>(&mut self) -> Option<&mut T> {
        self.notes.iter_mut().rev().find_map(|note| note.downcast_mut())
    }

    pub(super) fn take<T: 'static>(&mut self) -> Option<T> {
        let at = self.notes.iter().rposition(|note| note.is::<T>())?;
        // `swap_remove` would change the order, by which the latest value counts.
        self.notes.remove(at).downcast().ok().map(|note| *note)
    }

    pub(super) fn filter_verdict(&self, instance: &PluginInstance) -> Option<bool> {
        // The snapshot owns the instances for the life of the exchange, so an address identifies one of them.
        let key: *const PluginInstance = instance;
        self.filter_verdicts.iter().find(|(known, _)| *known == key).map(|(_, verdict)| *verdict)
    }

    pub(super) fn keep_filter_verdict(&mut self, instance: &PluginInstance, verdict: bool) {
        self.filter_verdicts.push((instance, verdict));
    }
}

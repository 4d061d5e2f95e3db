//! Counters of the calls of plugins to services, by plugin.

use std::sync::{Arc, Mutex, PoisonError};

use yumen_base::{Counter, Gauge};

/// The result of a call, as an index of [`PluginCalls::results`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallResult {
    /// A response head arrived.
    Answered,
    /// No endpoint, no connection, or a connection that closed.
    Failed,
    /// The time limit passed.
    TimedOut,
    /// Nothing was sent, because too many calls were in flight or the last ones timed out.
    Busy,
}

impl CallResult {
    /// The values of the label `result`, in the order of the indexes.
    pub(crate) const NAMES: [&'static str; 4] = ["answered", "failed", "timeout", "busy"];
}

/// Counters of the calls of one plugin.
#[derive(Debug, Default)]
pub(crate) struct PluginCalls {
    pub(crate) results: [Counter; CallResult::NAMES.len()],
    pub(crate) in_flight: Gauge,
}

impl PluginCalls {
    pub(crate) fn count(&self, result: CallResult) {
        self.results[result as usize].add(1);
    }
}

/// Counters of a worker. Names of plugins are fixed in the program, so the list is bounded.
#[derive(Debug, Default)]
pub(crate) struct CallCounters {
    /// Contended only while metrics are read.
    plugins: Mutex<Vec<(&'static str, Arc<PluginCalls>)>>,
}

impl CallCounters {
    /// The counters of a plugin.
    pub(crate) fn of(&self, plugin: &'static str) -> Arc<PluginCalls> {
        let mut plugins = self.plugins.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, calls)) = plugins.iter().find(|(name, _)| *name == plugin) {
            return calls.clone();
        }
        let calls = Arc::<PluginCalls>::default();
        plugins.push((plugin, calls.clone()));
        calls
    }

    /// All plugins that made calls.
    pub(crate) fn list(&self) -> Vec<(&'static str, Arc<PluginCalls>)> {
        self.plugins.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

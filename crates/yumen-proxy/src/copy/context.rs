//! The parts of a worker that a copy uses.

use std::rc::Rc;

use crate::observe::counters::WorkerCounters;
use crate::runtime::buffer::Buffers;
use crate::runtime::timers::Timers;
use crate::settings::WorkerSettings;

/// Borrowed parts of a worker.
#[derive(Clone, Copy)]
pub(crate) struct CopyContext<'w> {
    pub(crate) buffers: &'w Rc<Buffers>,
    pub(crate) counters: &'w WorkerCounters,
    pub(crate) settings: &'w WorkerSettings,
    pub(crate) timers: &'w Rc<Timers>,
}

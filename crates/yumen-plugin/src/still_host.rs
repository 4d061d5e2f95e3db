//! A host for exchanges outside of a worker: tests, benchmarks, fuzz targets.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use yumen_base::Now;

use crate::plugin::LocalFuture;
use crate::{PluginHost, SubrequestFault, SubrequestResponse, SubrequestSpec};

type SubrequestAnswer = Result<SubrequestResponse, SubrequestFault>;

/// A host whose time stands still, whose random numbers are equal, and whose servers give one answer.
#[derive(Default)]
pub struct StillHost {
    /// The answer to the first subrequest; there are no servers without one.
    pub answer: Cell<Option<SubrequestAnswer>>,
    /// The last subrequest.
    pub asked: RefCell<Option<SubrequestSpec>>,
}

impl StillHost {
    /// A host whose servers give this answer.
    pub fn answering(answer: SubrequestAnswer) -> StillHost {
        StillHost { answer: Cell::new(Some(answer)), asked: RefCell::default() }
    }
}

impl PluginHost for StillHost {
    fn sleep(&self, _: Duration) -> LocalFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    fn random(&self) -> u64 {
        4
    }

    fn fill_random(&self, out: &mut [u8]) {
        out.fill(4);
    }

    fn worker(&self) -> usize {
        0
    }

    fn clock(&self) -> Now {
        Now::default()
    }

    fn send_subrequest(&self, subrequest: SubrequestSpec) -> Option<LocalFuture<'static, SubrequestAnswer>> {
        self.asked.replace(Some(subrequest));
        Some(Box::pin(std::future::ready(self.answer.take()?)))
    }
}

//! Live sources of endpoint inputs, from which a successor gets the known ones.

use std::sync::Arc;

use super::discovery::ServiceLedger;
use super::dns::HostNames;
use super::inputs::KnownInputs;
use crate::fetched::FetchLedger;

/// Live sources of known inputs.
#[derive(Clone)]
pub(crate) struct InputSources {
    pub(crate) names: Arc<HostNames>,
    pub(crate) services: Arc<ServiceLedger>,
    pub(crate) fetched: Arc<FetchLedger>,
}

impl InputSources {
    /// Copies the current inputs.
    pub(crate) fn now(&self) -> KnownInputs {
        KnownInputs {
            names: self.names.known(),
            services: self.services.known().into_iter().collect(),
            documents: self.fetched.documents(|_| true),
        }
    }
}

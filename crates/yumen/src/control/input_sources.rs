//! Live sources of the compiler's inputs, from which a successor gets the known ones.

use std::sync::Arc;

use crate::endpoints::discovery::ServiceLedger;
use crate::endpoints::dns::HostNames;
use crate::endpoints::inputs::KnownInputs;
use crate::environment::ReadVariables;
use crate::fetched::FetchLedger;

/// Live sources of known inputs.
#[derive(Clone)]
pub(crate) struct InputSources {
    pub(crate) names: Arc<HostNames>,
    pub(crate) services: Arc<ServiceLedger>,
    pub(crate) fetched: Arc<FetchLedger>,
    pub(crate) variables: Arc<ReadVariables>,
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

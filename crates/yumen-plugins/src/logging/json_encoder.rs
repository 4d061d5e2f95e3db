//! The payload form that loggers share: a list of entries, or a single entry.

use yumen_plugin::{SinkBatch, SinkEncoder, SinkFraming, SinkRequest};

use super::settings::BatchSettings;

/// Encodes a batch as a JSON list, and as a single object if batches have one entry.
#[derive(Debug)]
pub(crate) struct JsonEncoder {
    is_single: bool,
}

impl JsonEncoder {
    /// The encoder for these batches.
    pub(crate) fn new(batch: &BatchSettings) -> JsonEncoder {
        JsonEncoder { is_single: batch.batch_max_size == 1 }
    }
}

impl SinkEncoder for JsonEncoder {
    fn framing(&self) -> SinkFraming {
        if self.is_single { SinkFraming::PLAIN } else { SinkFraming::JSON_LIST }
    }

    fn requests(&self, batch: &SinkBatch<'_>) -> Vec<SinkRequest> {
        let body = batch.framed(self.framing());
        vec![SinkRequest { body, entries: batch.entries, ..SinkRequest::default() }]
    }
}

//! Reviews of objects before the API server stores them: `AdmissionReview` of `admission.k8s.io/v1` in and out, and
//! the findings that refuse an object.

mod findings;
mod request;
#[cfg(test)]
mod tests;

pub use findings::{AdmissionFindings, ResourceCheck};
pub(crate) use findings::{condition_findings, problem_findings, resource_findings};
pub use request::{AdmissionQuestion, ReviewDefect, ReviewSubject, ReviewedObject, read_review};

use serde_json::{Value, json};

const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";
/// Bytes of a warning that the API server passes on for certain.
const WARNING_BYTES_MAX: usize = 256;
/// Warnings of one answer. The API server bounds all of them at 4 KiB.
const WARNINGS_MAX: usize = 15;
/// Bytes of the text that refuses an object.
const MESSAGE_BYTES_MAX: usize = 8 * 1024;

impl AdmissionFindings {
    /// The `AdmissionReview` that answers a question.
    pub fn answer(&self, question: &AdmissionQuestion) -> Value {
        let warnings = self.warnings.iter().take(WARNINGS_MAX);
        let warnings: Vec<String> = warnings.map(|text| shortened(text, WARNING_BYTES_MAX)).collect();
        let mut response = json!({ "uid": question.uid, "allowed": self.refusals.is_empty() });
        if !self.refusals.is_empty() {
            let message = shortened(&self.refusals.join("; "), MESSAGE_BYTES_MAX);
            response["status"] =
                json!({ "status": "Failure", "code": 400, "reason": "BadRequest", "message": message });
        }
        if !warnings.is_empty() {
            response["warnings"] = warnings.into();
        }
        json!({ "apiVersion": API_VERSION, "kind": KIND, "response": response })
    }
}

fn shortened(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    let mut end = bytes_max - 3;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}...", &text[..end])
}

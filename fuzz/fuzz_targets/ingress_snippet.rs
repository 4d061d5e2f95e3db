//! Snippets and log formats of ingress-nginx: total, and a refusal has a reason.

#![no_main]

use libfuzzer_sys::fuzz_target;
use yumen_kubernetes::ingress_nginx::{SnippetPlace, translate_log_line, translate_snippet};

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for place in [SnippetPlace::Location, SnippetPlace::Server, SnippetPlace::Auth] {
        if let Err(refusal) = translate_snippet(text, place) {
            assert!(!refusal.to_string().is_empty());
        }
    }
    let _ = translate_log_line(text);
});

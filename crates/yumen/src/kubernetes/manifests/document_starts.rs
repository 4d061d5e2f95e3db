//! The lines at which the documents of a YAML text start.

/// The first line of each document that has content, counted from 1.
pub(super) fn document_starts(text: &str) -> Vec<u32> {
    let mut starts = Vec::new();
    let mut has_content = false;
    for (line, number) in text.lines().zip(1..) {
        // At the first column these are markers of documents, also within a block scalar (YAML 1.2 §9.1.2).
        let marker = line.strip_prefix("---").or_else(|| line.strip_prefix("..."));
        let rest = marker.filter(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r']));
        has_content &= rest.is_none();
        let content = rest.unwrap_or(line).trim_start();
        let is_content = !content.is_empty() && !content.starts_with(['#', '%']);
        if is_content && !has_content {
            has_content = true;
            starts.push(number);
        }
    }
    starts
}

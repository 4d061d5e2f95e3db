//! The encoding of a document: UTF-8, with a remedy for other ones.

use yumen_base::{FilePlace, Problem};

use super::syntax::span;

/// The text of a file in UTF-8.
///
/// # Errors
/// The shown text and the problem with its place, which has no name of a file yet. The text is empty if the bytes
/// cannot be shown.
pub fn decode(bytes: Vec<u8>) -> Result<String, Box<(String, Problem)>> {
    if is_utf16(&bytes) {
        let problem = Problem::error("file", "", "the file is UTF-16 text").hint("save the file as UTF-8");
        return Err(Box::new((String::new(), problem)));
    }
    let error = match String::from_utf8(bytes) {
        Ok(text) => return Ok(text),
        Err(error) => error,
    };
    let at = error.utf8_error().valid_up_to();
    let bytes = error.as_bytes();
    // A byte of 0 is in no text, so the file is no text in another encoding either.
    if bytes.contains(&0) {
        let problem = Problem::error("file", "", "the file is binary, not UTF-8 text");
        return Err(Box::new((String::new(), problem.hint("give a document in YAML or JSON"))));
    }
    let before = String::from_utf8_lossy(&bytes[..at]);
    let (line, column) = (before.matches('\n').count() + 1, before.rsplit('\n').next().unwrap_or_default());
    let span = span(line, column.chars().count() + 1, 1);
    let message = format!("the byte 0x{:02X} is not UTF-8 text", bytes[at]);
    let problem = Problem::error("file", "", message).hint("save the file as UTF-8");
    let place = Some(FilePlace { file: "".into(), span });
    Err(Box::new((String::from_utf8_lossy(bytes).into_owned(), Problem { place, ..problem })))
}

/// Whether a text begins with the byte order mark of UTF-16, or has a zero in its first two characters of ASCII.
fn is_utf16(bytes: &[u8]) -> bool {
    let is_unit = |low: usize, high: usize| {
        [0, 2].iter().all(|at| {
            let unit = (bytes.get(at + low), bytes.get(at + high));
            matches!(unit, (Some(1..=127), Some(0)))
        })
    };
    bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) || is_unit(0, 1) || is_unit(1, 0)
}

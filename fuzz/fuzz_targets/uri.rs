//! Paths: a normalized path has no empty or dot segment, and one that `is_normal` is unchanged.

#![no_main]

use libfuzzer_sys::fuzz_target;
use yumen_http::uri;

fuzz_target!(|data: &[u8]| {
    let _ = uri::query_arguments(data).count();
    let mut path = b"/".to_vec();
    path.extend(data.iter().filter(|byte| **byte != b'?'));
    let mut normal = Vec::new();
    if uri::normalize(&path, &mut normal).is_err() {
        assert!(!uri::is_normal(&path));
        return;
    }
    assert!(normal.starts_with(b"/"));
    if uri::is_normal(&path) {
        assert_eq!(normal, path);
    }
    if let Ok(uri::PathForms { resolved: Some(resolved), .. }) =
        uri::PathForms::read(&path, uri::PathPolicy::default())
    {
        assert!(!uri::has_dot_segment(&resolved), "{}", resolved.escape_ascii());
        let again = uri::raw_part(&resolved, 0..normal.len());
        assert_eq!(again, resolved);
    }
    let mut segments = normal[1..].split(|byte| *byte == b'/').peekable();
    while let Some(segment) = segments.next() {
        assert!(segment != b"." && segment != b"..", "{}", normal.escape_ascii());
        assert!(!segment.is_empty() || segments.peek().is_none(), "{}", normal.escape_ascii());
    }
});

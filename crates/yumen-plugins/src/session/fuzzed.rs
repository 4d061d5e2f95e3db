//! Session cookies for fuzz targets.

use std::sync::OnceLock;

use yumen_plugin::RequestHead;

use super::cookie;
use super::seal::unpack;
use super::store::OpenedLogin;
use super::{CookiePurpose, LoginSealKeys};

/// The value of a session cookie: no value opens that was not sealed, a sealed one opens unchanged, and a split one is
/// joined again.
pub fn session_cookie(bytes: &[u8]) {
    static KEYS: OnceLock<LoginSealKeys> = OnceLock::new();
    let keys = KEYS.get_or_init(|| LoginSealKeys::new(["a secret of the target"]));
    let mut head = RequestHead::default();
    head.fields.add("Cookie", &[&b"session="[..], bytes].concat());
    if let Ok(Some((value, count))) = cookie::join(&head, "session") {
        assert!((1..=8).contains(&count));
        assert!(keys.open(CookiePurpose::Session, "session", &value).is_err(), "a forged session");
    }
    if let Some(text) = unpack(bytes) {
        let _ = OpenedLogin::read(&text, false, None);
    }
    let sealed = keys.seal(CookiePurpose::Session, "session", bytes, [7; 16]).expect("a key");
    let parts = cookie::split(&sealed).expect("a short text");
    let mut head = RequestHead::default();
    for (at, part) in parts.iter().enumerate() {
        let name = cookie::chunk_name("session", at + 1);
        head.fields.add("Cookie", format!("{name}={part}").as_bytes());
    }
    let (value, count) = cookie::join(&head, "session").expect("whole").expect("present");
    assert_eq!((count, &*value), (parts.len(), sealed.as_bytes()));
    let (text, key) = keys.open(CookiePurpose::Session, "session", &value).expect("a sealed value");
    assert_eq!((text.as_slice(), key), (bytes, 0));
}

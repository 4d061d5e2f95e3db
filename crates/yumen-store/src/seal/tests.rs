use yumen_config::Kind;

use super::{KEY_BYTES, Keyring, SealError, TextSeal};
use crate::state::ResourceKey;

const JSON: &str = r#"{"username":"jack","plugins":{"key-auth":{"key":"secret"}}}"#;

fn keyring(keys: &[u8]) -> Keyring {
    let keys: Vec<[u8; KEY_BYTES]> = keys.iter().map(|byte| [*byte; KEY_BYTES]).collect();
    Keyring::new(&keys).unwrap()
}

fn jack() -> ResourceKey {
    ResourceKey::new(Kind::Consumers, "jack")
}

#[test]
fn sealed_text_is_opened_and_discloses_nothing() {
    let ring = keyring(&[1]);
    let (one, other) = (ring.seal(&jack(), JSON), ring.seal(&jack(), JSON));
    assert_ne!(one, other, "a nonce is never used twice");
    assert!(one.starts_with("sealed:1:") && !one.contains("secret"), "{one}");
    assert_eq!(ring.open(&jack(), &one).as_deref(), Ok(JSON));
    assert_eq!(ring.open(&jack(), &ring.seal(&jack(), "")).as_deref(), Ok(""));
}

#[test]
fn the_first_key_seals_and_all_open() {
    let old = keyring(&[1]).seal(&jack(), JSON);
    let turned = keyring(&[2, 1]);
    assert_eq!(turned.open(&jack(), &old).as_deref(), Ok(JSON));
    let new = turned.seal(&jack(), JSON);
    let unknown = keyring(&[1]).open(&jack(), &new).unwrap_err();
    assert!(matches!(unknown, SealError::UnknownKey { .. }), "{unknown}");
    assert!(unknown.to_string().starts_with("consumers/jack is sealed under key "), "{unknown}");
}

#[test]
fn a_text_that_was_never_sealed_is_itself() {
    assert_eq!(keyring(&[1]).open(&jack(), JSON).as_deref(), Ok(JSON));
}

#[test]
fn an_altered_text_and_the_text_of_another_object_are_refused() {
    let ring = keyring(&[1]);
    let sealed = ring.seal(&jack(), JSON);
    let altered = Err(SealError::Altered(jack()));
    for at in "sealed:1:01234567:".len()..sealed.len() {
        let mut text = sealed.clone().into_bytes();
        text[at] = if text[at] == b'A' { b'B' } else { b'A' };
        assert_eq!(ring.open(&jack(), &String::from_utf8(text).unwrap()), altered, "at {at}");
        assert_eq!(ring.open(&jack(), &sealed[..at]), altered, "cut at {at}");
    }
    let other = ResourceKey::new(Kind::Consumers, "jill");
    assert_eq!(ring.open(&other, &sealed), Err(SealError::Altered(other.clone())));
}

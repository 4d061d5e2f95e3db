use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use yumen_config::Kind;
use yumen_config::node::SecretText;

use super::{FILE, derive_keys, open_keyring};
use crate::seal::TextSeal;
use crate::state::ResourceKey;

const ONE: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";

/// A directory per test, removed at the end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("yumen-keyring-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn write(directory: &Directory, text: &str, mode: u32) {
    fs::create_dir_all(&directory.0).unwrap();
    let path = directory.0.join(FILE);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn the_first_start_makes_a_keyring_for_its_owner_alone() {
    let directory = Directory::new("first");
    let key = ResourceKey::new(Kind::Routes, "1");
    let sealed = open_keyring(&directory.0, &[]).unwrap().seal(&key, "{}");
    let mode = fs::metadata(directory.0.join(FILE)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(open_keyring(&directory.0, &[]).unwrap().open(&key, &sealed).as_deref(), Ok("{}"));
}

#[test]
fn configured_keys_need_no_file() {
    let directory = Directory::new("configured");
    open_keyring(&directory.0, &[SecretText(ONE.to_owned())]).unwrap();
    assert!(!directory.0.exists());
}

#[test]
fn a_keyring_that_is_none_is_refused_with_its_place() {
    for (name, text, mode, message) in [
        ("mode", ONE, 0o644, "may be read by others (mode 644): it must be 600"),
        ("empty", "# nothing\n", 0o600, "has no key"),
        ("short", "\nAQEB\n", 0o600, "line 2 of "),
        ("strange", "not base64", 0o600, "is not a key: expected 32 bytes in base64"),
    ] {
        let directory = Directory::new(name);
        write(&directory, text, mode);
        let error = open_keyring(&directory.0, &[]).unwrap_err().to_string();
        assert!(error.contains(message), "{name}: {error}");
    }
}

#[test]
fn keys_of_another_purpose_follow_from_the_keyring() {
    let directory = Directory::new("derived");
    assert!(derive_keys(&directory.0, &[], "a").is_empty(), "no file is created");
    assert!(!directory.0.exists());
    let configured = [SecretText(ONE.into())];
    let own = derive_keys(&directory.0, &configured, "a");
    write(&directory, &format!("# a comment\n{ONE}\nno key\n"), 0o600);
    assert_eq!((own.len(), &derive_keys(&directory.0, &[], "a")), (1, &own));
    // Neither the key itself nor that of another purpose.
    assert_ne!(own[0], [1; 32]);
    assert_ne!(own, derive_keys(&directory.0, &configured, "b"));
}

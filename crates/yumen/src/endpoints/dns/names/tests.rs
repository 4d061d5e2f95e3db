use std::net::IpAddr;
use std::path::PathBuf;

use super::*;

fn addresses(written: &[&str]) -> HostAddresses {
    HostAddresses::of(written.iter().map(|one| one.parse::<IpAddr>().unwrap()).collect())
}

/// Directory of one test.
fn directory(of: &str) -> PathBuf {
    let directory = std::env::temp_dir().join(format!("yumen-names-{of}-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    directory
}

#[test]
fn saved_addresses_are_known_until_the_first_lookup() {
    let directory = directory("kept");
    let names = HostNames::open(&directory, HashMap::new());
    assert_eq!(names.begin("a.test"), HostAddresses::default());
    names.note("a.test", &addresses(&["10.0.0.1", "fd00::1"]));
    names.note("b.test", &addresses(&["10.0.0.2"]));
    names.forget("b.test");
    names.write();
    let saved = [("c.test".into(), addresses(&["10.0.0.3"]))].into();
    let next = HostNames::open(&directory, saved);
    assert_eq!(next.known(), HashMap::new(), "nobody wants a name yet");
    assert_eq!(next.begin("a.test"), addresses(&["10.0.0.1", "fd00::1"]));
    assert_eq!(next.begin("a.test"), HostAddresses::default(), "once");
    assert_eq!(next.begin("b.test"), HostAddresses::default());
    assert_eq!(next.begin("c.test"), addresses(&["10.0.0.3"]));
    assert_eq!(next.known().len(), 2, "what was known before is handed on before anybody answers");
    fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn the_process_before_knows_better_than_the_file() {
    let directory = directory("told");
    fs::write(directory.join(FILE), r#"{"names": {"a.test": ["10.0.0.1"]}}"#).unwrap();
    let names = HostNames::open(&directory, [("a.test".into(), addresses(&["10.0.0.2"]))].into());
    assert_eq!(names.begin("a.test"), addresses(&["10.0.0.2"]));
    fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn damage_is_nothing_and_no_directory_is_made() {
    let directory = directory("damage");
    for damage in ["", "{}", r#"{"names": {"a.test": "10.0.0.1"}}"#, r#"{"names": {"a.test": ["x"]}}"#] {
        fs::write(directory.join(FILE), damage).unwrap();
        assert_eq!(
            HostNames::open(&directory, HashMap::new()).begin("a.test"),
            HostAddresses::default(),
            "{damage}"
        );
    }
    fs::remove_dir_all(&directory).unwrap();
    let names = HostNames::open(&directory, HashMap::new());
    names.note("a.test", &addresses(&["10.0.0.1"]));
    names.write();
    assert!(!directory.exists());
}

use super::*;

fn fresh(name: &str) -> PathBuf {
    let directory = std::env::temp_dir().join(format!("yumen-starter-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&directory);
    directory
}

#[test]
fn a_missing_directory_and_document_are_written() {
    let directory = fresh("missing");
    let path = ensure_starter(directory.join("deep")).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), STARTER);
    assert_eq!(fs::read_dir(directory.join("deep")).unwrap().count(), 1, "the draft stayed behind");
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_document_that_is_there_is_left_alone() {
    let directory = fresh("there");
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("routes.yaml"), "routes: []").unwrap();
    let path = ensure_starter(&directory).unwrap();
    assert_eq!(fs::read_to_string(path).unwrap(), "routes: []");
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_directory_that_cannot_be_made_is_an_error() {
    let directory = fresh("blocked");
    fs::write(&directory, "a file").unwrap();
    assert!(ensure_starter(&directory).is_err());
    fs::remove_file(directory).unwrap();
}

#[test]
fn the_document_says_hello_and_is_whole() {
    assert!(STARTER.contains("\n    uri: /hello\n"));
    assert!(STARTER.contains(r#"response_example: '{"message":"hello from yumen"}'"#));
    assert_eq!(STARTER.lines().last(), Some("#END"));
}

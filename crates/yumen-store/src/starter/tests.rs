use super::*;

#[test]
fn the_document_says_hello_and_is_whole() {
    assert!(STARTER.contains("\n    uri: /hello\n"));
    assert!(STARTER.contains(r#"response_example: '{"message":"hello from yumen"}'"#));
    assert_eq!(STARTER.lines().last(), Some("#END"));
}

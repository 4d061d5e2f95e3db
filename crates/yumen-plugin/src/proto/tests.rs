use base64::Engine as _;

use super::{ProtoDescriptors, UnknownProtoName};

const HELLO: &str = r#"syntax = "proto3";
package a.b;
import "google/protobuf/timestamp.proto";
import "google/api/annotations.proto";
message Hello { string name = 1; google.protobuf.Timestamp at = 2; }
service Greeter {
  rpc Say (Hello) returns (Hello) { option (google.api.http) = { get: "/v1/{name}" }; }
}
"#;

#[test]
fn text_is_compiled_with_the_usual_imports() {
    let protos = ProtoDescriptors::compile(HELLO).expect("it compiles");
    let method = protos.method("a.b.Greeter", "Say").expect("it is there");
    assert_eq!(method.input().full_name(), "a.b.Hello");
}

#[test]
fn a_descriptor_set_in_base64_is_as_good() {
    let set = ProtoDescriptors::compile(HELLO).expect("it compiles").pool().encode_to_vec();
    let content = base64::engine::general_purpose::STANDARD.encode(set);
    let protos = ProtoDescriptors::compile(&content).expect("it is read");
    assert_eq!(protos.method("a.b.Greeter", "Say").expect("it is there").name(), "Say");
}

#[test]
fn names_that_are_not_there_are_answered_with_those_that_are() {
    let protos = ProtoDescriptors::compile(HELLO).expect("it compiles");
    assert_eq!(
        protos.method("Greeter", "Say"),
        Err(UnknownProtoName::Service(vec!["a.b.Greeter".to_owned()]))
    );
    assert_eq!(protos.method("a.b.Greeter", "Sing"), Err(UnknownProtoName::Method(vec!["Say".to_owned()])));
}

fn check(content: &str, expected: &str) {
    let refused = ProtoDescriptors::compile(content).expect_err("it does not compile");
    assert_eq!((refused.path.as_str(), refused.message.as_str()), ("content", expected), "{content}");
}

#[test]
fn errors_have_a_line_number() {
    check(
        "syntax = \"proto3\";\nmessage A {\n  string b = ;\n}",
        "line 3, column 14: expected an integer, but found ';'",
    );
    check(
        "syntax = \"proto3\";\nmessage A {\n  Missing b = 1;\n}",
        "line 3, column 3: name 'Missing' is not defined",
    );
    check(
        "syntax = \"proto3\";\nimport \"other.proto\";",
        "line 2, column 1: import 'other.proto' not found",
    );
    check("AAAA", "the descriptor set cannot be read: failed to decode file descriptor set");
}

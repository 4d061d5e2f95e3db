use base64::Engine as _;
use prost_reflect::prost::Message as _;
use prost_reflect::prost_types::uninterpreted_option::NamePart;
use prost_reflect::prost_types::{
    DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet, FileOptions,
    MessageOptions, UninterpretedOption,
};

use super::{DEPTH_MAX, NestingScan, scan};
use crate::proto::ProtoDescriptors;

/// Compiles a proto on a quarter of the usual stack.
fn compiled(content: String) -> Result<(), String> {
    let work = move || ProtoDescriptors::compile(&content).map(drop).map_err(|refused| refused.message);
    let thread = std::thread::Builder::new().stack_size(512 << 10).spawn(work).expect("a thread");
    thread.join().expect("it ends")
}

fn nested(open: &str, close: &str, depth: usize) -> String {
    open.repeat(depth) + &close.repeat(depth)
}

#[test]
fn a_text_nests_up_to_a_bound() {
    let messages = |depth| format!("syntax=\"proto3\";\n{}", nested("message A{", "}", depth));
    assert_eq!(compiled(messages(DEPTH_MAX)), Ok(()));
    let bound = "line 2: it nests more than 64 levels deep";
    let check = |content: String| assert_eq!(compiled(content), Err(bound.to_owned()));
    check(messages(DEPTH_MAX + 1));
    check(messages(100_000));
    let groups = |depth| nested("optional group G = 1 {", "}", depth);
    assert_eq!(compiled(format!("syntax=\"proto2\"; message M {{ {} }}", groups(DEPTH_MAX - 1))), Ok(()));
    check(format!("syntax=\"proto2\"; message M {{\n{} }}", groups(100_000)));
    let option = |open: &str, close: &str, depth: usize| {
        format!(
            "syntax=\"proto3\"; import \"google/protobuf/descriptor.proto\"; message O {{ O a = 1; }}\
             extend google.protobuf.FileOptions {{ O x = 50000; }} option (x) = {{\n{}}};",
            nested(open, close, depth)
        )
    };
    for (open, close) in [("a {", "}"), ("a <", ">"), ("a: {", "}")] {
        assert_eq!(compiled(option(open, close, DEPTH_MAX - 1)), Ok(()), "{open}");
        check(option(open, close, 20_000));
    }
    check(format!("syntax=\"proto3\";\noption {} = 1;", nested("(", ")", 20_000)));
    check(format!("syntax=\"proto3\";\n{}", "message A{ ) ] > ".repeat(20_000)));
}

#[test]
fn only_brackets_that_are_code_count() {
    let many = "{".repeat(1000);
    let fine = |text: String| assert_eq!(scan(text.as_bytes()), NestingScan::Fine, "{text}");
    fine(format!("// {many}"));
    fine(format!("# {many}\n{{"));
    fine(format!("/* {many}\n* {many} **/ {{}}"));
    fine(format!("option a = \"{many}\\\"{many}\" 'x{many}';"));
    fine("{}".repeat(1000));
    let deep = |text: String| assert!(matches!(scan(text.as_bytes()), NestingScan::TooDeep(_)), "{text}");
    deep(many.clone());
    deep(format!("// a\n{many}"));
    deep(format!("# /*\n{many}"));
    deep(format!("/*/ \" */{many}\""));
    deep(format!("\"a\n{many}"));
    deep(format!("\"a\\\n{many}"));
    deep(format!("\"\\\\\"{many}"));
    deep("{)".repeat(100));
    assert_eq!(scan(format!("/* /*/ \" */ {many} \"").as_bytes()), NestingScan::NestedComment(3));
    assert_eq!(
        compiled(format!("syntax=\"proto3\";\n/* /*/ \" */ {} \"", "message A{".repeat(5000))),
        Err("line 2: a comment begins inside a comment".to_owned())
    );
}

#[test]
fn long_texts_are_no_deep_ones() {
    let long = |part: &str| format!("syntax=\"proto3\";{}message A {{}}", part.repeat(200_000));
    for part in [" ", "\n", ";", "// a\n", "/* a */", "\t\r\n"] {
        assert_eq!(compiled(long(part)), Ok(()), "{part:?}");
    }
}

fn set(messages: Vec<DescriptorProto>, options: Option<FileOptions>) -> String {
    let name = Some("a.proto".to_owned());
    let file = FileDescriptorProto { name, message_type: messages, options, ..Default::default() };
    let bytes = FileDescriptorSet { file: vec![file] }.encode_to_vec();
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

fn message(name: &str, nested_type: Vec<DescriptorProto>) -> DescriptorProto {
    DescriptorProto { name: Some(name.to_owned()), nested_type, ..Default::default() }
}

#[test]
fn a_descriptor_set_nests_up_to_a_bound() {
    let messages = |depth: usize| (1..depth).fold(message("A", vec![]), |inner, _| message("A", vec![inner]));
    assert_eq!(compiled(set(vec![messages(DEPTH_MAX)], None)), Ok(()));
    let problem = "the descriptor set cannot be read: message A nests more than 64 levels deep";
    assert_eq!(compiled(set(vec![messages(DEPTH_MAX + 1)], None)), Err(problem.to_owned()));
    let far = compiled(set(vec![messages(1000)], None)).expect_err("it is too deep");
    assert!(far.starts_with("the descriptor set cannot be read"), "{far}");
    let name = vec![NamePart { name_part: "x".to_owned(), is_extension: true }];
    let option =
        UninterpretedOption { name, aggregate_value: Some("a {".repeat(20_000)), ..Default::default() };
    let options = FileOptions { uninterpreted_option: vec![option], ..Default::default() };
    let problem = "the descriptor set cannot be read: an option nests more than 64 levels deep";
    assert_eq!(compiled(set(vec![], Some(options))), Err(problem.to_owned()));
}

#[test]
fn a_map_in_a_descriptor_set_has_keys_and_values() {
    let field = |name: &str, number: i32, kind: i32| FieldDescriptorProto {
        name: Some(name.to_owned()),
        number: Some(number),
        label: Some(1),
        r#type: Some(kind),
        ..Default::default()
    };
    let (text, bytes) = (9, 12);
    let map = |fields: Vec<FieldDescriptorProto>| {
        let options = Some(MessageOptions { map_entry: Some(true), ..Default::default() });
        let entry = DescriptorProto { field: fields, options, ..message("Entry", vec![]) };
        compiled(set(vec![message("A", vec![entry])], None))
    };
    assert_eq!(map(vec![field("key", 1, text), field("value", 2, bytes)]), Ok(()));
    let problem = "the descriptor set cannot be read: the map entry Entry has no key and value";
    for fields in [vec![], vec![field("key", 1, text)], vec![field("key", 1, bytes), field("value", 2, text)]]
    {
        assert_eq!(map(fields), Err(problem.to_owned()));
    }
}

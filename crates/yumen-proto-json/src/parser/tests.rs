use prost_reflect::DynamicMessage;
use prost_reflect::MessageDescriptor;
use prost_reflect::prost::Message as _;
use serde::de::DeserializeSeed as _;
use yumen_plugin::proto::ProtoDescriptors;

use super::MembersSeed;
use crate::wire::MessageWriter;

const TYPES: &str = r#"syntax = "proto3";
package t;
import "google/protobuf/any.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/empty.proto";
import "google/protobuf/field_mask.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
enum Size { SMALL = 0; LARGE = 1; LESS = -1; }
message Node {
  double f64 = 1; float f32 = 2; int32 i32 = 3; int64 i64 = 4; uint32 u32 = 5; uint64 u64 = 6; sint32 s32 = 7;
  sint64 s64 = 8; fixed32 x32 = 9; fixed64 x64 = 10; sfixed32 y32 = 11; sfixed64 y64 = 12; bool yes = 13;
  string text = 14; bytes raw = 15; Size size = 16; Node next = 17; optional int32 maybe = 18;
  repeated int64 nums = 19; repeated string texts = 20; repeated Node nodes = 21; repeated Size sizes = 22;
  repeated bool loose = 23 [packed = false];
  map<string, int64> counts = 24; map<int64, Node> by = 25; map<bool, Size> flags = 26; map<uint32, string> names = 27;
  oneof pick { string a = 28; int32 b = 29; google.protobuf.NullValue none = 30; }
  google.protobuf.Timestamp at = 31; google.protobuf.Duration lasts = 32; google.protobuf.FieldMask mask = 33;
  google.protobuf.Struct free = 34; google.protobuf.Value value = 35; google.protobuf.ListValue list = 36;
  google.protobuf.Int64Value wide = 37; google.protobuf.BoolValue may = 38; google.protobuf.Any any = 39;
  google.protobuf.Empty empty = 40; google.protobuf.BytesValue bytes = 41; repeated google.protobuf.Value values = 42;
  google.protobuf.UInt64Value wider = 43; int32 camel_case = 300;
}
"#;

const OLD: &str = r#"syntax = "proto2";
package t;
message Node {
  required string name = 1;
  optional group Inner = 2 { optional int32 a = 1; optional Node next = 2; }
  repeated group More = 3 { optional int32 a = 1; }
  repeated int32 nums = 4;
  extensions 100 to 200;
}
extend Node { optional int32 extra = 100; }
"#;

fn node(content: &str) -> MessageDescriptor {
    let protos = ProtoDescriptors::compile(content).expect("the types compile");
    protos.pool().get_message_by_name("t.Node").expect("the type is there")
}

/// The frame for a JSON object.
fn written(of: &MessageDescriptor, json: &str) -> Result<Vec<u8>, String> {
    let mut to = MessageWriter::default();
    let mut reader = serde_json::Deserializer::from_str(json);
    MembersSeed { of, to: &mut to }.deserialize(&mut reader).map_err(|error| error.to_string())?;
    reader.end().map_err(|error| error.to_string())?;
    to.framed()
}

fn decoded(of: &MessageDescriptor, frame: &[u8]) -> DynamicMessage {
    let (head, message) = frame.split_at(5);
    assert_eq!(head, [&[0], &(message.len() as u32).to_be_bytes()[..]].concat());
    let read = DynamicMessage::decode(of.clone(), message).expect("a message");
    // Removes fields at their default.
    DynamicMessage::decode(of.clone(), &*read.encode_to_vec()).expect("a message")
}

/// The encoded message equals that of the JSON deserializer of prost-reflect.
#[test]
fn every_type_is_written_as_others_write_it() {
    let check = |content: &str, json: &str| {
        let of = node(content);
        let expected = of.deserialize_of(json);
        let frame = written(&of, json).unwrap_or_else(|problem| panic!("{json}: {problem}"));
        assert!(decoded(&of, &frame) == expected, "{json}: {}", decoded(&of, &frame));
    };
    for json in [
        r#"{}"#,
        r#"{"f64":1.5,"f32":-2,"i32":-3,"i64":-4,"u32":5,"u64":18446744073709551615,"s32":-7,"s64":-8}"#,
        r#"{"x32":9,"x64":10,"y32":-11,"y64":-12,"yes":true,"text":"é","raw":"AP8=","size":"LESS"}"#,
        r#"{"f64":"Infinity","f32":"-Infinity","i32":"-3","i64":"-4","u64":"7","size":7,"raw":"-_8"}"#,
        r#"{"i32":1e3,"u64":2.0,"f64":"-Infinity","maybe":0,"camelCase":1,"unknown":{"a":[1,{}]},"next":null}"#,
        r#"{"nums":[1,-1,"2"],"texts":["a",""],"nodes":[{},{"i32":1}],"sizes":["LARGE",-1],"loose":[true,false]}"#,
        r#"{"nums":[],"counts":{"a":1,"":-1},"by":{"-5":{"text":"x","next":{"by":{"1":{}}}}},"flags":{"true":"LARGE"}}"#,
        r#"{"names":{"7":"x","8":""},"flags":{"false":-1},"counts":{},"nodes":[]}"#,
        r#"{"a":"x"}"#,
        r#"{"none":null}"#,
        r#"{"b":0,"a":null}"#,
        r#"{"at":"2026-01-02T03:04:05.6Z","lasts":"-1.5s","mask":"a,bC","empty":{}}"#,
        r#"{"free":{"a":1,"b":[true,null,"x",{"c":{}}],"d":{}},"value":[1],"list":[{"a":[]},2.5]}"#,
        r#"{"value":null,"values":[null,1,"x",{},[]],"wide":"-9","wider":9,"may":false,"bytes":"AA=="}"#,
        r#"{"any":{"@type":"type.googleapis.com/t.Node","text":"x"}}"#,
    ] {
        check(TYPES, json);
    }
    check(
        OLD,
        r#"{"name":"x","inner":{"a":1,"next":{"name":"y"}},"more":[{"a":1},{}],"nums":[1,2],"[t.extra]":5}"#,
    );
}

/// Deserialization by prost-reflect.
trait DeserializeOf {
    fn deserialize_of(&self, json: &str) -> DynamicMessage;
}

impl DeserializeOf for MessageDescriptor {
    fn deserialize_of(&self, json: &str) -> DynamicMessage {
        let lenient = prost_reflect::DeserializeOptions::new().deny_unknown_fields(false);
        let mut reader = serde_json::Deserializer::from_str(json);
        let read = DynamicMessage::deserialize_with_options(self.clone(), &mut reader, &lenient);
        // Through the wire format, in which an empty list does not exist.
        DynamicMessage::decode(self.clone(), &*read.expect("it is JSON").encode_to_vec()).expect("a message")
    }
}

#[test]
fn values_a_type_does_not_have_are_refused() {
    let of = node(TYPES);
    let check = |json: &str, part: &str| {
        let problem = written(&of, json).expect_err(json);
        assert!(problem.contains(part), "{json}: {problem}");
    };
    check(r#"{"i32":2147483648}"#, "invalid value: 2147483648, expected a value of type int32");
    check(r#"{"u64":-1}"#, "expected a value of type uint64");
    check(r#"{"i64":1.5}"#, "expected a value of type int64");
    check(r#"{"i64":1e40}"#, "expected a value of type int64");
    check(r##"{"i64":"#--1"}"##, "expected a value of type int64");
    check(r##"{"i32":"#1"}"##, "expected a value of type int32");
    check(r#"{"f32":1e300}"#, "expected a value of type float");
    check(r#"{"yes":"true"}"#, "expected a value of type bool");
    check(r#"{"yes":1}"#, "expected a value of type bool");
    check(r#"{"text":1}"#, "expected a value of type string");
    check(r#"{"text":{}}"#, "expected a value of type string");
    check(r#"{"raw":"*"}"#, "expected bytes in base64");
    check(r#"{"size":"HUGE"}"#, "invalid value: string \"HUGE\", expected a value of t.Size");
    check(r#"{"sizes":["HUGE"]}"#, "expected a value of t.Size");
    check(r#"{"nums":1}"#, "expected a list");
    check(r#"{"nums":[null]}"#, "expected a value of type int64");
    check(r#"{"counts":[1]}"#, "expected an object");
    check(r#"{"by":{"x":{}}}"#, "expected a value of type int64");
    check(r#"{"next":[]}"#, "expected an object for t.Node");
    check(r#"{"free":[]}"#, "expected an object");
    check(r#"{"list":{}}"#, "expected a list");
    check(r#"{"a":"x","b":1}"#, "the oneof pick has more than one of its fields");
    check(r#"{"camelCase":1,"camel_case":2}"#, "the field camel_case is there twice");
    check(r#"{"next":null,"next":{}}"#, "the field next is there twice");
}

#[test]
fn large_integers_come_back_as_they_were_answered() {
    let of = node(TYPES);
    let check = |json: &str, plain: &str| {
        let frame = written(&of, json).unwrap_or_else(|problem| panic!("{json}: {problem}"));
        assert!(decoded(&of, &frame) == of.deserialize_of(plain), "{json}");
    };
    check(r##"{"i64":"#-9007199254740993"}"##, r#"{"i64":"-9007199254740993"}"#);
    check(r##"{"u64":"#0xffffffffffffffff"}"##, r#"{"u64":"18446744073709551615"}"#);
    check(r##"{"nums":["#-0x20000000000001"]}"##, r#"{"nums":["-9007199254740993"]}"#);
    check(r##"{"counts":{"a":"#9007199254740993"}}"##, r#"{"counts":{"a":"9007199254740993"}}"#);
    check(
        r##"{"by":{"1":{"x64":"#0x10","next":{"y64":"#5"}}}}"##,
        r#"{"by":{"1":{"x64":16,"next":{"y64":5}}}}"#,
    );
    check(r##"{"wide":"#9007199254740993"}"##, r#"{"wide":"9007199254740993"}"#);
    check(r##"{"text":"#1"}"##, r##"{"text":"#1"}"##);
}

/// Runs on a quarter of a worker's stack.
fn on_a_small_stack<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::Builder::new().stack_size(512 << 10).spawn(work).expect("a thread");
    thread.join().expect("it ends")
}

#[test]
fn messages_stand_in_each_other_up_to_a_bound() {
    on_a_small_stack(|| {
        let of = node(TYPES);
        let nested = |open: &str, close: &str, depth: usize| {
            written(&of, &format!("{}{}", open.repeat(depth), close.repeat(depth)))
        };
        let within = nested(r#"{"next":"#, "}", 60).expect_err("a value is missing");
        assert!(within.contains("expected"), "{within}");
        let object = |open: &str, close: &str, depth: usize| {
            written(&of, &format!("{{{}{}}}", open.repeat(depth), close.repeat(depth)))
        };
        assert!(object(r#""next":{"#, "}", 100).is_ok());
        let bound = "messages are nested more than 100 levels deep";
        let refused = |result: Result<Vec<u8>, String>, part: &str| {
            let problem = result.expect_err("it is too deep");
            assert!(problem.contains(part), "{problem}");
        };
        refused(object(r#""next":{"#, "}", 101), bound);
        refused(object(r#""by":{"1":{"#, "}}", 51), bound);
        // The JSON parser counts lists too.
        refused(object(r#""nodes":[{"#, "}]", 100), "recursion limit exceeded");
        refused(object(r#""next":{"#, "}", 100_000), bound);
        refused(written(&of, &format!(r#"{{"value":{}}}"#, "[".repeat(100_000))), bound);
        refused(written(&of, &format!(r#"{{"free":{}}}"#, r#"{"a":"#.repeat(100_000))), bound);
        let any = r#"{"@type":"type.googleapis.com/google.protobuf.Any","value":"#;
        refused(written(&of, &format!(r#"{{"any":{}}}"#, any.repeat(100_000))), "recursion limit exceeded");
        refused(written(&of, &format!(r#"{{"unknown":{}}}"#, "[".repeat(100_000))), "");
    });
}

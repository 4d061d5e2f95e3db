use prost_reflect::prost::encoding::{WireType, encode_key, encode_varint};
use prost_reflect::{DynamicMessage, Kind, MessageDescriptor, SerializeOptions};
use serde_json::{Value, json};
use yumen_plugin::proto::ProtoDescriptors;

use super::{JsonSink, MessageTypeCache, write_json};
use crate::{JsonForm, LargeIntegers};

const ALL: &str = r#"syntax = "proto3";
package t;
import "google/protobuf/any.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/empty.proto";
import "google/protobuf/field_mask.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
enum Size { SMALL = 0; LARGE = 1; }
message M {
  double d = 1; float f = 2; int32 i32 = 3; int64 i64 = 4; uint32 u32 = 5; uint64 u64 = 6; sint32 s32 = 7;
  sint64 s64 = 8; fixed32 x32 = 9; fixed64 x64 = 10; sfixed32 y32 = 11; sfixed64 y64 = 12; bool b = 13;
  string text = 14; bytes raw = 15; Size size = 16; M m = 17;
  optional int32 maybe = 20; optional string maybe_text = 21;
  repeated double ds = 30; repeated int32 is = 31; repeated sint64 ss = 32 [packed = false]; repeated bool bs = 33;
  repeated string texts = 34; repeated Size sizes = 35; repeated M ms = 36; repeated fixed32 xs = 37;
  map<string, int32> by_text = 40; map<sint32, M> by_number = 41; map<bool, Size> by_bool = 42;
  map<uint64, google.protobuf.Value> by_wide = 43; map<fixed64, bytes> by_fixed = 44;
  oneof one { int32 one_number = 50; string one_text = 51; M one_m = 52; google.protobuf.NullValue one_null = 53; }
  google.protobuf.Any any = 60; google.protobuf.Timestamp at = 61; google.protobuf.Duration took = 62;
  google.protobuf.FieldMask mask = 63; google.protobuf.Struct free = 64; google.protobuf.Value value = 65;
  google.protobuf.ListValue list = 66; google.protobuf.Empty empty = 67; google.protobuf.DoubleValue wd = 68;
  google.protobuf.Int64Value wi = 69; google.protobuf.StringValue wt = 70; google.protobuf.BytesValue wr = 71;
  google.protobuf.BoolValue wb = 72; google.protobuf.UInt64Value wu = 73; repeated google.protobuf.Any anys = 74;
}
"#;

const OLD: &str = r#"syntax = "proto2";
package t;
enum Size { LARGE = 3; SMALL = 0; }
message M {
  required int32 number = 1; optional string text = 2 [default = "x"]; optional group Inner = 3 { optional M m = 1; }
  repeated group Many = 4 { optional int32 number = 1; } repeated int32 is = 5; repeated int32 packed = 6 [packed = true];
  map<string, Size> sizes = 7; optional Size size = 8; extensions 100 to 200;
}
extend M { optional M more = 100; repeated int32 numbers = 101; }
"#;

const FORM: JsonForm =
    JsonForm { large_integers: LargeIntegers::Numbers, enum_numbers: false, defaults: true };

fn compiled(content: &str) -> MessageDescriptor {
    ProtoDescriptors::compile(content)
        .expect("it compiles")
        .pool()
        .get_message_by_name("t.M")
        .expect("the type is there")
}

/// Pseudorandom numbers, equal in every run (xorshift64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() >> 11) as usize % bound
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

fn varint(value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_varint(value, &mut bytes);
    bytes
}

fn sized(bytes: Vec<u8>) -> Vec<u8> {
    [varint(bytes.len() as u64), bytes].concat()
}

fn field(number: u32, wire: WireType, value: Vec<u8>) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_key(number, wire, &mut bytes);
    [bytes, value].concat()
}

/// A random value, often the default.
fn scalar(random: &mut Random, kind: &Kind) -> Vec<u8> {
    let wide = random.pick(&[0, 0, 1, 2, 150, u64::from(u32::MAX), 1 << 53, u64::MAX]);
    match kind {
        // Without -0, which the serializer of prost-reflect takes for the default.
        Kind::Double => random.pick(&[0.0, 1.5, 1e300, f64::INFINITY, 0.1]).to_le_bytes().to_vec(),
        Kind::Float => random.pick(&[0.0f32, 1.5, f32::NEG_INFINITY, 0.1]).to_le_bytes().to_vec(),
        Kind::Fixed64 | Kind::Sfixed64 => wide.to_le_bytes().to_vec(),
        Kind::Fixed32 | Kind::Sfixed32 => (wide as u32).to_le_bytes().to_vec(),
        Kind::Bytes => sized(random.pick(&[&b""[..], b"\xff", b"abcd"]).to_vec()),
        Kind::String => sized(random.pick(&["", "a", "\u{e9}\"\n", "b"]).into()),
        Kind::Enum(_) => varint(random.pick(&[0, 1, 7, u64::MAX])),
        _ => varint(wide),
    }
}

/// Random fields in any order, some of them repeated.
fn message(random: &mut Random, of: &MessageDescriptor, depth: usize) -> Vec<u8> {
    match of.full_name() {
        // These types have values without a JSON form.
        "google.protobuf.Any" => {
            let inner = of.parent_pool().get_message_by_name("t.M").expect("the type is there");
            let of = if random.below(2) == 0 { of.clone() } else { inner };
            let url = format!("type.googleapis.com/{}", of.full_name());
            let value = if depth == 0 { Vec::new() } else { message(random, &of, depth - 1) };
            if of.full_name() == "google.protobuf.Any" && value.is_empty() {
                return [field(1, WireType::LengthDelimited, sized(b"x/t.M".to_vec()))].concat();
            }
            let parts = [(1, url.into_bytes()), (2, value)];
            return parts
                .map(|(number, part)| field(number, WireType::LengthDelimited, sized(part)))
                .concat();
        }
        "google.protobuf.Timestamp" | "google.protobuf.Duration" => {
            let seconds = varint(random.pick(&[0, 1, 1_790_000_000]));
            let nanos = varint(random.pick(&[0, 1, 500_000_000]));
            return [field(1, WireType::Varint, seconds), field(2, WireType::Varint, nanos)].concat();
        }
        "google.protobuf.FieldMask" => {
            return field(1, WireType::LengthDelimited, sized(random.pick(&["a", "a_b.c"]).into()));
        }
        _ => {}
    }
    let fields: Vec<_> = of.fields().collect();
    let mut bytes = Vec::new();
    for _ in 0..if fields.is_empty() { 0 } else { random.below(8) } {
        let one = &fields[random.below(fields.len())];
        let (kind, number) = (one.kind(), one.number());
        // Finite only: for infinity the reference serializer writes null or nothing.
        if one.parent_message().full_name().starts_with("google.protobuf.") && kind == Kind::Double {
            bytes.extend(field(number, WireType::SixtyFourBit, 2.5f64.to_le_bytes().to_vec()));
        } else if let Kind::Message(of) = &kind {
            let inner = if depth == 0 { Vec::new() } else { message(random, of, depth - 1) };
            // The reference serializer has no JSON for an empty `Any`.
            if depth == 0 && of.full_name() == "google.protobuf.Any" {
                continue;
            }
            if one.is_group() {
                bytes.extend(
                    [
                        field(number, WireType::StartGroup, inner),
                        field(number, WireType::EndGroup, Vec::new()),
                    ]
                    .concat(),
                );
            } else {
                bytes.extend(field(number, WireType::LengthDelimited, sized(inner)));
            }
        } else if one.is_list() && kind.wire_type() != WireType::LengthDelimited && random.below(2) == 0 {
            let numbers: Vec<u8> = (0..random.below(4)).flat_map(|_| scalar(random, &kind)).collect();
            bytes.extend(field(number, WireType::LengthDelimited, sized(numbers)));
        } else {
            bytes.extend(field(number, kind.wire_type(), scalar(random, &kind)));
        }
        if random.below(8) == 0 {
            bytes.extend(field(999, WireType::Varint, varint(7)));
        }
    }
    bytes
}

fn to_json(
    form: JsonForm,
    of: &MessageDescriptor,
    bytes: &[u8],
    bytes_max: usize,
) -> std::io::Result<Vec<u8>> {
    let mut out = JsonSink::new(bytes_max, "max_resp_body_size", form);
    write_json(&mut out, &MessageTypeCache::of(of.parent_pool()), of, bytes)?;
    Ok(out.into_bytes())
}

/// The JSON of prost-reflect, by a tree of values.
fn by_tree(form: JsonForm, of: &MessageDescriptor, bytes: &[u8]) -> Option<Value> {
    let message = DynamicMessage::decode(of.clone(), bytes).ok()?;
    let options = SerializeOptions::new()
        .stringify_64_bit_integers(false)
        .use_enum_numbers(form.enum_numbers)
        .use_proto_field_name(true)
        .skip_default_fields(!form.defaults);
    let mut json = Vec::new();
    message.serialize_with_options(&mut serde_json::Serializer::new(&mut json), &options).ok()?;
    serde_json::from_slice(&json).ok()
}

fn written(form: JsonForm, of: &MessageDescriptor, bytes: &[u8]) -> Result<Value, String> {
    let json = to_json(form, of, bytes, 1 << 20).map_err(|error| error.to_string())?;
    Ok(serde_json::from_slice(&json)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&json))))
}

#[test]
fn json_is_what_a_tree_of_values_becomes() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for content in [ALL, OLD] {
        let (of, mut compared) = (compiled(content), 0);
        for round in 0..2000 {
            let form = JsonForm { defaults: round % 2 == 0, enum_numbers: round % 3 == 0, ..FORM };
            let bytes = message(&mut random, &of, 4);
            let Some(expected) = by_tree(form, &of, &bytes) else { continue };
            compared += 1;
            assert_eq!(written(form, &of, &bytes), Ok(expected), "round {round}: {bytes:x?}");
            // Corrupt messages are printed or refused; where both print, they may differ in values out of
            // range.
            for _ in 0..bytes.len().min(8) {
                let (at, mut broken) = (random.below(bytes.len()), bytes.clone());
                broken[at] ^= 1 << random.below(8);
                let _ = written(form, &of, &broken);
                let _ = written(form, &of, &bytes[..at]);
            }
        }
        assert!(compared > 1800, "{compared} messages were compared");
    }
}

#[test]
fn extensions_and_groups_are_told() {
    let of = compiled(OLD);
    let number = |field_number| field(field_number, WireType::Varint, varint(7));
    let group =
        [field(3, WireType::StartGroup, Vec::new()), field(3, WireType::EndGroup, Vec::new())].concat();
    let more = field(100, WireType::LengthDelimited, sized(number(1)));
    let bytes = [number(101), more, group, number(101)].concat();
    let expected = json!({ "inner": {}, "[t.more]": { "number": 7 }, "[t.numbers]": [7, 7] });
    let form = JsonForm { defaults: false, ..FORM };
    assert_eq!(by_tree(form, &of, &bytes), Some(expected.clone()));
    assert_eq!(written(form, &of, &bytes), Ok(expected));
    for broken in [&[3 << 3 | 3][..], &[3 << 3 | 4], &[3 << 3 | 3, 4 << 3 | 4], &[3 << 3 | 3].repeat(100_000)]
    {
        assert!(written(form, &of, broken).is_err(), "{:x?}", &broken[..broken.len().min(9)]);
    }
}

fn check(bytes: &[u8], expected: Value) {
    let form = JsonForm { defaults: false, ..FORM };
    assert_eq!(written(form, &compiled(ALL), bytes), Ok(expected), "{bytes:x?}");
}

#[test]
fn unknown_any_is_printed_by_its_fields() {
    let within = |number, bytes: Vec<u8>| field(number, WireType::LengthDelimited, sized(bytes));
    let number = |field_number, value: i64| field(field_number, WireType::Varint, varint(value as u64));
    let any =
        |url: &str, value: &[u8]| within(60, [within(1, url.into()), within(2, value.to_vec())].concat());
    check(
        &any("type/un.Known", b"\x08\x01"),
        json!({ "any": { "@type": "type/un.Known", "value": "CAE=" } }),
    );
    check(&any("t.M", b""), json!({ "any": { "@type": "t.M", "value": "" } }));
    check(&any("", b"a"), json!({ "any": { "@type": "", "value": "YQ==" } }));
    check(&any("type/t.M", b"\x18"), json!({ "any": { "@type": "type/t.M", "value": "GA==" } }));
    check(&any("type/t.M", b"\x18\x05"), json!({ "any": { "@type": "type/t.M", "i32": 5 } }));
    let inner = any("type/un.Known", b"a");
    check(
        &any("a/t.M", &inner),
        json!({ "any": { "@type": "a/t.M", "any": { "@type": "type/un.Known", "value": "YQ==" } } }),
    );
    check(&within(60, Vec::new()), json!({ "any": {} }));
    check(
        &any("a/google.protobuf.Empty", b""),
        json!({ "any": { "@type": "a/google.protobuf.Empty", "value": {} } }),
    );
    check(&within(61, number(1, 1 << 50)), json!({ "at": { "seconds": 1_i64 << 50 } }));
    check(&within(61, number(2, -1)), json!({ "at": { "nanos": -1 } }));
    check(&within(61, number(1, 253_402_300_799)), json!({ "at": "9999-12-31T23:59:59Z" }));
    check(&within(62, number(1, 1 << 62)), json!({ "took": { "seconds": 1_i64 << 62 } }));
    check(
        &within(62, [number(1, 1), number(2, -1)].concat()),
        json!({ "took": { "seconds": 1, "nanos": -1 } }),
    );
    check(&within(62, [number(1, -1), number(2, -500_000_000)].concat()), json!({ "took": "-1.500s" }));
    let paths = |paths: &[&str]| {
        within(63, paths.iter().flat_map(|path| within(1, path.as_bytes().to_vec())).collect())
    };
    check(&paths(&["a_b.c", "d"]), json!({ "mask": "aB.c,d" }));
    for weird in ["weird__x", "a_", "a_.b", "aB", "a_1"] {
        check(&paths(&["a_b", weird]), json!({ "mask": { "paths": ["a_b", weird] } }));
    }
    let double = |number, value: f64| field(number, WireType::SixtyFourBit, value.to_le_bytes().to_vec());
    check(&within(65, double(2, f64::NAN)), json!({ "value": { "number_value": "NaN" } }));
    check(&within(65, Vec::new()), json!({ "value": null }));
    check(&within(68, double(1, f64::NEG_INFINITY)), json!({ "wd": "-Infinity" }));
}

#[test]
fn last_duplicate_field_wins_and_messages_merge() {
    let within = |number, bytes: Vec<u8>| field(number, WireType::LengthDelimited, sized(bytes));
    let number = |field_number, value| field(field_number, WireType::Varint, varint(value));
    check(&[number(3, 1), number(3, 2)].concat(), json!({ "i32": 2 }));
    check(&[number(3, 1), number(3, 0)].concat(), json!({}));
    let parts = [within(17, number(3, 1)), number(3, 9), within(17, number(5, 2)), within(17, number(3, 4))];
    check(&parts.concat(), json!({ "i32": 9, "m": { "i32": 4, "u32": 2 } }));
    // A later field of a oneof removes an earlier one.
    let parts = [within(52, number(3, 1)), number(50, 1), within(52, number(5, 2))];
    check(&parts.concat(), json!({ "one_m": { "u32": 2 } }));
    let entry = |key: &str, value| within(40, [within(1, key.into()), number(2, value)].concat());
    check(&[entry("a", 1), entry("b", 2), entry("a", 3)].concat(), json!({ "by_text": { "a": 3, "b": 2 } }));
    check(&[within(40, Vec::new()), within(40, number(2, 4))].concat(), json!({ "by_text": { "": 4 } }));
    let json =
        to_json(FORM, &compiled(ALL), &[entry("b", 1), entry("a", 1), entry("b", 2)].concat(), 1 << 20);
    let json = String::from_utf8(json.expect("it is told")).expect("it is a text");
    assert!(json.contains(r#""by_text":{"a":1,"b":2}"#), "{json}");
}

#[test]
fn field_with_another_wire_type_is_unknown() {
    let within = |number, bytes: Vec<u8>| field(number, WireType::LengthDelimited, sized(bytes));
    let number = |field_number, value| field(field_number, WireType::Varint, varint(value));
    check(&[within(3, b"abc".to_vec()), number(5, 2)].concat(), json!({ "u32": 2 }));
    check(
        &[number(3, 1), within(3, b"abc".to_vec()), number(3, 2), number(14, 1)].concat(),
        json!({ "i32": 2 }),
    );
    // Such a field does not remove another one of its oneof either.
    check(&[number(50, 1), number(51, 1)].concat(), json!({ "one_number": 1 }));
    let entry = within(40, [number(1, 7), number(2, 4)].concat());
    check(&entry, json!({ "by_text": { "": 4 } }));
}

#[test]
fn entries_come_by_the_order_of_their_keys() {
    let of = compiled(ALL);
    let within = |number, bytes: Vec<u8>| field(number, WireType::LengthDelimited, sized(bytes));
    let check = |entries: &[Vec<u8>], expected: &str| {
        let json = to_json(JsonForm { defaults: false, ..FORM }, &of, &entries.concat(), 1 << 20);
        assert_eq!(
            json.map(|json| String::from_utf8_lossy(&json).into_owned()).ok().as_deref(),
            Some(expected)
        );
    };
    let wide = |key| within(43, [field(1, WireType::Varint, varint(key)), within(2, Vec::new())].concat());
    check(
        &[wide(u64::MAX), wide(1), wide(1 << 63)],
        r#"{"by_wide":{"1":null,"9223372036854775808":null,"18446744073709551615":null}}"#,
    );
    let fixed = |key: u64| within(44, field(1, WireType::SixtyFourBit, key.to_le_bytes().to_vec()));
    check(&[fixed(u64::MAX), fixed(0)], r#"{"by_fixed":{"0":"","18446744073709551615":""}}"#);
    let zigzag = |key| within(41, field(1, WireType::Varint, varint(key)));
    check(&[zigzag(2), zigzag(0), zigzag(1)], r#"{"by_number":{"-1":{},"0":{},"1":{}}}"#);
}

#[test]
fn a_type_is_looked_up_once_and_only_where_it_is_met() {
    let mut content = String::from("syntax = \"proto3\"; package t; import \"google/protobuf/any.proto\";\n");
    content += "message M { repeated google.protobuf.Any anys = 1; M m = 2; }\n";
    for number in 0..400 {
        let next = (number + 1) % 400;
        content += &format!("message T{number} {{ T{next} next = 1; string text = 2; }}\n");
    }
    let of = compiled(&content);
    let types = MessageTypeCache::of(of.parent_pool());
    let within = |number, bytes: Vec<u8>| field(number, WireType::LengthDelimited, sized(bytes));
    let check = |bytes: &[u8], expected: Value, count| {
        let mut out = JsonSink::new(1 << 20, "max_resp_body_size", JsonForm { defaults: false, ..FORM });
        write_json(&mut out, &types, &of, bytes).expect("it is told");
        assert_eq!(serde_json::from_slice(&out.into_bytes()).ok(), Some(expected));
        assert_eq!(types.count(), count);
    };
    check(&within(2, Vec::new()), json!({ "m": {} }), 1);
    let any = |name: &str, value| {
        within(1, [within(1, format!("a/{name}").into_bytes()), within(2, value)].concat())
    };
    let expected_json = json!({ "anys": [{ "@type": "a/t.T9", "next": { "text": "x" } }] });
    for _ in 0..2 {
        check(&any("t.T9", within(1, within(2, b"x".to_vec()))), expected_json.clone(), 4);
    }
    let all: Vec<u8> = (0..400).flat_map(|number| any(&format!("t.T{number}"), Vec::new())).collect();
    let expected_json: Vec<Value> =
        (0..400).map(|number| json!({ "@type": format!("a/t.T{number}") })).collect();
    check(&all, json!({ "anys": expected_json }), 402);
}

#[test]
fn notes_have_a_bound() {
    let of = compiled(ALL);
    let within = |number, bytes: Vec<u8>| field(number, WireType::LengthDelimited, sized(bytes));
    let number = |field_number, value| field(field_number, WireType::Varint, varint(value));
    let print = |bytes: &[u8], bytes_max| {
        let json = to_json(JsonForm { defaults: false, ..FORM }, &of, bytes, bytes_max);
        json.map(|json| String::from_utf8_lossy(&json).into_owned()).map_err(|error| error.to_string())
    };
    let refused =
        Err("its fields are in too many fragments for the 65536 bytes of max_resp_body_size".to_owned());
    // Alternating keys with another field in between.
    let entries = [within(42, Vec::new()), number(3, 1), within(42, number(1, 1)), number(3, 1)].concat();
    let json = r#"{"i32":1,"by_bool":{"false":"SMALL","true":"SMALL"}}"#.to_owned();
    assert_eq!(print(&entries.repeat(1000), 1 << 16), Ok(json.clone()));
    assert_eq!(print(&entries.repeat(20_000), 1 << 16), refused);
    assert_eq!(print(&entries.repeat(20_000), 1 << 20), Ok(json));
    // A message in many fragments, and a list of paths.
    let parts = [within(17, Vec::new()), number(3, 1)].concat();
    assert_eq!(print(&parts.repeat(20_000), 1 << 16), refused);
    assert_eq!(print(&within(63, within(1, Vec::new()).repeat(40_000)), 1 << 16), refused);
    // The notes of one message are not charged to the next.
    let list = within(36, parts.repeat(500)).repeat(50);
    assert_eq!(print(&list, 1 << 16).map(|json| json.len()), Ok(50 * r#"{"i32":1,"m":{}},"#.len() + 8));
}

#[test]
fn reprinted_output_is_bounded() {
    let of = compiled(ALL);
    let within = |number, bytes: Vec<u8>| field(number, WireType::LengthDelimited, sized(bytes));
    let print_nested = |depth| {
        // Each level is printed before the malformed field after it is found.
        let mut bytes = within(15, vec![7; 10_000]);
        for _ in 0..depth {
            let any = within(60, [within(1, b"a/t.M".to_vec()), within(2, bytes)].concat());
            bytes = [any, within(65, vec![0x80])].concat();
        }
        let bytes = within(60, [within(1, b"a/t.M".to_vec()), within(2, bytes)].concat());
        to_json(FORM, &of, &bytes, 100_000).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(print_nested(5), Ok(()));
    let problem = "too much in it cannot be read for the 100000 bytes of max_resp_body_size";
    assert_eq!(print_nested(50), Err(problem.to_owned()));
}

#[test]
fn json_has_a_bound() {
    let of = compiled(ALL);
    let text = field(14, WireType::LengthDelimited, sized(b"abc".to_vec()));
    let form = JsonForm { defaults: false, ..FORM };
    let print_within = |bytes_max| {
        to_json(form, &of, &text, bytes_max).map(String::from_utf8).map_err(|error| error.to_string())
    };
    assert_eq!(print_within(14), Ok(Ok(r#"{"text":"abc"}"#.to_owned())));
    assert_eq!(
        print_within(13),
        Err("its JSON is longer than the 13 bytes of max_resp_body_size".to_owned())
    );
    // The same holds inside an `Any`, which could fall back to its bytes.
    let any = [(1, b"a/t.M".to_vec()), (2, text)]
        .map(|(number, part)| field(number, WireType::LengthDelimited, sized(part)));
    let any = field(60, WireType::LengthDelimited, sized(any.concat()));
    assert!(
        to_json(form, &of, &any, 30).is_err_and(|error| error.to_string().ends_with("max_resp_body_size"))
    );
    // Two bytes of the message become more than a hundred bytes of JSON.
    let bomb = field(36, WireType::LengthDelimited, vec![0]).repeat(100_000);
    assert!(
        to_json(FORM, &of, &bomb, 1 << 20).is_err_and(|error| error.to_string().contains("1048576 bytes"))
    );
}

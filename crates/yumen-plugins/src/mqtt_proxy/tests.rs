//! First packets of MQTT clients: complete, byte by byte, and malformed.

use serde_json::{Value, json};
use yumen_plugin::{PrereadPhase, PrereadStep, StreamInfo};

use super::{MALFORMED, NO_CONNECT};
use crate::testing::PluginBench;

fn text(text: &[u8]) -> Vec<u8> {
    [&(text.len() as u16).to_be_bytes()[..], text].concat()
}

/// A `CONNECT` packet of this level; version 5 with `properties`.
fn packet(name: &str, level: u8, properties: Option<&[u8]>, client_id: &[u8]) -> Vec<u8> {
    let mut body = [&text(name.as_bytes())[..], &[level, 2, 0, 60]].concat();
    if let Some(properties) = properties {
        body.push(properties.len() as u8);
        body.extend_from_slice(properties);
    }
    body.extend(text(client_id));
    body.extend(text(b"will/topic"));
    let mut packet = vec![0x10];
    match body.len() {
        short if short < 128 => packet.push(short as u8),
        long => packet.extend([(long & 0x7f) as u8 | 0x80, (long >> 7) as u8]),
    }
    packet.extend(body);
    packet
}

/// Checks the result for a connection that begins with `bytes`; `Ok` is the client identifier.
fn check(settings: &Value, bytes: &[u8], expected: Result<&str, &'static str>) {
    let bench = PluginBench::new();
    let plugin = bench.plugin("mqtt-proxy", settings.clone());
    let preread = |bytes: &[u8]| {
        let mut ex = bench.exchange("GET / HTTP/1.1");
        ex.client.stream = Some(StreamInfo { protocol: "tcp", mqtt_client_id: None });
        let verdict = plugin.preread(&mut PrereadPhase::new(&mut ex), bytes);
        (verdict, ex.client.stream.take().and_then(|stream| stream.mqtt_client_id))
    };
    let expected = match expected {
        Ok(client_id) => (PrereadStep::Continue, Some(client_id.into())),
        Err(reason) => (PrereadStep::Refuse(reason), None),
    };
    assert_eq!(preread(bytes), expected, "{settings} {bytes:?}");
    let decided =
        (0..=bytes.len()).map(|cut| preread(&bytes[..cut])).find(|(one, _)| *one != PrereadStep::NeedMore);
    assert_eq!(decided, Some(expected), "byte by byte: {settings} {bytes:?}");
}

#[test]
fn only_clients_of_the_route_s_version_pass_and_their_name_is_known() {
    let v4 = json!({"protocol_level": 4});
    let v5 = json!({"protocol_level": 5});
    let v31 = json!({"protocol_name": "MQIsdp", "protocol_level": 3});
    let long_id = [b'x'; 200];
    check(&v4, &packet("MQTT", 4, None, b"lamp"), Ok("lamp"));
    check(&v4, &packet("MQTT", 4, None, b""), Ok(""));
    check(&v4, &packet("MQTT", 4, None, &long_id), Ok(&"x".repeat(200)));
    check(&v5, &packet("MQTT", 5, Some(&[]), b"lamp"), Ok("lamp"));
    check(&v5, &packet("MQTT", 5, Some(&[0x11, 0, 0, 0, 10]), b"lamp"), Ok("lamp"));
    check(&v31, &packet("MQIsdp", 3, None, b"lamp"), Ok("lamp"));
    let level = "another protocol level than the route's";
    check(&v5, &packet("MQTT", 4, None, b"lamp"), Err(level));
    check(&v4, &packet("MQTT", 5, Some(&[]), b"lamp"), Err(level));
    check(&v4, &packet("MQIsdp", 3, None, b"lamp"), Err("another protocol name than the route's"));
    check(&v4, b"GET / HTTP/1.1\r\n", Err(NO_CONNECT));
    check(&v4, &[0x10, 0xff, 0xff, 0xff, 0xff], Err(MALFORMED));
    check(&v4, &[0x10, 3, 0, 9, b'M'], Err(MALFORMED));
    check(&v4, &packet("MQTT", 4, None, &[0xff]), Err(MALFORMED));
}

#[test]
fn settings_are_checked() {
    let bench = PluginBench::new();
    for settings in
        [json!({}), json!({"protocol_level": "4"}), json!({"protocol_level": 4, "protocol_name": 1})]
    {
        assert!(bench.build("mqtt-proxy", settings.clone()).is_err(), "{settings}");
    }
}

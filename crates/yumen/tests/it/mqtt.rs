//! MQTT over stream routes.

use std::io::{Read, Write};

use serde_json::json;

use crate::harness::eventually;
use crate::l4::{TCP, connect, first, nodes, rest, server, start};

/// A `CONNECT` packet of MQTT 3.1.1.
pub(crate) fn mqtt(client_id: &str) -> Vec<u8> {
    let id = client_id.as_bytes();
    [&[0x10, 12 + id.len() as u8, 0, 4][..], b"MQTT\x04\x02\0\x3c", &[0, id.len() as u8], id].concat()
}

#[test]
fn an_mqtt_client_finds_the_same_broker_again() {
    let broker = |name: &'static str| {
        server(move |mut stream| {
            let mut room = [0; 256];
            let count = stream.read(&mut room).unwrap_or(0);
            let _ = stream.write_all(format!("{name} {count}").as_bytes());
            let _ = stream.read(&mut [0]);
        })
    };
    let mut upstream = nodes(&[broker("one"), broker("two"), broker("three")]);
    upstream["type"] = json!("chash");
    upstream["key"] = json!("mqtt_client_id");
    let plugins = json!({ "mqtt-proxy": { "protocol_level": 4 } });
    let (gateway, at) =
        start(TCP, &json!({ "stream_routes": [{ "id": "s", "upstream": upstream, "plugins": plugins }] }));
    let ask = |client_id: &str| {
        let mut client = connect(at[0]);
        client.write_all(&mqtt(client_id)).unwrap();
        first(&mut client)
    };
    let mut met = std::collections::BTreeSet::new();
    for number in 0..12 {
        let client_id = format!("lamp{number:02}");
        let answer = ask(&client_id);
        let (broker, count) = answer.split_once(' ').expect("a broker answers");
        assert_eq!(count, mqtt(&client_id).len().to_string(), "the packet arrives whole");
        assert_eq!(ask(&client_id), answer);
        met.insert(broker.to_owned());
    }
    assert!(met.len() > 1, "{met:?}");
    let mut other = connect(at[0]);
    other.write_all(b"\x10\x0c\0\x04MQTT\x05\x02\0\x3c\0\0").unwrap();
    assert_eq!(rest(&mut other), b"");
    eventually("it is counted", 10, || {
        gateway.metric("yumen_stream_faults_total{fault=\"protocol\"}") == 1.0
    });
}

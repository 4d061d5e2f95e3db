//! `mqtt-proxy`: admits MQTT clients of one protocol version and extracts their client identifier.
//!
//! The plugin parses the first packet of a connection, `CONNECT`, up to the client identifier, and forwards
//! it unchanged.

use schemars::JsonSchema;
use serde::Deserialize;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{
    PhaseSet, Plugin, PluginBuildContext, PluginFactory, PrereadPhase, PrereadStep, ServedTraffic,
};

#[cfg(test)]
mod tests;

/// Settings of `mqtt-proxy`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct MqttProxySettings {
    /// Protocol name in the CONNECT packet: `MQTT`, or `MQIsdp` for version 3.1.
    #[serde(default = "protocol_name")]
    pub protocol_name: String,
    /// Protocol level in the CONNECT packet: 3 for version 3.1, 4 for 3.1.1, 5 for 5.0.
    pub protocol_level: i64,
}

fn protocol_name() -> String {
    "MQTT".to_owned()
}

/// The compiled settings.
#[derive(Debug)]
pub(crate) struct MqttProxy {
    protocol_name: Box<str>,
    protocol_level: i64,
}

impl PluginFactory for MqttProxy {
    const NAME: &'static str = "mqtt-proxy";
    const PRIORITY: i32 = 1000;
    const SERVES: ServedTraffic = ServedTraffic::Streams;
    type Config = MqttProxySettings;

    fn build(config: MqttProxySettings, _setup: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        Ok(MqttProxy { protocol_name: config.protocol_name.into(), protocol_level: config.protocol_level })
    }
}

impl Plugin for MqttProxy {
    fn phases(&self) -> PhaseSet {
        PhaseSet::PREREAD
    }

    fn preread(&self, ex: &mut PrereadPhase<'_, '_>, bytes: &[u8]) -> PrereadStep {
        let connect = match connect(bytes) {
            Ok(Some(connect)) => connect,
            Ok(None) => return PrereadStep::NeedMore,
            Err(reason) => return PrereadStep::Refuse(reason),
        };
        if connect.protocol_name != self.protocol_name.as_bytes() {
            return PrereadStep::Refuse("another protocol name than the route's");
        }
        if i64::from(connect.protocol_level) != self.protocol_level {
            return PrereadStep::Refuse("another protocol level than the route's");
        }
        ex.set_mqtt_client_id(connect.client_id);
        PrereadStep::Continue
    }
}

/// The relevant fields of a `CONNECT` packet (MQTT 5.0 §3.1).
#[derive(Debug, PartialEq, Eq)]
struct ConnectPacket<'p> {
    protocol_name: &'p [u8],
    protocol_level: u8,
    client_id: &'p str,
}

const PACKET_CONNECT: u8 = 0x10;
/// From this level on the packet has properties before the client identifier.
const LEVEL_WITH_PROPERTIES: u8 = 5;
const NO_CONNECT: &str = "the first packet is not an MQTT CONNECT";
const MALFORMED: &str = "the MQTT CONNECT packet is malformed";

/// Parses the beginning of a connection; `None` if the client identifier is incomplete.
fn connect(bytes: &[u8]) -> Result<Option<ConnectPacket<'_>>, &'static str> {
    match bytes.first() {
        None => return Ok(None),
        Some(&PACKET_CONNECT) => {}
        Some(_) => return Err(NO_CONNECT),
    }
    let mut rest = &bytes[1..];
    let Some(packet_bytes) = number(&mut rest)? else { return Ok(None) };
    // An incomplete packet is malformed if its declared length is reached; otherwise more bytes are needed.
    let is_whole = rest.len() >= packet_bytes;
    let mut packet = &rest[..rest.len().min(packet_bytes)];
    match fields(&mut packet) {
        Ok(Some(connect)) => Ok(Some(connect)),
        Ok(None) if is_whole => Err(MALFORMED),
        other => other,
    }
}

fn fields<'p>(packet: &mut &'p [u8]) -> Result<Option<ConnectPacket<'p>>, &'static str> {
    let Some(protocol_name) = text(packet) else { return Ok(None) };
    // Protocol level, flags (1 byte), keep-alive time (2 bytes).
    let Some(([protocol_level, _, _, _], rest)) = packet.split_first_chunk::<4>() else { return Ok(None) };
    *packet = rest;
    if *protocol_level >= LEVEL_WITH_PROPERTIES {
        let Some(properties_bytes) = number(packet)? else { return Ok(None) };
        let Some(rest) = packet.get(properties_bytes..) else { return Ok(None) };
        *packet = rest;
    }
    let Some(client_id) = text(packet) else { return Ok(None) };
    // The client identifier is a UTF-8 string (MQTT 5.0 §3.1.3.1).
    let client_id = std::str::from_utf8(client_id).map_err(|_| MALFORMED)?;
    Ok(Some(ConnectPacket { protocol_name, protocol_level: *protocol_level, client_id }))
}

/// A string with its length in two bytes before it.
fn text<'p>(packet: &mut &'p [u8]) -> Option<&'p [u8]> {
    let (length, rest) = packet.split_first_chunk::<2>()?;
    let (text, rest) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
    *packet = rest;
    Some(text)
}

/// A variable byte integer: one to four bytes of seven bits, lowest first (MQTT 5.0 §1.5.5).
fn number(bytes: &mut &[u8]) -> Result<Option<usize>, &'static str> {
    let mut value = 0;
    for at in 0..4 {
        let Some(byte) = bytes.get(at) else { return Ok(None) };
        value |= usize::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            *bytes = &bytes[at + 1..];
            return Ok(Some(value));
        }
    }
    Err(MALFORMED)
}

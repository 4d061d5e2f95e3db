//! ProtoJSON: protobuf messages to JSON and back, by the rules of the proto3 mapping.
//!
//! Neither direction builds a tree of values: the parser writes the wire format while it reads JSON, the printer
//! writes JSON while it reads the wire format. So memory is bounded by the size of the output. Knows descriptors
//! and bytes, neither HTTP, nor plugins, nor configuration.

mod parser;
mod printer;
mod wire;

pub use parser::{
    FieldCardinality, FieldSeed, FreeFormType, MembersSeed, OptionalSeed, SingularSeed, WellKnownType,
    WireField,
};
pub use printer::{JsonForm, JsonSink, LargeIntegers, MessageTypeCache, malformed, write_json};
pub use wire::{DEPTH_MAX, MessageWriter, OpenField};

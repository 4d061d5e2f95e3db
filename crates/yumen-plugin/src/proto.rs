//! Proto objects: compiled descriptors of protobuf messages and services. Imports resolve to the well-known
//! files; nothing is read from disk.

mod nesting;

use std::sync::LazyLock;

use base64::Engine as _;
use prost_reflect::{DescriptorPool, MessageDescriptor, MethodDescriptor};
use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver};
use yumen_config::schema::InvalidSettings;

/// File name of an object's text in messages.
const FILE: &str = "content.proto";

/// google/api/http.proto: the HTTP rules of methods, with the field numbers that Google publishes.
const HTTP: &str = r#"syntax = "proto3";
package google.api;
message Http {
  repeated HttpRule rules = 1;
  bool fully_decode_reserved_expansion = 2;
}
message HttpRule {
  string selector = 1;
  oneof pattern {
    string get = 2;
    string put = 3;
    string post = 4;
    string delete = 5;
    string patch = 6;
    CustomHttpPattern custom = 8;
  }
  string body = 7;
  string response_body = 12;
  repeated HttpRule additional_bindings = 11;
}
message CustomHttpPattern {
  string kind = 1;
  string path = 2;
}
"#;

const ANNOTATIONS: &str = r#"syntax = "proto3";
package google.api;
import "google/api/http.proto";
import "google/protobuf/descriptor.proto";
extend google.protobuf.MethodOptions {
  HttpRule http = 72295728;
}
"#;

/// google/rpc/status.proto: the details of a failed call.
const STATUS: &str = r#"syntax = "proto3";
package google.rpc;
import "google/protobuf/any.proto";
message Status {
  int32 code = 1;
  string message = 2;
  repeated google.protobuf.Any details = 3;
}
"#;

/// The message type in `grpc-status-details-bin`.
pub fn status() -> MessageDescriptor {
    static STATUS_TYPE: LazyLock<MessageDescriptor> = LazyLock::new(|| {
        let protos = compile_text(STATUS).expect("the text above is correct");
        protos.pool.get_message_by_name("google.rpc.Status").expect("the text above has it")
    });
    STATUS_TYPE.clone()
}

/// A compiled proto object.
#[derive(Debug, Clone)]
pub struct ProtoDescriptors {
    pool: DescriptorPool,
}

/// Resolves the text of the object and the bundled files.
struct ProtoFiles(String);

impl FileResolver for ProtoFiles {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        match name {
            FILE => File::from_source(FILE, &self.0),
            "google/api/http.proto" => File::from_source(name, HTTP),
            "google/api/annotations.proto" => File::from_source(name, ANNOTATIONS),
            "google/rpc/status.proto" => File::from_source(name, STATUS),
            _ => Err(protox::Error::file_not_found(name)),
        }
    }
}

impl ProtoDescriptors {
    /// Compiles the `content` of a proto object: source text, or a `FileDescriptorSet` in Base64. Nesting is
    /// limited to 64 levels.
    pub fn compile(content: &str) -> Result<ProtoDescriptors, InvalidSettings> {
        match decode_set(content) {
            Some(set) => {
                nesting::check_set(&set)?;
                let refused = |error| {
                    InvalidSettings::at("content", format!("the descriptor set cannot be read: {error}"))
                };
                DescriptorPool::decode(set.as_slice()).map(|pool| ProtoDescriptors { pool }).map_err(refused)
            }
            None => {
                nesting::check_text(content)?;
                compile_text(content)
            }
        }
    }

    /// A method by the full name of its service and its own name.
    pub fn method(&self, service: &str, method: &str) -> Result<MethodDescriptor, UnknownProtoName> {
        let found = self.pool.get_service_by_name(service).ok_or_else(|| {
            UnknownProtoName::Service(self.pool.services().map(|one| one.full_name().to_owned()).collect())
        })?;
        let named = found.methods().find(|one| one.name() == method);
        named.ok_or_else(|| {
            UnknownProtoName::Method(found.methods().map(|one| one.name().to_owned()).collect())
        })
    }

    /// All methods of a service; `Err` with the names of the existing services if it does not exist.
    pub fn methods(&self, service: &str) -> Result<Vec<MethodDescriptor>, Vec<String>> {
        match self.pool.get_service_by_name(service) {
            Some(service) => Ok(service.methods().collect()),
            None => Err(self.pool.services().map(|one| one.full_name().to_owned()).collect()),
        }
    }

    /// All compiled types.
    pub fn pool(&self) -> &DescriptorPool {
        &self.pool
    }
}

/// A name that does not exist in a proto object, with the existing names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnknownProtoName {
    /// No such service.
    Service(Vec<String>),
    /// The service has no such method.
    Method(Vec<String>),
}

/// The bytes of a descriptor set; `None` for source text, which always has a brace, a semicolon or a quote.
fn decode_set(content: &str) -> Option<Vec<u8>> {
    // Base64 text may be wrapped into lines.
    let letters: Vec<u8> = content.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let has_source = content.contains(['{', ';', '"']);
    if has_source { None } else { base64::engine::general_purpose::STANDARD.decode(letters).ok() }
}

fn compile_text(text: &str) -> Result<ProtoDescriptors, InvalidSettings> {
    let mut files = ChainFileResolver::new();
    files.add(GoogleFileResolver::new());
    files.add(ProtoFiles(text.to_owned()));
    let mut compiler = protox::Compiler::with_file_resolver(files);
    compiler.include_imports(true);
    compiler.open_file(FILE).map_err(|error| invalid_proto(&error))?;
    Ok(ProtoDescriptors { pool: compiler.descriptor_pool() })
}

/// Formats an error as `line 3, column 5: message`.
fn invalid_proto(error: &protox::Error) -> InvalidSettings {
    // Only the debug format contains the position, as `file:line:column: message`.
    let text = format!("{error:?}");
    let location = text.strip_prefix(FILE).and_then(|rest| {
        let mut parts = rest.strip_prefix(':')?.splitn(3, ':');
        let (line, column) = (parts.next()?.parse::<u32>().ok()?, parts.next()?.parse::<u32>().ok()?);
        Some(format!("line {line}, column {column}: "))
    });
    InvalidSettings::at("content", format!("{}{error}", location.unwrap_or_default()))
}

#[cfg(test)]
mod tests;

//! Prints the OpenAPI document of the Admin API, as the gateway serves it: for validators and generators.

use std::io::Write;
use std::sync::Arc;

use yumen_admin::{AdminState, endpoints, openapi};
use yumen_plugin::PluginRegistry;
use yumen_store::MemoryMedium;

fn main() -> std::io::Result<()> {
    let state = AdminState::new(
        Arc::new(MemoryMedium::store(1).map_err(std::io::Error::other)?),
        Arc::new(PluginRegistry::new(yumen_plugins::BUILTIN)),
        yumen_plugins::inactive::missing::<&str>(&[]),
        Arc::new(|_: &str, _: &str| {
            Err(yumen_snapshot::compile::KeyPairError::Certificate("nothing is loaded here".into()))
        }),
    );
    writeln!(std::io::stdout(), "{}", openapi(&state, &endpoints()))
}

//! Prints the OpenAPI document of the Admin API, as the gateway serves it: for validators and generators.

use std::io::Write;
use std::sync::Arc;

use yumen_admin::{AdminState, endpoints, openapi};
use yumen_plugin::Registry;
use yumen_store::Memory;

fn main() -> std::io::Result<()> {
    let state = AdminState {
        store: Arc::new(Memory::store(1).map_err(std::io::Error::other)?),
        registry: Arc::new(Registry::new(yumen_plugins::BUILTIN)),
        known_inactive_plugins: yumen_plugins::inactive::KNOWN_ELSEWHERE,
        load_certificate: Arc::new(|_, _| Err("nothing is loaded here".into())),
    };
    writeln!(std::io::stdout(), "{}", openapi(&state, &endpoints()))
}

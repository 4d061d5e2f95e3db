//! Prints the OpenAPI document of the Admin API, as the gateway serves it: for validators and generators.

use std::io::Write;
use std::sync::Arc;

use yumen_admin::{AdminState, endpoints, openapi};
use yumen_plugin::Registry;
use yumen_store::Memory;

fn main() -> std::io::Result<()> {
    let state = AdminState::new(
        Arc::new(Memory::store(1).map_err(std::io::Error::other)?),
        Arc::new(Registry::new(yumen_plugins::BUILTIN)),
        yumen_plugins::inactive::missing::<&str>(&[]),
        Arc::new(|_: &str, _: &str| {
            Err(yumen_snapshot::compile::PairFlaw::Certificate("nothing is loaded here".into()))
        }),
    );
    writeln!(std::io::stdout(), "{}", openapi(&state, &endpoints()))
}

//! Loads against scripted servers: every count must be exact.

#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up fails")]

#[path = "load/errors.rs"]
mod errors;
#[path = "load/kinds.rs"]
mod kinds;
#[path = "load/protocols.rs"]
mod protocols;
#[path = "load/scripted.rs"]
mod scripted;

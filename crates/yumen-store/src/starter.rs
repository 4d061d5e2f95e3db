//! The first configuration: a small document that answers at once and shows what else there is.

#[cfg(test)]
mod tests;

/// What a new gateway starts from.
pub const STARTER: &str = include_str!("starter.yaml");

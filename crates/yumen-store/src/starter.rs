//! The first configuration: a small working document that points to further features.

#[cfg(test)]
mod tests;

/// Text of the first configuration.
pub const STARTER: &str = include_str!("starter.yaml");

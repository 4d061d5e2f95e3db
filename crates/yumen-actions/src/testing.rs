//! Exchanges for tests.

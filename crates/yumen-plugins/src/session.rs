//! Sessions of logged-in users and logins in progress, sealed in cookies.
//!
//! Knows no identity provider. A session cookie is compressed, sealed with AES-256-GCM, and split where it is too long
//! for one cookie.

mod cookie;
mod redis;
mod seal;
mod settings;
mod store;

pub(crate) use cookie::{CookieAttributes, cookies_of};
pub(crate) use seal::{CookiePurpose, SealFault, SessionKeys};
pub(crate) use settings::SessionSettings;
pub(crate) use store::{
    CookieRequest, LoginSession, OpenedSession, PreparedIdentity, SessionFault, SessionLookup, SessionStore,
};

#[cfg(test)]
mod tests;

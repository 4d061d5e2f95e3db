//! Sessions of logged-in users and logins in progress, sealed in cookies.
//!
//! Knows no identity provider. A session cookie is compressed, sealed with AES-256-GCM, and split where it is too long
//! for one cookie.

mod cookie;
#[cfg(feature = "fuzz")]
pub(crate) mod fuzzed;
mod redis;
mod seal;
mod settings;
mod store;

pub(crate) use cookie::{LoginCookieAttributes, cookies_of};
pub(crate) use seal::{CookiePurpose, LoginSealKeys, SealFault};
pub(crate) use settings::SessionSettings;
pub(crate) use store::{
    CookieRequest, EndedSessions, LoginSession, OpenedLogin, PreparedIdentity, RenewalLock, RenewalTurn,
    SessionFault, SessionLookup, SessionSave, SessionStore,
};

#[cfg(test)]
pub(crate) mod memory_redis;
#[cfg(test)]
mod tests;

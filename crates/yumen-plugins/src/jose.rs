//! JSON Object Signing and Encryption: tokens in compact form, keys, key sets, signatures. Knows no request.
//!
//! The key decides which algorithms are possible, the settings decide which of them are allowed, and the token selects
//! among these. The fields `jku`, `x5u`, `x5c` and `jwk` of a token have no effect.

mod algorithm;
mod claims;
pub(crate) mod jwe;
mod key_set;
mod pem;
mod sign;
mod token;
mod verifier;

pub(crate) use algorithm::JwsAlgorithm;
pub(crate) use claims::{ClaimTimeFault, ClaimTimes};
pub(crate) use key_set::{JWKS_FORMAT, JwkSet, KeyFault};
pub(crate) use sign::ClientSigner;
pub(crate) use token::JoseToken;
pub(crate) use verifier::JwsVerifier;

#[cfg(test)]
mod tests;

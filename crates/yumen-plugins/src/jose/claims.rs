//! Claims about time (RFC 7519 §4.1.4 to §4.1.6).

use serde_json::{Map, Value};

/// The times of a token in seconds of Unix time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct ClaimTimes {
    pub(crate) expires_s: Option<f64>,
    not_before_s: Option<f64>,
    issued_s: Option<f64>,
}

/// The reason why a token is not in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClaimTimeFault {
    /// A time is not a number.
    Malformed,
    /// `exp` has passed.
    Expired,
    /// `nbf` is to come.
    NotYetValid,
    /// `iat` is to come.
    IssuedInFuture,
}

impl std::fmt::Display for ClaimTimeFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ClaimTimeFault::Malformed => "a time in the token is not a number",
            ClaimTimeFault::Expired => "the token has expired",
            ClaimTimeFault::NotYetValid => "the token is not valid yet",
            ClaimTimeFault::IssuedInFuture => "the token was issued in the future: check the clocks",
        })
    }
}

impl ClaimTimes {
    /// The times among the claims. A time that is not a finite number is refused.
    pub(crate) fn read(claims: &Map<String, Value>) -> Result<ClaimTimes, ClaimTimeFault> {
        let time = |name: &str| match claims.get(name) {
            None => Ok(None),
            Some(value) => {
                let number = value.as_f64().filter(|number| number.is_finite());
                number.map(Some).ok_or(ClaimTimeFault::Malformed)
            }
        };
        Ok(ClaimTimes { expires_s: time("exp")?, not_before_s: time("nbf")?, issued_s: time("iat")? })
    }

    /// Checks the times that the token has, with a tolerance for clock differences.
    pub(crate) fn check(&self, now_s: u64, slack_s: u64) -> Result<(), ClaimTimeFault> {
        let (now_s, slack_s) = (now_s as f64, slack_s as f64);
        if self.expires_s.is_some_and(|expires_s| expires_s + slack_s < now_s) {
            return Err(ClaimTimeFault::Expired);
        }
        if self.not_before_s.is_some_and(|from_s| from_s - slack_s > now_s) {
            return Err(ClaimTimeFault::NotYetValid);
        }
        if self.issued_s.is_some_and(|issued_s| issued_s - slack_s > now_s) {
            return Err(ClaimTimeFault::IssuedInFuture);
        }
        Ok(())
    }
}

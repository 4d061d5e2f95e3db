//! What a text with variables looks into, told before there is an exchange.

use std::ops::BitOr;

use super::{Template, Var, unknown_names};

/// What has to be at hand before values can be asked for: reading it costs, so that it is done only for who looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reads {
    /// The request body.
    pub body: bool,
    /// The fields of the answer.
    pub answer: bool,
}

impl Reads {
    /// What a setting looks into: it may be a variable's name by itself, or have names behind a `$`.
    pub fn of(text: &str) -> Reads {
        let may_name_body = text.contains("post_arg") || text.contains("graphql_");
        let names_body = || Var::parse(text).needs_body() || Template::parse(text).needs_body();
        Reads {
            // Any text may stand there, so that names nobody knows tell nothing.
            body: may_name_body && unknown_names(names_body).0,
            answer: text.contains(super::SENT),
        }
    }
}

impl BitOr for Reads {
    type Output = Reads;

    fn bitor(self, other: Reads) -> Reads {
        Reads { body: self.body || other.body, answer: self.answer || other.answer }
    }
}

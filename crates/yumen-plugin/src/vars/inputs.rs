//! What a text with variables looks into, told before there is an exchange.

use std::ops::BitOr;

use super::{Var, VarTemplate, unknown_names};

/// What has to be at hand before values can be asked for: reading it costs, so that it is done only for who looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VarInputs {
    /// The request body.
    pub body: bool,
    /// The fields of the answer.
    pub answer: bool,
}

impl VarInputs {
    /// What a setting looks into: it may be a variable's name by itself, or have names behind a `$`.
    pub fn of(text: &str) -> VarInputs {
        let may_name_body = text.contains("post_arg") || text.contains("graphql_");
        let names_body = || Var::parse(text).needs_body() || VarTemplate::parse(text).needs_body();
        VarInputs {
            // Any text may stand there, so that names nobody knows tell nothing.
            body: may_name_body && unknown_names(names_body).0,
            answer: text.contains(super::SENT),
        }
    }
}

impl BitOr for VarInputs {
    type Output = VarInputs;

    fn bitor(self, other: VarInputs) -> VarInputs {
        VarInputs { body: self.body || other.body, answer: self.answer || other.answer }
    }
}

//! Inputs of text with variables, determined at compile time.

use std::ops::BitOr;

use super::{Var, VarTemplate, unknown_names};

/// Inputs that must be prepared before variables are evaluated. Preparing them costs, so only users of them
/// do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VarInputs {
    /// The request body.
    pub body: bool,
    /// The response fields.
    pub answer: bool,
}

impl VarInputs {
    /// The inputs of a setting, which may be the name of a variable or contain names after a `$`.
    pub fn of(text: &str) -> VarInputs {
        let may_name_body = text.contains("post_arg") || text.contains("graphql_");
        let names_body = || Var::parse(text).needs_body() || VarTemplate::parse(text).needs_body();
        VarInputs {
            // The text may be anything, so unknown names in it are not reported.
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

//! The inputs of a text with variables, known before an exchange.

use std::ops::BitOr;

use super::{Var, VarTemplate, unknown_names};

/// Inputs that are costly to provide, so that they are read or retained only if a variable uses them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VarInputs {
    /// The request body.
    pub body: bool,
    /// The response fields.
    pub answer: bool,
}

impl VarInputs {
    /// The inputs of a setting: a name of a variable, or a text with names after `$`.
    pub fn of(text: &str) -> VarInputs {
        let may_name_body = text.contains("post_arg") || text.contains("graphql_");
        let names_body = || Var::parse(text).needs_body() || VarTemplate::parse(text).needs_body();
        VarInputs {
            // A setting may be any text, so unknown names are not reported.
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

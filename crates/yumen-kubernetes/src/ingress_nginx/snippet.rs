//! Snippets: directives of NGINX, translated to native actions and never executed.
//!
//! The order of modules, each of which uses those before it only: `plan` (typed results).

mod plan;

pub use plan::{
    AccessRule, ConditionTest, LocationMatcher, RequestFieldEdit, RequestFieldValue, ResponseFieldEdit,
    ResponseFieldVerb, SnippetAnswer, SnippetBranch, SnippetCondition, SnippetEffects, SnippetLocation,
    SnippetPathEdit, SnippetPlan, SnippetRefusal, SnippetSetting,
};

/// The block of NGINX's configuration that a snippet belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnippetPlace {
    /// A path: `configuration-snippet`, `location-snippet` of the ConfigMap.
    Location,
    /// A host: `server-snippet`.
    Server,
    /// The request to an auth service: `auth-snippet`, `global-auth-snippet`.
    Auth,
}

/// Translates a snippet. The first directive that has no translation refuses the whole snippet.
pub fn translate_snippet(_text: &str, _place: SnippetPlace) -> Result<SnippetPlan, SnippetRefusal> {
    Err(SnippetRefusal {
        line: 1,
        directive: String::new(),
        reason: "snippets are not translated yet".to_owned(),
        way_over: None,
    })
}

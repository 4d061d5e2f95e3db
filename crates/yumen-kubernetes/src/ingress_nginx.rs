//! Texts of ingress-nginx, annotations, ConfigMap, flags and snippets, as typed settings.
//!
//! The order of modules, each of which uses those before it only: `nginx_text` (texts with variables), `snippet`
//! (directives of NGINX), `settings` (typed results), `annotations` and `controller` (tables and readers).

mod annotations;
mod controller;
mod nginx_text;
mod settings;
mod snippet;

pub use annotations::{AnnotationConsequence, AnnotationProblem, AnnotationRisk, read_annotations};
pub use controller::{
    AnnotationPolicy, BlockedClients, ClientAddressSettings, CompressionSettings, ControllerFlags,
    ControllerHeaders, ControllerProblem, ControllerSettings, ControllerTls, HstsSettings, LogLineSettings,
    NodeSetting, RedirectDefaults, read_config_map, read_flags,
};
pub use nginx_text::{NginxText, TextDefect, TextPart};
pub use settings::*;
pub use snippet::{
    AccessRule, ConditionTest, LocationMatcher, RequestFieldEdit, RequestFieldValue, ResponseFieldEdit,
    ResponseFieldVerb, SnippetAnswer, SnippetBranch, SnippetCondition, SnippetEffects, SnippetLocation,
    SnippetPathEdit, SnippetPlace, SnippetPlan, SnippetRefusal, SnippetSetting, translate_snippet,
};

//! Texts of ingress-nginx, annotations, ConfigMap, flags and snippets, as typed settings.
//!
//! The order of modules, each of which uses those before it only: `nginx_text` (texts with variables), `snippet`
//! (directives of NGINX), `settings` (typed results), `log_line`, `annotations` and `controller` (tables and readers),
//! `document` (the page of the tables).

mod annotations;
mod controller;
mod document;
mod log_line;
mod nginx_text;
mod settings;
mod snippet;
mod variables;

pub use annotations::{AnnotationConsequence, AnnotationProblem, AnnotationRisk, read_annotations};
pub use controller::{
    AnnotationPolicy, BlockedClients, ClientAddressSettings, CompressionSettings, ControllerFlags,
    ControllerHeaders, ControllerProblem, ControllerSettings, ControllerTls, ForwardedTrust, HstsSettings,
    LogLineSettings, NodeSetting, PathTypeRule, RedirectDefaults, WebhookFlags, read_config_map, read_flags,
};
pub use document::reference_page;
pub use log_line::{TranslatedLogLine, translate_log_line};
pub use nginx_text::{NginxText, TextDefect, TextPart};
pub use settings::*;
pub use snippet::{
    AccessRule, LocationMatcher, RequestFieldEdit, RequestFieldValue, ResponseFieldEdit, ResponseFieldVerb,
    SnippetAnswer, SnippetBranch, SnippetCondition, SnippetEffects, SnippetLocation, SnippetNote,
    SnippetPathEdit, SnippetPlace, SnippetPlan, SnippetRefusal, SnippetSetting, SnippetTest,
    translate_snippet,
};
pub use variables::renamed_variables;

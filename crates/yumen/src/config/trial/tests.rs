use yumen_config::document;

use super::TrialCompiler;
use crate::commands::offline;

#[test]
fn lint_lists_compile_errors_first() {
    let text = "routes:\n- {id: a, uri: /a, plugins: {cors: {allow_methods: 7}}, upstream_id: none}\n";
    let (resources, _) = document::parse(text, &|_| None);
    let trial = TrialCompiler::new(&offline::compiler(&Default::default()), Default::default());
    let (_, compiled) = trial.compile(resources.clone());
    assert!(!compiled.is_empty());
    let problems = trial.lint(&resources, false);
    assert_eq!(problems[..compiled.len()], compiled[..]);
}

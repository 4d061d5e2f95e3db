//! From steps to branches: NGINX's order of `set`, `if`, `return` and `rewrite`, followed for every outcome of the
//! conditions.

use std::sync::Arc;

use super::effects::BlockEffects;
use super::plan::{
    SnippetAnswer, SnippetBranch, SnippetCondition, SnippetPathEdit, SnippetRefusal, SnippetTest,
};
use super::steps::{RewriteEnd, SnippetStep, StepAction, StepCondition, is_url};
use super::values::SetValues;
use crate::ingress_nginx::nginx_text::{NginxText, TextPart};
use crate::ingress_nginx::variables::request_variable;

/// Branches of a snippet.
const BRANCHES_MAX: usize = 16;

/// Patterns that every path matches.
const MATCH_ALL: [&str; 10] =
    ["^", "^/", "^.*$", "^(.*)$", "^/(.*)$", "^/(.*)", "^(.*)", "(.*)", ".*", "^/.*$"];

/// The rest of the steps after those of a block.
struct StepsAfter<'s> {
    steps: &'s [SnippetStep],
    after: Option<&'s StepsAfter<'s>>,
}

/// The way to one place in the steps.
#[derive(Clone, Default)]
struct BranchState<'s> {
    values: SetValues,
    /// Conditions that hold, for the branch.
    conditions: Vec<SnippetCondition>,
    /// Conditions with their outcomes, so that a repeated one is decided.
    facts: Vec<(SnippetCondition, bool)>,
    /// The last `if` block that was entered: its fields and settings apply.
    block: Option<&'s BlockEffects>,
}

/// Collects the branches of a block.
pub(super) struct BranchExplorer<'b> {
    base: &'b BlockEffects,
    branches: Vec<SnippetBranch>,
}

impl<'b> BranchExplorer<'b> {
    pub(super) fn new(base: &'b BlockEffects) -> BranchExplorer<'b> {
        BranchExplorer { base, branches: Vec::new() }
    }

    /// The branches in the order in which they are tried. An outcome of a condition that does not hold needs no
    /// condition of its own: the branches of the one that holds come before.
    pub(super) fn explore(mut self, steps: &[SnippetStep]) -> Result<Vec<SnippetBranch>, SnippetRefusal> {
        self.run(steps, None, BranchState::default())?;
        let mut branches = self.branches;
        // A branch like the one after it adds nothing.
        while let [.., before, last] = &branches[..]
            && before.effects == last.effects
        {
            branches.remove(branches.len() - 2);
        }
        Ok(branches)
    }

    fn run<'s>(
        &mut self,
        steps: &'s [SnippetStep],
        after: Option<&StepsAfter<'s>>,
        mut state: BranchState<'s>,
    ) -> Result<(), SnippetRefusal> {
        for (at, step) in steps.iter().enumerate() {
            match &step.action {
                StepAction::Set { variable, value } => {
                    let value = state.values.settle(value, &self.base.names);
                    state.values.set(variable, value);
                }
                StepAction::Break => return self.end(state, None, None, step),
                StepAction::Return { status, text } => {
                    let answer = self.answer(*status, text.as_ref(), &state);
                    return self.end(state, Some(answer), None, step);
                }
                StepAction::Rewrite { pattern, to, keep_query, end } => {
                    let to = state.values.settle(to, &self.base.names);
                    let relocates = *end == RewriteEnd::Relocate;
                    let edit =
                        SnippetPathEdit { pattern: pattern.clone(), to, keep_query: *keep_query, relocates };
                    if self.run_rewrite(step, edit, *end, &mut state)? {
                        return Ok(());
                    }
                }
                StepAction::If { condition, steps: inner, effects } => {
                    let rest = StepsAfter { steps: &steps[at + 1..], after };
                    match self.decide(step, condition, &state)? {
                        ConditionOutcome::Known(false) => {}
                        ConditionOutcome::Known(true) => {
                            state.block = Some(effects);
                            return self.run(inner, Some(&rest), state);
                        }
                        ConditionOutcome::Open(condition) => {
                            let mut entered = state.clone();
                            entered.block = Some(effects);
                            entered.assume(&condition, true);
                            entered.conditions.push(condition.clone());
                            self.run(inner, Some(&rest), entered)?;
                            state.assume(&condition, false);
                        }
                    }
                }
            }
        }
        match after {
            Some(rest) => self.run(rest.steps, rest.after, state),
            None => self.push(state, None, None),
        }
    }

    /// Follows `rewrite`; returns whether every request ends there.
    fn run_rewrite(
        &mut self,
        step: &SnippetStep,
        mut edit: SnippetPathEdit,
        end: RewriteEnd,
        state: &mut BranchState<'_>,
    ) -> Result<bool, SnippetRefusal> {
        let answer = match end {
            RewriteEnd::Break | RewriteEnd::Relocate => None,
            RewriteEnd::Redirect(status) if is_url(&edit.to) => {
                let location = url_of(&edit).ok_or_else(|| {
                    step.source.refuse("a redirect to a URL with parts of the path has no translation", None)
                })?;
                Some(SnippetAnswer::Redirect { status, location })
            }
            RewriteEnd::Redirect(status) => {
                if !is_path(&edit.to) {
                    return Err(step.source.refuse("the replacement must begin with a slash or `$1`", None));
                }
                Some(SnippetAnswer::RewriteRedirect { status, edit: edit.clone() })
            }
        };
        if answer.is_none() {
            if !is_path(&edit.to) {
                edit.to = NginxText::parse(&format!("/{}", edit.to)).unwrap_or(edit.to);
            }
            if edit.to.variables().next().is_some() {
                return Err(step.source.refuse("a path with variables has no translation", None));
            }
        }
        let matches_all = MATCH_ALL.contains(&&*edit.pattern);
        let condition = SnippetCondition {
            variable: "uri".into(),
            test: SnippetTest::Matches { pattern: edit.pattern.clone(), ignore_case: false },
            negated: false,
        };
        let path = answer.is_none().then_some(edit);
        if matches_all {
            self.end(state.clone(), answer, path, step)?;
            return Ok(true);
        }
        let mut matched = state.clone();
        matched.assume(&condition, true);
        matched.conditions.push(condition.clone());
        self.end(matched, answer, path, step)?;
        state.assume(&condition, false);
        Ok(false)
    }

    fn answer(&self, status: u16, text: Option<&NginxText>, state: &BranchState<'_>) -> SnippetAnswer {
        let text = text.map(|text| state.values.settle(text, &self.base.names));
        if let (301 | 302 | 303 | 307 | 308, Some(location)) = (status, &text) {
            return SnippetAnswer::Redirect { status, location: location.clone() };
        }
        let written = state.block.and_then(|block| block.media_type.clone());
        let written = written.or_else(|| self.base.media_type.clone());
        let media_type = text.as_ref().map(|_| written.unwrap_or_else(|| Arc::from("text/html")));
        SnippetAnswer::Respond { status, body: text, media_type }
    }

    fn end(
        &mut self,
        state: BranchState<'_>,
        answer: Option<SnippetAnswer>,
        path: Option<SnippetPathEdit>,
        step: &SnippetStep,
    ) -> Result<(), SnippetRefusal> {
        if self.branches.len() == BRANCHES_MAX {
            let reason = format!("the conditions lead to more than {BRANCHES_MAX} cases");
            return Err(step.source.refuse(reason, Some("divide the conditions among Ingresses")));
        }
        self.push(state, answer, path)
    }

    fn push(
        &mut self,
        state: BranchState<'_>,
        answer: Option<SnippetAnswer>,
        path: Option<SnippetPathEdit>,
    ) -> Result<(), SnippetRefusal> {
        if self.branches.len() > BRANCHES_MAX {
            return Err(SnippetRefusal {
                line: 1,
                directive: "if".to_owned(),
                reason: format!("the conditions lead to more than {BRANCHES_MAX} cases"),
                way_over: Some("divide the conditions among Ingresses"),
                guards: false,
            });
        }
        let mut effects = self.base.settle(state.block, &state.values);
        effects.answer = answer;
        effects.path = path;
        self.branches.push(SnippetBranch { conditions: state.conditions, effects });
        Ok(())
    }

    /// The outcome of a condition, if it is known already.
    fn decide(
        &self,
        step: &SnippetStep,
        condition: &StepCondition,
        state: &BranchState<'_>,
    ) -> Result<ConditionOutcome, SnippetRefusal> {
        let names = &self.base.names;
        let variable = NginxText { parts: vec![TextPart::Variable(condition.variable.clone())] };
        let value = state.values.settle(&variable, names);
        if names.texts.contains(&condition.variable)
            && let Some(literal) = value.as_literal()
        {
            let holds = holds(&condition.test, literal).ok_or_else(|| {
                step.source.refuse("the pattern cannot be compared with the value of the variable", None)
            })?;
            return Ok(ConditionOutcome::Known(holds != condition.negated));
        }
        let [TextPart::Variable(variable)] = &value.parts[..] else {
            return Err(step.source.refuse("a condition on several variables has no translation", None));
        };
        let variable: Arc<str> = request_variable(variable).map_or_else(|| variable.clone(), Arc::from);
        // A variable without a value equals the empty text in NGINX.
        let (test, negated) = match &condition.test {
            SnippetTest::Equals(text) if text.is_empty() => {
                let test = SnippetTest::Matches { pattern: "(?s)^.".into(), ignore_case: false };
                (test, !condition.negated)
            }
            test => (test.clone(), condition.negated),
        };
        let open = SnippetCondition { variable, test, negated };
        let known =
            state.facts.iter().find(|(fact, _)| fact.variable == open.variable && fact.test == open.test);
        match known {
            Some((fact, outcome)) => Ok(ConditionOutcome::Known(*outcome == (fact.negated == open.negated))),
            None => Ok(ConditionOutcome::Open(open)),
        }
    }
}

enum ConditionOutcome {
    Known(bool),
    Open(SnippetCondition),
}

impl BranchState<'_> {
    fn assume(&mut self, condition: &SnippetCondition, holds: bool) {
        self.facts.push((condition.clone(), holds));
    }
}

/// The outcome of a test of a text; `None` if the pattern is beyond the engine here.
fn holds(test: &SnippetTest, text: &str) -> Option<bool> {
    match test {
        SnippetTest::IsSet => Some(!text.is_empty() && text != "0"),
        SnippetTest::Equals(expected) => Some(&**expected == text),
        SnippetTest::Matches { pattern, ignore_case } => {
            let pattern =
                regex::RegexBuilder::new(pattern).case_insensitive(*ignore_case).size_limit(1 << 20).build();
            pattern.ok().map(|pattern| pattern.is_match(text))
        }
    }
}

fn is_path(text: &NginxText) -> bool {
    match text.parts.first() {
        Some(TextPart::Literal(literal)) => literal.starts_with('/'),
        Some(TextPart::Group(_)) => true,
        _ => false,
    }
}

/// The location of a redirect to a URL. Groups are followed if the whole path is one.
fn url_of(edit: &SnippetPathEdit) -> Option<NginxText> {
    let mut location = NginxText::default();
    let uri = NginxText { parts: vec![TextPart::Variable("uri".into())] };
    for part in &edit.to.parts {
        match (part, &*edit.pattern) {
            (TextPart::Group(1), "^(.*)$" | "^(.*)" | "(.*)") => location.extend(&uri),
            (TextPart::Group(1), "^/(.*)$" | "^/(.*)") => {
                // The slash before the group is part of the path.
                let Some(TextPart::Literal(before)) = location.parts.pop() else { return None };
                location.extend(&NginxText::literal(before.strip_suffix('/')?));
                location.extend(&uri);
            }
            (TextPart::Group(_), _) => return None,
            (part, _) => location.extend(&NginxText { parts: vec![part.clone()] }),
        }
    }
    if edit.keep_query && !edit.to.variables().any(|name| matches!(name, "real_request_uri" | "args")) {
        location.extend(&NginxText::parse("$is_args$args").ok()?);
    }
    Some(location)
}

//! The model of Casbin: the sections of its file, without the meaning of the matcher.

/// Longest model in bytes.
const MODEL_BYTES_MAX: usize = 64 * 1024;

/// A parsed model.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CasbinModel {
    /// Names of the members of a request: three of them, for user, path and method.
    pub(crate) request: Vec<String>,
    /// Names of the members of a policy line.
    pub(crate) policy: Vec<String>,
    /// Relations of names, such as `g`.
    pub(crate) relations: Vec<RoleRelation>,
    pub(crate) effect: PolicyEffect,
    pub(crate) matcher: String,
}

/// A relation of names, such as the roles of users.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RoleRelation {
    pub(crate) name: String,
    /// Whether the relation holds within a domain.
    pub(crate) has_domain: bool,
}

/// The rule that combines policy lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PolicyEffect {
    /// Some line allows.
    AllowOverride,
    /// No line denies.
    DenyOverride,
    /// Some line allows, and none denies.
    AllowAndDeny,
    /// The first line decides.
    Priority,
}

impl PolicyEffect {
    fn parse(text: &str) -> Option<PolicyEffect> {
        let packed: String = text.split_whitespace().collect();
        Some(match packed.as_str() {
            "some(where(p.eft==allow))" => PolicyEffect::AllowOverride,
            "!some(where(p.eft==deny))" => PolicyEffect::DenyOverride,
            "some(where(p.eft==allow))&&!some(where(p.eft==deny))" => PolicyEffect::AllowAndDeny,
            "priority(p.eft)||deny" => PolicyEffect::Priority,
            _ => return None,
        })
    }
}

impl CasbinModel {
    /// Parses the text of a model.
    ///
    /// # Errors
    /// A section is missing, or has a definition that this gateway does not evaluate.
    pub(crate) fn parse(text: &str) -> Result<CasbinModel, String> {
        if text.len() > MODEL_BYTES_MAX {
            return Err(format!("the model has {} bytes; at most {MODEL_BYTES_MAX} are allowed", text.len()));
        }
        let mut found = ModelSections::default();
        for (section, key, value) in entries(text)? {
            found.add(&section, &key, &value)?;
        }
        let missing = |section: &str| format!("the model has no section [{section}]");
        let request = found.request.ok_or_else(|| missing("request_definition"))?;
        if request.len() != 3 {
            let count = request.len();
            return Err(format!("r has {count} members; requests have three: user, path and method"));
        }
        Ok(CasbinModel {
            request,
            policy: found.policy.ok_or_else(|| missing("policy_definition"))?,
            relations: found.relations,
            effect: found.effect.ok_or_else(|| missing("policy_effect"))?,
            matcher: found.matcher.ok_or_else(|| missing("matchers"))?,
        })
    }
}

#[derive(Default)]
struct ModelSections {
    request: Option<Vec<String>>,
    policy: Option<Vec<String>>,
    relations: Vec<RoleRelation>,
    effect: Option<PolicyEffect>,
    matcher: Option<String>,
}

impl ModelSections {
    fn add(&mut self, section: &str, key: &str, value: &str) -> Result<(), String> {
        match (section, key) {
            ("request_definition", "r") => put(&mut self.request, key, members(key, value)?),
            ("policy_definition", "p") => put(&mut self.policy, key, members(key, value)?),
            ("policy_effect", "e") => {
                let effect = PolicyEffect::parse(value).ok_or_else(|| {
                    format!(
                        "the policy effect `{value}` is not evaluated here; use some(where (p.eft == allow)), \
                         !some(where (p.eft == deny)), both joined by &&, or priority(p.eft) || deny"
                    )
                })?;
                put(&mut self.effect, key, effect)
            }
            ("matchers", "m") => put(&mut self.matcher, key, value.to_owned()),
            ("role_definition", name) if is_name(name) => {
                let has_domain = match value.split(',').map(str::trim).collect::<Vec<_>>().as_slice() {
                    ["_", "_"] => false,
                    ["_", "_", "_"] => true,
                    _ => {
                        return Err(format!(
                            "the role definition {name} = {value} is neither _, _ nor _, _, _"
                        ));
                    }
                };
                if self.relations.iter().any(|relation| relation.name == name) {
                    return Err(format!("{name} is defined twice"));
                }
                self.relations.push(RoleRelation { name: name.to_owned(), has_domain });
                Ok(())
            }
            _ => Err(format!("the definition {key} in section [{section}] is not evaluated here")),
        }
    }
}

fn put<T>(place: &mut Option<T>, key: &str, value: T) -> Result<(), String> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!("{key} is defined twice")),
    }
}

fn members(key: &str, value: &str) -> Result<Vec<String>, String> {
    let names: Vec<String> = value.split(',').map(|name| name.trim().to_owned()).collect();
    for (at, name) in names.iter().enumerate() {
        if !is_name(name) || names[..at].contains(name) {
            return Err(format!("{key} = {value} is no list of different names"));
        }
    }
    Ok(names)
}

pub(crate) fn is_name(text: &str) -> bool {
    let is_first = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    text.bytes().next().is_some_and(is_first)
        && text.bytes().all(|byte| is_first(byte) || byte.is_ascii_digit())
}

/// The definitions with their sections. A backslash at the end of a line continues it.
fn entries(text: &str) -> Result<Vec<(String, String, String)>, String> {
    let (mut section, mut found, mut pending) = (String::new(), Vec::new(), String::new());
    for line in text.lines() {
        let line = without_comment(line).trim();
        let (line, continues) = match line.strip_suffix('\\') {
            Some(rest) => (rest.trim_end(), true),
            None => (line, false),
        };
        pending.push_str(line);
        if continues {
            pending.push(' ');
            continue;
        }
        let whole = std::mem::take(&mut pending);
        let whole = whole.trim();
        if whole.is_empty() {
            continue;
        }
        if let Some(name) = whole.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            name.trim().clone_into(&mut section);
        } else if let Some((key, value)) = whole.split_once('=') {
            found.push((section.clone(), key.trim().to_owned(), value.trim().to_owned()));
        } else {
            return Err(format!("the line `{whole}` of the model is neither a section nor a definition"));
        }
    }
    Ok(found)
}

/// The line without a comment, which begins with `#` outside of quotes, or with `;` at the begin of the line.
fn without_comment(line: &str) -> &str {
    if line.trim_start().starts_with(';') {
        return "";
    }
    let mut quote = None;
    for (at, byte) in line.bytes().enumerate() {
        match (quote, byte) {
            (None, b'#') => return &line[..at],
            (None, b'"' | b'\'') => quote = Some(byte),
            (Some(open), _) if open == byte => quote = None,
            _ => {}
        }
    }
    line
}

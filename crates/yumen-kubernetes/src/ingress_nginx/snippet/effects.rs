//! Directives without an order: fields, lists of addresses, settings.

use std::sync::Arc;

use yumen_base::ipset::IpSet;

use super::SnippetPlace;
use super::directives::{harmless_reason, refusal_reason};
use super::plan::{
    AccessRule, RequestFieldEdit, RequestFieldValue, ResponseFieldEdit, ResponseFieldVerb, SnippetEffects,
    SnippetNote, SnippetRefusal, SnippetSetting,
};
use super::syntax::{SnippetDirective, SnippetWord};
use super::values::{SetNames, SetValues, is_token, time_ms};
use crate::ingress_nginx::annotations::parse_size;
use crate::ingress_nginx::nginx_text::NginxText;

/// Statuses of responses that `add_header` without `always` edits.
const ADD_HEADER_STATUSES: [u16; 10] = [200, 201, 204, 206, 301, 302, 303, 304, 307, 308];

/// Fields that frame a message or manage its connection (RFC 9110 §7.6.1).
const FRAMING_FIELDS: [&str; 6] =
    ["connection", "content-length", "keep-alive", "te", "transfer-encoding", "upgrade"];

/// Directives of the rewrite module, which have an order, and blocks.
pub(super) const STEP_NAMES: [&str; 6] = ["set", "if", "return", "rewrite", "break", "location"];

/// The effects of one block, before variables have their values.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct BlockEffects {
    pub(super) names: SetNames,
    /// Media type of `return`.
    pub(super) media_type: Option<Arc<str>>,
    request_fields: Vec<RequestFieldEdit>,
    /// `add_header`: those of a block replace those around it.
    added: Vec<ResponseFieldEdit>,
    /// `more_set_headers` and others: those of a block follow those around it.
    edited: Vec<ResponseFieldEdit>,
    access: Vec<AccessRule>,
    settings: Vec<SnippetSetting>,
}

/// Reads the directives of one block.
struct EffectReader<'n> {
    effects: BlockEffects,
    place: SnippetPlace,
    in_if: bool,
    notes: &'n mut Vec<SnippetNote>,
}

impl BlockEffects {
    /// Reads the directives of a block, those of the rewrite module left out.
    pub(super) fn read(
        directives: &[&SnippetDirective],
        place: SnippetPlace,
        in_if: bool,
        notes: &mut Vec<SnippetNote>,
    ) -> Result<BlockEffects, SnippetRefusal> {
        let mut effects = BlockEffects::default();
        effects.names.collect(directives);
        BlockEffects::read_with(effects, directives, place, in_if, notes)
    }

    /// Reads the directives of an `if` block, whose variables are those of the block around it.
    pub(super) fn read_if(
        &self,
        directives: &[&SnippetDirective],
        place: SnippetPlace,
        notes: &mut Vec<SnippetNote>,
    ) -> Result<BlockEffects, SnippetRefusal> {
        let effects = BlockEffects { names: self.names.clone(), ..BlockEffects::default() };
        BlockEffects::read_with(effects, directives, place, true, notes)
    }

    fn read_with(
        effects: BlockEffects,
        directives: &[&SnippetDirective],
        place: SnippetPlace,
        in_if: bool,
        notes: &mut Vec<SnippetNote>,
    ) -> Result<BlockEffects, SnippetRefusal> {
        let mut reader = EffectReader { effects, place, in_if, notes };
        for directive in directives.iter().filter(|one| !STEP_NAMES.contains(&one.name.as_str())) {
            reader.read(directive)?;
        }
        Ok(reader.effects)
    }

    /// Whether the rules refuse every client.
    pub(super) fn denies_all(&self) -> bool {
        self.access.first().is_some_and(|rule| rule.network.is_none() && !rule.allows)
    }

    /// Whether the rules refuse all clients but those that are listed.
    pub(super) fn closes(&self) -> bool {
        self.access.iter().find(|rule| rule.network.is_none()).is_some_and(|rule| !rule.allows)
    }

    /// The effects of a branch that ends in the block `inner`, or in this one.
    pub(super) fn settle(&self, inner: Option<&BlockEffects>, values: &SetValues) -> SnippetEffects {
        let added = inner.map(|inner| &inner.added).filter(|added| !added.is_empty()).unwrap_or(&self.added);
        let edited = self.edited.iter().chain(inner.into_iter().flat_map(|inner| &inner.edited));
        let settle_text = |text: &NginxText| values.settle(text, &self.names);
        let response_fields = edited.chain(added).map(|edit| {
            let value = settle_text(&edit.value);
            ResponseFieldEdit { value, ..edit.clone() }
        });
        let request_fields = self.request_fields.iter().map(|edit| match &edit.value {
            RequestFieldValue::Text(text) => RequestFieldEdit {
                name: edit.name.clone(),
                value: RequestFieldValue::Text(settle_text(text)),
            },
            RequestFieldValue::AuthAnswer(_) => edit.clone(),
        });
        let mut settings = self.settings.clone();
        for setting in inner.into_iter().flat_map(|inner| &inner.settings) {
            replace_setting(&mut settings, setting.clone());
        }
        SnippetEffects {
            answer: None,
            path: None,
            request_fields: request_fields.collect(),
            response_fields: response_fields.collect(),
            access: self.access.clone(),
            settings,
        }
    }
}

/// A later setting of a kind replaces an earlier one.
fn replace_setting(settings: &mut Vec<SnippetSetting>, setting: SnippetSetting) {
    settings.retain(|before| std::mem::discriminant(before) != std::mem::discriminant(&setting));
    settings.push(setting);
}

impl EffectReader<'_> {
    fn read(&mut self, directive: &SnippetDirective) -> Result<(), SnippetRefusal> {
        let words: Vec<&str> = directive.words.iter().map(|word| word.text.as_str()).collect();
        if directive.block.is_some() {
            let (reason, way_over) = refusal_reason(&directive.name);
            return Err(directive.refuse(reason, way_over));
        }
        if let Some(reason) = harmless_reason(&directive.name, &words) {
            self.note(directive, reason);
            return Ok(());
        }
        if self.place == SnippetPlace::Auth && directive.name != "proxy_set_header" {
            let reason = "only proxy_set_header has a translation for the request to an auth service";
            return Err(directive.refuse(reason, None));
        }
        match directive.name.as_str() {
            "add_header" => self.read_add_header(directive),
            "more_set_headers" | "more_clear_headers" => self.read_more_headers(directive),
            "proxy_hide_header" => self.read_hidden(directive),
            "proxy_set_header" => self.read_request_field(directive),
            "more_set_input_headers" | "more_clear_input_headers" => self.read_input_headers(directive),
            "auth_request_set" => self.read_auth_variable(directive),
            "allow" | "deny" => self.read_access(directive, &words),
            "expires" => self.read_expires(directive, &words),
            "default_type" => {
                self.effects.media_type = Some(self.one_word(directive, &words)?.into());
                Ok(())
            }
            _ => self.read_setting(directive, &words),
        }
    }

    fn note(&mut self, directive: &SnippetDirective, reason: &'static str) {
        self.notes.push(SnippetNote { line: directive.line, directive: directive.name.clone(), reason });
    }

    fn one_word<'w>(
        &self,
        directive: &SnippetDirective,
        words: &[&'w str],
    ) -> Result<&'w str, SnippetRefusal> {
        match words {
            [word] => Ok(word),
            _ => Err(directive.refuse(format!("the directive has {} words, not one", words.len()), None)),
        }
    }

    /// Refuses directives that NGINX does not allow in `if`.
    fn outside_if(&self, directive: &SnippetDirective) -> Result<(), SnippetRefusal> {
        match self.in_if {
            true => Err(directive.refuse("NGINX does not allow the directive in `if`", None)),
            false => Ok(()),
        }
    }

    fn read_add_header(&mut self, directive: &SnippetDirective) -> Result<(), SnippetRefusal> {
        let (name, value, always) = match &directive.words[..] {
            [name, value] => (name, value, false),
            [name, value, flag] if flag.text == "always" => (name, value, true),
            _ => return Err(directive.refuse("the form is `add_header NAME VALUE [always]`", None)),
        };
        let name = response_name(directive, &name.text)?;
        let variable = value.text.strip_prefix('$').unwrap_or_default();
        if let Some(field) = self.effects.names.answers.get(variable)
            && field.eq_ignore_ascii_case("set-cookie")
            && name.eq_ignore_ascii_case("set-cookie")
        {
            self.note(directive, "cookies of the auth service's answer are added anyhow");
            return Ok(());
        }
        let value = self.effects.names.plain_text(directive, value)?;
        // A type of the response is one, whatever NGINX adds.
        let verb = match name.eq_ignore_ascii_case("content-type") {
            true => ResponseFieldVerb::Set,
            false => ResponseFieldVerb::Add,
        };
        let statuses = if always { Vec::new() } else { ADD_HEADER_STATUSES.to_vec() };
        // NGINX adds no field with an empty value.
        if value.parts.is_empty() {
            self.note(directive, "a field with an empty value is not added");
        } else {
            self.effects.added.push(ResponseFieldEdit { name, verb, value, statuses });
        }
        Ok(())
    }

    fn read_more_headers(&mut self, directive: &SnippetDirective) -> Result<(), SnippetRefusal> {
        let mut statuses = Vec::new();
        let mut words = directive.words.iter().peekable();
        while let Some(option) = words.next_if(|word| word.text.starts_with('-') && !word.is_quoted) {
            let argument = words.next().map(|word| word.text.as_str()).unwrap_or_default();
            if option.text != "-s" {
                let reason = format!("the option {} has no translation", option.text);
                return Err(directive.refuse(reason, None));
            }
            for status in argument.split_whitespace() {
                let status = status.parse::<u16>().ok().filter(|status| (100..600).contains(status));
                statuses.push(status.ok_or_else(|| directive.refuse("-s needs statuses", None))?);
            }
        }
        let clears = directive.name == "more_clear_headers";
        for word in words {
            let (name, value) = word.text.split_once(':').unwrap_or((&word.text, ""));
            let value = SnippetWord { text: value.trim().to_owned(), is_quoted: true };
            let removes = clears || value.text.is_empty();
            let name = match name.trim().strip_suffix('*').filter(|_| removes) {
                Some(stem) if is_token(stem) => name.trim().into(),
                _ => response_name(directive, name.trim())?,
            };
            let value = if removes {
                NginxText::default()
            } else {
                self.effects.names.plain_text(directive, &value)?
            };
            let verb = if removes { ResponseFieldVerb::Remove } else { ResponseFieldVerb::Set };
            self.effects.edited.push(ResponseFieldEdit { name, verb, value, statuses: statuses.clone() });
        }
        Ok(())
    }

    fn read_hidden(&mut self, directive: &SnippetDirective) -> Result<(), SnippetRefusal> {
        self.outside_if(directive)?;
        let words: Vec<&str> = directive.words.iter().map(|word| word.text.as_str()).collect();
        let name = response_name(directive, self.one_word(directive, &words)?)?;
        let verb = ResponseFieldVerb::Remove;
        let edit = ResponseFieldEdit { name, verb, value: NginxText::default(), statuses: Vec::new() };
        self.effects.edited.push(edit);
        Ok(())
    }

    fn read_request_field(&mut self, directive: &SnippetDirective) -> Result<(), SnippetRefusal> {
        self.outside_if(directive)?;
        let [name, value] = &directive.words[..] else {
            return Err(directive.refuse("the form is `proxy_set_header NAME VALUE`", None));
        };
        if self.place == SnippetPlace::Server {
            self.note(directive, "every path of ingress-nginx has its own, so NGINX ignores it here");
            return Ok(());
        }
        if ["connection", "upgrade"].iter().any(|field| name.text.eq_ignore_ascii_case(field)) {
            self.note(directive, "the gateway manages connections; upgrades such as WebSockets pass");
            return Ok(());
        }
        let is_default = ["$host", "$http_host", "$best_http_host"].contains(&value.text.as_str());
        if name.text.eq_ignore_ascii_case("host") && is_default {
            self.note(directive, "services receive the host of the request anyhow");
            return Ok(());
        }
        let name = field_name(directive, &name.text)?;
        let value = match self.effects.names.answer_text(directive, value)? {
            Some(text) => RequestFieldValue::AuthAnswer(text),
            None => RequestFieldValue::Text(self.effects.names.plain_text(directive, value)?),
        };
        self.push_request_field(name, value);
        Ok(())
    }

    fn push_request_field(&mut self, name: Arc<str>, value: RequestFieldValue) {
        self.effects.request_fields.retain(|before| !before.name.eq_ignore_ascii_case(&name));
        self.effects.request_fields.push(RequestFieldEdit { name, value });
    }

    fn read_input_headers(&mut self, directive: &SnippetDirective) -> Result<(), SnippetRefusal> {
        self.outside_if(directive)?;
        let clears = directive.name == "more_clear_input_headers";
        for word in &directive.words {
            if word.text.starts_with('-') && !word.is_quoted {
                let reason = format!("the option {} has no translation", word.text);
                return Err(directive.refuse(reason, None));
            }
            let (name, value) = word.text.split_once(':').unwrap_or((&word.text, ""));
            let name = field_name(directive, name.trim())?;
            let text = if clears { String::new() } else { value.trim().to_owned() };
            let value = self.effects.names.plain_text(directive, &SnippetWord { text, is_quoted: true })?;
            self.push_request_field(name, RequestFieldValue::Text(value));
        }
        Ok(())
    }

    fn read_auth_variable(&mut self, directive: &SnippetDirective) -> Result<(), SnippetRefusal> {
        let name = directive.words.first().and_then(|word| word.text.strip_prefix('$'));
        match name.is_some_and(|name| self.effects.names.answers.contains_key(name))
            && directive.words.len() == 2
        {
            true => Ok(()),
            false => {
                let reason = "only fields of the answer, `$upstream_http_NAME`, have a translation";
                Err(directive.refuse(reason, None))
            }
        }
    }

    fn read_access(&mut self, directive: &SnippetDirective, words: &[&str]) -> Result<(), SnippetRefusal> {
        self.outside_if(directive)?;
        let word = self.one_word(directive, words)?;
        let network = match word {
            "all" => None,
            _ if IpSet::parse([word]).is_ok() => Some(word.into()),
            _ => return Err(directive.refuse(format!("{word:?} is no address or network"), None)),
        };
        self.effects.access.push(AccessRule { allows: directive.name == "allow", network });
        Ok(())
    }

    /// `expires` as `Cache-Control`: a maximum age has precedence over `Expires` (RFC 9111 §5.3).
    fn read_expires(&mut self, directive: &SnippetDirective, words: &[&str]) -> Result<(), SnippetRefusal> {
        let control = match self.one_word(directive, words)? {
            "off" => return Ok(()),
            "epoch" => "no-cache".to_owned(),
            "max" => "max-age=315360000".to_owned(),
            word if word.starts_with('-') => "no-cache".to_owned(),
            word => match time_ms(word.trim_start_matches('+')) {
                Some(ms) => format!("max-age={}", ms / 1000),
                None => return Err(directive.refuse(format!("{word:?} is no time, such as 30d"), None)),
            },
        };
        self.effects.edited.push(ResponseFieldEdit {
            name: "Cache-Control".into(),
            verb: ResponseFieldVerb::Set,
            value: NginxText::literal(&control),
            statuses: ADD_HEADER_STATUSES.to_vec(),
        });
        Ok(())
    }

    fn read_setting(&mut self, directive: &SnippetDirective, words: &[&str]) -> Result<(), SnippetRefusal> {
        let bytes = |word: &str| parse_size(word);
        let setting = match (directive.name.as_str(), words) {
            ("client_max_body_size", [word]) => bytes(word).map(SnippetSetting::BodyBytesMax),
            ("proxy_connect_timeout", [word]) => time_ms(word).map(SnippetSetting::ConnectTimeoutMs),
            ("proxy_read_timeout", [word]) => time_ms(word).map(SnippetSetting::ReadTimeoutMs),
            ("proxy_send_timeout", [word]) => time_ms(word).map(SnippetSetting::SendTimeoutMs),
            ("limit_rate", [word]) => bytes(word).map(SnippetSetting::ResponseRate),
            ("limit_rate_after", [word]) => bytes(word).map(SnippetSetting::ResponseRateAfter),
            ("gzip", ["on"]) => Some(SnippetSetting::Gzip(true)),
            ("gzip", ["off"]) => Some(SnippetSetting::Gzip(false)),
            ("access_log", ["off"]) => Some(SnippetSetting::AccessLog(false)),
            ("satisfy", ["any"]) => Some(SnippetSetting::SatisfyAny(true)),
            ("satisfy", ["all"]) => Some(SnippetSetting::SatisfyAny(false)),
            ("proxy_method", [word]) if is_token(word) => Some(SnippetSetting::Method((*word).into())),
            _ => {
                let (reason, way_over) = refusal_reason(&directive.name);
                return Err(directive.refuse(reason, way_over));
            }
        };
        let setting =
            setting.ok_or_else(|| directive.refuse(format!("{:?} is no value of it", words[0]), None))?;
        let is_own_of_paths = matches!(
            setting,
            SnippetSetting::BodyBytesMax(_)
                | SnippetSetting::ConnectTimeoutMs(_)
                | SnippetSetting::ReadTimeoutMs(_)
                | SnippetSetting::SendTimeoutMs(_)
        );
        if is_own_of_paths && self.place == SnippetPlace::Server {
            self.note(directive, "every path of ingress-nginx has its own, so NGINX ignores it here");
            return Ok(());
        }
        replace_setting(&mut self.effects.settings, setting);
        Ok(())
    }
}

/// The name of a field that a response may get or lose.
fn response_name(directive: &SnippetDirective, name: &str) -> Result<Arc<str>, SnippetRefusal> {
    field_name(directive, name)
}

fn field_name(directive: &SnippetDirective, name: &str) -> Result<Arc<str>, SnippetRefusal> {
    if !is_token(name) || name.contains('*') {
        return Err(directive.refuse(format!("{name:?} is no name of a field"), None));
    }
    match FRAMING_FIELDS.iter().any(|field| name.eq_ignore_ascii_case(field)) {
        true => Err(directive.refuse(format!("{name} frames the message: the gateway sets it"), None)),
        false => Ok(name.into()),
    }
}

//! Execution of scripts by digest, and by text if the server does not have the script.

use std::cell::RefCell;
use std::rc::Rc;

use aws_lc_rs::digest;
use yumen_plugin::background::{RedisFault, RedisResult, RedisScript, RedisScriptCall};
use yumen_plugin::plugin::LocalFuture;

use crate::connection::RedisConnection;
use crate::resp;

/// Cached digests of scripts. There are a handful.
#[derive(Default)]
pub(crate) struct ScriptDigests(RefCell<Vec<(RedisScript, Rc<str>)>>);

impl ScriptDigests {
    fn of(&self, script: RedisScript) -> Rc<str> {
        let mut known = self.0.borrow_mut();
        // Scripts are constants, so addresses identify them.
        let same = |(one, _): &&(RedisScript, Rc<str>)| std::ptr::eq(one.text, script.text);
        if let Some((_, digest)) = known.iter().find(same) {
            return digest.clone();
        }
        // Redis identifies scripts by SHA-1; nothing depends on its strength.
        let digest = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, script.text.as_bytes());
        let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        let hex: Rc<str> = hex.into();
        known.push((script, hex.clone()));
        hex
    }
}

/// The form in which a command names its script.
#[derive(Clone, Copy)]
pub(crate) enum ScriptReference {
    Digest,
    Text,
}

/// Appends the command that runs a script.
pub(crate) fn encode(
    out: &mut Vec<u8>,
    digests: &ScriptDigests,
    call: &RedisScriptCall,
    by: ScriptReference,
) {
    let digest = digests.of(call.script);
    let [verb, script] = match by {
        ScriptReference::Digest => ["EVALSHA", &*digest],
        ScriptReference::Text => ["EVAL", call.script.text],
    };
    let mut digits = itoa::Buffer::new();
    let keys = digits.format(call.keys.len());
    // The words refer to the call; only the encoded command is copied.
    let mut words: Vec<&[u8]> = Vec::with_capacity(3 + call.keys.len() + call.args.len());
    words.extend([verb.as_bytes(), script.as_bytes(), keys.as_bytes()]);
    words.extend(call.keys.iter().chain(&call.args).map(Vec::as_slice));
    resp::command(out, words.into_iter());
}

/// Whether the server does not have the script.
pub(crate) fn is_unknown(result: &RedisResult) -> bool {
    matches!(result, Err(RedisFault::Refused(why)) if why.starts_with("NOSCRIPT"))
}

/// Runs a script on one server. The command is queued when this returns.
pub(crate) fn on_link(
    link: Rc<RedisConnection>,
    digests: Rc<ScriptDigests>,
    call: RedisScriptCall,
) -> LocalFuture<'static, RedisResult> {
    let answer = link.send(|out| encode(out, &digests, &call, ScriptReference::Digest));
    Box::pin(async move {
        let result = answer.await;
        if !is_unknown(&result) {
            return result;
        }
        // `EVAL` also stores the script, so later commands succeed by digest.
        link.send(|out| encode(out, &digests, &call, ScriptReference::Text)).await
    })
}

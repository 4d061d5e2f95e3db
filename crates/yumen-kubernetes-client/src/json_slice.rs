//! Byte ranges of the members of a JSON object and of the elements of an array, without a value tree.
//!
//! Lists are cut into objects and `managedFields` is cut out of objects by range, so an object is copied once and
//! never built as a tree. The ranges are not validated beyond brackets and strings: a decoder of the piece does that.

use std::ops::Range;

/// A text that ends within a value, or is no object or array where one is expected. Carries the byte offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MalformedJson(pub(crate) usize);

/// One member of an object, as ranges in the text that was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemberSpan {
    /// The key without its quotes, as written: escapes are not resolved.
    pub(crate) key: Range<usize>,
    pub(crate) value: Range<usize>,
}

/// The members of the object at the start of `text`, in order.
pub(crate) fn members(text: &[u8]) -> Result<Vec<MemberSpan>, MalformedJson> {
    let mut found = Vec::new();
    let mut at = expect(text, skip_space(text, 0), b'{')?;
    at = skip_space(text, at);
    if text.get(at) == Some(&b'}') {
        return Ok(found);
    }
    loop {
        let key_start = expect(text, skip_space(text, at), b'"')?;
        let key_end = skip_string(text, key_start)?;
        let colon = expect(text, skip_space(text, key_end), b':')?;
        let start = skip_space(text, colon);
        let end = skip_value(text, start)?;
        found.push(MemberSpan { key: key_start..key_end - 1, value: start..end });
        at = skip_space(text, end);
        match text.get(at) {
            Some(b',') => at += 1,
            Some(b'}') => return Ok(found),
            _ => return Err(MalformedJson(at)),
        }
    }
}

/// The text of the first member with a key.
pub(crate) fn find<'t>(text: &'t [u8], members: &[MemberSpan], key: &str) -> Option<&'t [u8]> {
    let member = members.iter().find(|one| &text[one.key.clone()] == key.as_bytes())?;
    Some(&text[member.value.clone()])
}

/// The elements of the array at the start of `text`, in order.
pub(crate) fn elements(text: &[u8]) -> Result<Vec<Range<usize>>, MalformedJson> {
    let mut found = Vec::new();
    let mut at = skip_space(text, expect(text, skip_space(text, 0), b'[')?);
    if text.get(at) == Some(&b']') {
        return Ok(found);
    }
    loop {
        let start = skip_space(text, at);
        let end = skip_value(text, start)?;
        found.push(start..end);
        at = skip_space(text, end);
        match text.get(at) {
            Some(b',') => at += 1,
            Some(b']') => return Ok(found),
            _ => return Err(MalformedJson(at)),
        }
    }
}

/// The value of the member `key` of the object at the start of `text`.
pub(crate) fn member(text: &[u8], key: &str) -> Result<Option<Range<usize>>, MalformedJson> {
    let found = members(text)?;
    Ok(found
        .into_iter()
        .find(|member| &text[member.key.clone()] == key.as_bytes())
        .map(|member| member.value))
}

fn skip_space(text: &[u8], mut at: usize) -> usize {
    while matches!(text.get(at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
        at += 1;
    }
    at
}

fn expect(text: &[u8], at: usize, byte: u8) -> Result<usize, MalformedJson> {
    if text.get(at) == Some(&byte) { Ok(at + 1) } else { Err(MalformedJson(at)) }
}

/// The offset after the closing quote of a string whose content starts at `at`.
fn skip_string(text: &[u8], mut at: usize) -> Result<usize, MalformedJson> {
    loop {
        match text.get(at) {
            Some(b'"') => return Ok(at + 1),
            Some(b'\\') => at += 2,
            Some(_) => at += 1,
            None => return Err(MalformedJson(text.len())),
        }
    }
}

/// The offset after the value that starts at `at`. Iterative, so that nesting costs no stack.
fn skip_value(text: &[u8], mut at: usize) -> Result<usize, MalformedJson> {
    let start = at;
    let mut depth = 0_usize;
    loop {
        match text.get(at) {
            None => return Err(MalformedJson(text.len())),
            Some(b'"') => at = skip_string(text, at + 1)?,
            Some(b'{' | b'[') => {
                depth += 1;
                at += 1;
                continue;
            }
            Some(b'}' | b']') if depth > 0 => {
                depth -= 1;
                at += 1;
            }
            Some(_) if depth > 0 => {
                at += 1;
                continue;
            }
            // A number, `true`, `false` or `null`.
            Some(_) => {
                while !matches!(text.get(at), None | Some(b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r'))
                {
                    at += 1;
                }
                return if at > start { Ok(at) } else { Err(MalformedJson(at)) };
            }
        }
        if depth == 0 {
            return Ok(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{elements, members};

    fn check_members(text: &str, expected: Option<&[(&str, &str)]>) {
        let found = members(text.as_bytes()).ok();
        let found = found
            .map(|found| found.into_iter().map(|one| (&text[one.key], &text[one.value])).collect::<Vec<_>>());
        assert_eq!(found.as_deref(), expected, "{text}");
    }

    fn check_elements(text: &str, expected: Option<&[&str]>) {
        let found = elements(text.as_bytes()).ok();
        let found = found.map(|found| found.into_iter().map(|one| &text[one]).collect::<Vec<_>>());
        assert_eq!(found.as_deref(), expected, "{text}");
    }

    #[test]
    fn members_have_the_ranges_of_their_values() {
        check_members("{}", Some(&[]));
        check_members(
            r#" { "a" : 1 , "b":{"c":[1,{"d":"}"}]},"e":null}"#,
            Some(&[("a", "1"), ("b", r#"{"c":[1,{"d":"}"}]}"#), ("e", "null")]),
        );
        check_members(
            r#"{"a\"b":"c\\","d":"\u0022"}"#,
            Some(&[("a\\\"b", r#""c\\""#), ("d", r#""\u0022""#)]),
        );
    }

    #[test]
    fn elements_have_their_ranges() {
        check_elements("[]", Some(&[]));
        check_elements(
            r#"[ {"a":"]"} , [1,2] ,"x",-1.5e3 ]"#,
            Some(&[r#"{"a":"]"}"#, "[1,2]", r#""x""#, "-1.5e3"]),
        );
    }

    #[test]
    fn cut_texts_are_malformed() {
        for text in [
            "",
            "{",
            r#"{"a"#,
            r#"{"a""#,
            r#"{"a":"#,
            r#"{"a":1"#,
            r#"{"a":"b\"#,
            r#"{"a":[1"#,
            "[]",
            r#"{"a":}"#,
        ] {
            check_members(text, None);
        }
        for text in ["", "[", "[1", "[1,", "[,]", "{}", r#"["a"#, r#"["\"#] {
            check_elements(text, None);
        }
    }
}

//! NGINX's syntax: words, quotes, comments, blocks.

use super::plan::SnippetRefusal;

/// Bytes of a snippet.
const TEXT_BYTES_MAX: usize = 64 * 1024;

/// Directives of a snippet.
const DIRECTIVES_MAX: usize = 512;

/// Words of a directive.
const WORDS_MAX: usize = 64;

/// Blocks within each other.
const DEPTH_MAX: usize = 4;

/// A word of a directive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SnippetWord {
    pub(super) text: String,
    /// Whether the word was in quotes.
    pub(super) is_quoted: bool,
}

/// A directive with its words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SnippetDirective {
    pub(super) name: String,
    pub(super) words: Vec<SnippetWord>,
    /// Line in the snippet, from 1.
    pub(super) line: u32,
    /// The directives of the block, if there is one.
    pub(super) block: Option<Vec<SnippetDirective>>,
}

impl SnippetDirective {
    /// A refusal that names the directive.
    pub(super) fn refuse(&self, reason: impl Into<String>, way_over: Option<&'static str>) -> SnippetRefusal {
        SnippetRefusal {
            line: self.line,
            directive: self.name.clone(),
            reason: reason.into(),
            way_over,
            guards: false,
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum SnippetToken {
    Word(SnippetWord),
    Semicolon,
    Open,
    Close,
}

/// Reads the directives of a snippet.
pub(super) fn parse_snippet(text: &str) -> Result<Vec<SnippetDirective>, SnippetRefusal> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(syntax_error(1, format!("the snippet has more than {TEXT_BYTES_MAX} bytes")));
    }
    let mut reader = TokenReader { text, at: 0, line: 1 };
    let mut count = 0;
    read_block(&mut reader, 0, &mut count)
}

fn syntax_error(line: u32, reason: impl Into<String>) -> SnippetRefusal {
    SnippetRefusal { line, directive: String::new(), reason: reason.into(), way_over: None, guards: false }
}

/// Reads directives up to the end of the block, or of the text at depth 0.
fn read_block(
    reader: &mut TokenReader<'_>,
    depth: usize,
    count: &mut usize,
) -> Result<Vec<SnippetDirective>, SnippetRefusal> {
    let mut directives = Vec::new();
    loop {
        let Some((line, token)) = reader.next()? else {
            return match depth {
                0 => Ok(directives),
                _ => Err(syntax_error(reader.line, "a block has no `}`")),
            };
        };
        match token {
            SnippetToken::Word(word) => {
                *count += 1;
                if *count > DIRECTIVES_MAX {
                    let reason = format!("the snippet has more than {DIRECTIVES_MAX} directives");
                    return Err(syntax_error(line, reason));
                }
                directives.push(read_directive(reader, word, line, depth, count)?);
            }
            SnippetToken::Close if depth > 0 => return Ok(directives),
            SnippetToken::Close => return Err(syntax_error(line, "unexpected `}`")),
            SnippetToken::Open => return Err(syntax_error(line, "unexpected `{`")),
            SnippetToken::Semicolon => return Err(syntax_error(line, "unexpected `;`")),
        }
    }
}

fn read_directive(
    reader: &mut TokenReader<'_>,
    name: SnippetWord,
    line: u32,
    depth: usize,
    count: &mut usize,
) -> Result<SnippetDirective, SnippetRefusal> {
    let mut directive = SnippetDirective { name: name.text, words: Vec::new(), line, block: None };
    loop {
        let Some((at, token)) = reader.next()? else {
            return Err(directive.refuse("the directive has no `;`", None));
        };
        match token {
            SnippetToken::Word(word) if directive.words.len() < WORDS_MAX => directive.words.push(word),
            SnippetToken::Word(_) => {
                return Err(directive.refuse(format!("the directive has more than {WORDS_MAX} words"), None));
            }
            SnippetToken::Semicolon => return Ok(directive),
            SnippetToken::Open if is_lua(&directive.name) => {
                return Err(directive.refuse("the gateway runs no Lua", None));
            }
            SnippetToken::Open if depth < DEPTH_MAX => {
                directive.block = Some(read_block(reader, depth + 1, count)?);
                return Ok(directive);
            }
            SnippetToken::Open => {
                return Err(directive.refuse(format!("more than {DEPTH_MAX} blocks within each other"), None));
            }
            SnippetToken::Close => {
                return Err(syntax_error(at, "unexpected `}`: the directive before has no `;`"));
            }
        }
    }
}

/// Blocks of Lua are not of NGINX's syntax.
fn is_lua(name: &str) -> bool {
    name.ends_with("_by_lua_block")
}

struct TokenReader<'t> {
    text: &'t str,
    at: usize,
    line: u32,
}

impl TokenReader<'_> {
    /// The next token with its line; `None` at the end.
    fn next(&mut self) -> Result<Option<(u32, SnippetToken)>, SnippetRefusal> {
        self.skip_space();
        let line = self.line;
        let Some(first) = self.peek() else { return Ok(None) };
        let token = match first {
            ';' => self.single(SnippetToken::Semicolon),
            '{' => self.single(SnippetToken::Open),
            '}' => self.single(SnippetToken::Close),
            '"' | '\'' => SnippetToken::Word(self.quoted(first)?),
            _ => SnippetToken::Word(self.bare()),
        };
        Ok(Some((line, token)))
    }

    fn single(&mut self, token: SnippetToken) -> SnippetToken {
        self.at += 1;
        token
    }

    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn take(&mut self) -> Option<char> {
        let character = self.peek()?;
        self.at += character.len_utf8();
        self.line += u32::from(character == '\n');
        Some(character)
    }

    /// Skips spaces and comments.
    fn skip_space(&mut self) {
        while let Some(character) = self.peek() {
            if character == '#' {
                while self.peek().is_some_and(|character| character != '\n') {
                    self.take();
                }
            } else if matches!(character, ' ' | '\t' | '\r' | '\n') {
                self.take();
            } else {
                return;
            }
        }
    }

    fn quoted(&mut self, quote: char) -> Result<SnippetWord, SnippetRefusal> {
        let line = self.line;
        self.take();
        let mut text = String::new();
        while let Some(character) = self.take() {
            match character {
                '\\' => self.escape(&mut text),
                _ if character == quote => return self.end_of_quotes(text, line),
                _ => text.push(character),
            }
        }
        Err(syntax_error(line, format!("the quote {quote} has no end")))
    }

    /// Behind quotes NGINX expects the end of the word.
    fn end_of_quotes(&self, text: String, line: u32) -> Result<SnippetWord, SnippetRefusal> {
        match self.peek() {
            None | Some(' ' | '\t' | '\r' | '\n' | ';' | '{' | ')') => {
                Ok(SnippetWord { text, is_quoted: true })
            }
            Some(other) => Err(syntax_error(line, format!("unexpected {other:?} after a quote"))),
        }
    }

    fn bare(&mut self) -> SnippetWord {
        let mut text = String::new();
        // A parenthesis is a word of its own behind quotes, as in `if ($a = "b")`.
        while let Some(character) = self.peek() {
            match character {
                ' ' | '\t' | '\r' | '\n' | ';' => break,
                // `${name}` is a variable, not a block.
                '{' if !text.ends_with('$') => break,
                '\\' => {
                    self.take();
                    self.escape(&mut text);
                }
                _ => {
                    self.take();
                    text.push(character);
                }
            }
        }
        SnippetWord { text, is_quoted: false }
    }

    /// Reads the character behind a backslash. NGINX drops the backslash before quotes and backslashes only.
    fn escape(&mut self, text: &mut String) {
        match self.take() {
            Some(character @ ('"' | '\'' | '\\')) => text.push(character),
            Some('t') => text.push('\t'),
            Some('r') => text.push('\r'),
            Some('n') => text.push('\n'),
            Some(character) => {
                text.push('\\');
                text.push(character);
            }
            None => text.push('\\'),
        }
    }
}

//! Names and values in one line of YAML or JSON, and the names around the line.

use std::ops::Range;

/// Lines above a line that are read for the names around it.
const LINES_MAX: usize = 5000;

/// A name or a value of a line.
#[derive(Debug)]
pub(super) struct LineToken {
    /// Its characters.
    pub(super) range: Range<usize>,
    /// The names around it, the outermost first; for a name without the name itself.
    pub(super) names: Vec<String>,
    /// Whether a colon follows.
    pub(super) is_name: bool,
}

/// The names around the last of `lines`, by indentation.
pub(super) fn enclosing_names(lines: &[&str]) -> Vec<String> {
    let Some((last, before)) = lines.split_last() else { return Vec::new() };
    let indent = |line: &str| line.chars().take_while(|c| c.is_whitespace()).count();
    let (mut limit, mut is_item) = (indent(last), last.trim_start().starts_with('-'));
    let mut names = Vec::new();
    for line in before.iter().rev().take(LINES_MAX) {
        let text = line.trim_start();
        if limit == 0 && !is_item {
            break;
        }
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let (column, dashed) = (indent(line), text.starts_with("- "));
        // The items of a list may stand in the column of its name (YAML 1.2.2 §8.2.1).
        if column > limit || (column == limit && (!is_item || dashed)) {
            continue;
        }
        let characters: Vec<char> = line.chars().collect();
        let name_column = column + text.chars().take_while(|c| matches!(c, '-' | ' ')).count();
        // A member of the same item is no parent, but its item has parents.
        let is_parent = !dashed || name_column < limit;
        if is_parent {
            names.push(open_names(&characters));
        }
        (limit, is_item) = (column, dashed);
    }
    names.into_iter().rev().flatten().collect()
}

/// The names of a line whose values go on below it.
fn open_names(line: &[char]) -> Vec<String> {
    let mut scan = LineScan::new(line, Vec::new());
    scan.run();
    scan.names
}

/// The names and values of a line.
pub(super) fn scan(line: &[char], outer: Vec<String>) -> Vec<LineToken> {
    let mut scan = LineScan::new(line, outer);
    scan.run();
    scan.parts
}

struct LineScan<'l> {
    line: &'l [char],
    at: usize,
    /// The names around the place.
    names: Vec<String>,
    /// For each open bracket the number of names around it.
    brackets: Vec<usize>,
    /// The number of names outside of the line.
    outer: usize,
    /// Whether a comma ends a value, although no bracket is open in this line: one may be open above.
    is_flow: bool,
    parts: Vec<LineToken>,
}

impl<'l> LineScan<'l> {
    fn new(line: &'l [char], names: Vec<String>) -> LineScan<'l> {
        LineScan {
            line,
            at: 0,
            outer: names.len(),
            names,
            brackets: Vec::new(),
            is_flow: false,
            parts: Vec::new(),
        }
    }

    fn run(&mut self) {
        while let Some(character) = self.line.get(self.at) {
            match character {
                c if c.is_whitespace() => self.at += 1,
                '{' | '[' => {
                    self.brackets.push(self.names.len());
                    self.at += 1;
                }
                '}' | ']' => {
                    let kept = self.brackets.pop().unwrap_or(self.outer);
                    // A bracket of a line above ends the object that its name belongs to.
                    self.names.truncate(kept);
                    if kept > self.base() {
                        self.names.truncate(kept - 1);
                    }
                    self.at += 1;
                }
                ',' => {
                    self.names.truncate(self.base());
                    self.at += 1;
                }
                '-' if self.is_dash() => self.at += 1,
                '#' if self.at == 0 || self.line[self.at - 1].is_whitespace() => {
                    self.add(self.line.len(), false);
                }
                _ => self.token(),
            }
        }
    }

    fn base(&self) -> usize {
        self.brackets.last().copied().unwrap_or(self.outer)
    }

    /// Whether a dash begins an item.
    fn is_dash(&self) -> bool {
        let is_first = self.line[..self.at].iter().all(|c| c.is_whitespace() || *c == '-');
        is_first && self.line.get(self.at + 1).is_none_or(|c| c.is_whitespace())
    }

    /// Reads a name or a value.
    fn token(&mut self) {
        let is_value = self.names.len() > self.base();
        let end = match self.line[self.at] {
            quote @ ('"' | '\'') => self.quoted_end(quote),
            _ => self.plain_end(),
        };
        let colon = end + self.line[end..].iter().take_while(|c| c.is_whitespace()).count();
        let is_name = !is_value && self.line.get(colon) == Some(&':');
        if !is_name {
            if self.brackets.is_empty() && !self.is_flow {
                // The value of a block is the rest of the line, and that of an object over several lines ends before.
                self.parts.push(LineToken {
                    range: self.at..self.line.len(),
                    names: self.names.clone(),
                    is_name: false,
                });
                self.is_flow = true;
            } else {
                self.add(end, false);
            }
            return;
        }
        let name: String = self.line[self.at..end].iter().collect();
        self.add(end, true);
        self.names.push(name.trim().trim_matches(['"', '\'']).to_owned());
        self.at = colon + 1;
        // The values of these are below the line (YAML 1.2.2 §8.1), without quotes.
        let rest: String = self.line[self.at..].iter().collect();
        if matches!(rest.trim_start().chars().next(), Some('|' | '>')) {
            self.at = self.line.len();
        }
    }

    fn quoted_end(&self, quote: char) -> usize {
        let mut at = self.at + 1;
        while let Some(character) = self.line.get(at) {
            match *character {
                '\\' if quote == '"' => at += 1,
                c if c == quote => return at + 1,
                _ => {}
            }
            at += 1;
        }
        self.line.len()
    }

    fn plain_end(&self) -> usize {
        let is_flow = self.is_flow || !self.brackets.is_empty();
        let ends = |at: usize| match self.line[at] {
            ':' => {
                self.line.get(at + 1).is_none_or(|c| c.is_whitespace() || (is_flow && ",[]{}".contains(*c)))
            }
            ',' | '[' | ']' | '{' | '}' => is_flow,
            '#' => at > 0 && self.line[at - 1].is_whitespace(),
            _ => false,
        };
        // A first character that ends nothing else still belongs to the value, so the scan moves on.
        let end = (self.at + 1..self.line.len()).find(|at| ends(*at)).unwrap_or(self.line.len());
        let trailing = self.line[self.at + 1..end].iter().rev().take_while(|c| c.is_whitespace()).count();
        end - trailing
    }

    fn add(&mut self, end: usize, is_name: bool) {
        self.parts.push(LineToken { range: self.at..end, names: self.names.clone(), is_name });
        self.at = end;
    }
}

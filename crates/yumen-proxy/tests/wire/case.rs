//! Parser of case files.

use std::path::Path;

/// A step of one side.
#[derive(Debug, PartialEq)]
pub(crate) enum Step {
    /// Sends these bytes.
    Sends(Vec<u8>),
    /// Expects exactly these bytes.
    Gets(Vec<u8>),
    /// Shuts down its sending direction, but still reads.
    Shuts,
    /// Closes the connection.
    Closes,
    /// Expects the end of the connection without another byte.
    Ends,
    /// Upstream only: continues with the next connection.
    Accepts,
    /// Waits for this number of milliseconds.
    Waits(u64),
}

/// A case file.
#[derive(Debug, Default)]
pub(crate) struct Case {
    /// Resources as a document; `UPSTREAM` stands for the scripted upstream.
    pub(crate) config: String,
    /// Settings of the worker, by name and value.
    pub(crate) settings: Vec<(String, u64)>,
    /// Steps of the client.
    pub(crate) client: Vec<Step>,
    /// Steps of the upstream; empty if it must not be contacted.
    pub(crate) upstream: Vec<Step>,
    /// Replayed without splits only, because it is slow.
    pub(crate) once: bool,
}

impl Case {
    /// Parses a file; panics at unknown content.
    pub(crate) fn read(path: &Path) -> Case {
        let text = std::fs::read_to_string(path).unwrap();
        let mut case = Case::default();
        for section in text.split("\n== ").skip(1) {
            let (title, body) = section.split_once('\n').unwrap_or((section, ""));
            let words: Vec<&str> = title.split_whitespace().collect();
            match *words.as_slice() {
                ["config"] => case.config = body.to_owned(),
                ["setting", name, value] => case.settings.push((name.to_owned(), value.parse().unwrap())),
                ["once"] => case.once = true,
                ["client", ..] => case.client.push(step(&words[1..], body)),
                ["upstream", ..] => case.upstream.push(step(&words[1..], body)),
                _ => panic!("{}: unknown section {title:?}", path.display()),
            }
        }
        if case.config.is_empty() {
            case.config = DEFAULT_CONFIG.to_owned();
        }
        case
    }

    /// Number of bytes that the client sends.
    pub(crate) fn client_bytes(&self) -> usize {
        sent(&self.client)
    }

    /// Number of bytes that the upstream sends.
    pub(crate) fn upstream_bytes(&self) -> usize {
        sent(&self.upstream)
    }
}

/// A route for all paths to the scripted upstream.
const DEFAULT_CONFIG: &str = "routes:\n- {id: 1, uri: /*, upstream: {nodes: {\"UPSTREAM\": 1}}}\n";

fn sent(steps: &[Step]) -> usize {
    let count = |step: &Step| if let Step::Sends(bytes) = step { bytes.len() } else { 0 };
    steps.iter().map(count).sum()
}

fn step(words: &[&str], body: &str) -> Step {
    match *words {
        ["sends"] => Step::Sends(bytes(body)),
        ["gets"] => Step::Gets(bytes(body)),
        ["shuts"] => Step::Shuts,
        ["closes"] => Step::Closes,
        ["ends"] => Step::Ends,
        ["accepts"] => Step::Accepts,
        ["waits", ms] => Step::Waits(ms.parse().unwrap()),
        _ => panic!("unknown step {words:?}"),
    }
}

/// Parses bytes: lines are joined, `\r`, `\n`, `\t`, `\\` and `\xHH` are single bytes, `\{30 ab}` is `ab`
/// thirty times. Lines that begin with `#` are comments.
pub(crate) fn bytes(text: &str) -> Vec<u8> {
    let joined: String = text.lines().filter(|line| !line.starts_with('#')).collect();
    let mut out = Vec::new();
    let mut rest = joined.as_str();
    while let Some(at) = rest.find('\\') {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        let (escape, after) = rest[at + 1..].split_at(1);
        rest = after;
        match escape {
            "r" => out.push(b'\r'),
            "n" => out.push(b'\n'),
            "t" => out.push(b'\t'),
            "\\" => out.push(b'\\'),
            "x" => {
                out.push(u8::from_str_radix(&rest[..2], 16).unwrap());
                rest = &rest[2..];
            }
            "{" => {
                let (inner, after) = rest.split_once('}').unwrap();
                let (count, what) = inner.split_once(' ').unwrap();
                out.extend(bytes(what).repeat(count.parse().unwrap()));
                rest = after;
            }
            other => panic!("unknown escape {other:?}"),
        }
    }
    out.extend_from_slice(rest.as_bytes());
    out
}

#[test]
fn bytes_are_what_is_written() {
    assert_eq!(bytes("a\\r\\n\n# comment\nb\\x00\\\\\\{3 xy}é\n"), "a\r\nb\0\\xyxyxyé".as_bytes());
}

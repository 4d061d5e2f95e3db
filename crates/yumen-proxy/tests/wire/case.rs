//! Reading a case from its file. Knows nothing of sockets.

use std::path::Path;

/// One thing a side does or expects.
#[derive(Debug, PartialEq)]
pub(crate) enum Step {
    /// Sends these bytes.
    Sends(Vec<u8>),
    /// Receives these bytes and no others.
    Gets(Vec<u8>),
    /// Sends nothing more, but still reads.
    Shuts,
    /// Closes the connection.
    Closes,
    /// Sees the other side end the connection, without another byte.
    Ends,
    /// Upstream only: goes on with the next connection.
    Accepts,
    /// Waits so many milliseconds.
    Waits(u64),
}

/// One file.
#[derive(Debug, Default)]
pub(crate) struct Case {
    /// Resources as a standalone document, `UPSTREAM` standing for the scripted upstream.
    pub(crate) config: String,
    /// Settings of the worker, name and value.
    pub(crate) settings: Vec<(String, u64)>,
    /// What the client does.
    pub(crate) client: Vec<Step>,
    /// What the upstream does; none of it where it must not be asked.
    pub(crate) upstream: Vec<Step>,
    /// Replayed whole only: time or amount makes it slow.
    pub(crate) once: bool,
}

impl Case {
    /// Reads a file; panics at anything it does not know.
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

    /// How many bytes the client sends.
    pub(crate) fn client_bytes(&self) -> usize {
        sent(&self.client)
    }

    /// How many bytes the upstream sends.
    pub(crate) fn upstream_bytes(&self) -> usize {
        sent(&self.upstream)
    }
}

/// Every path to the one upstream.
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

/// Bytes are exactly what is written: lines are joined, `\r`, `\n`, `\t`, `\\` and `\xHH` are single
/// bytes, `\{30 ab}` is `ab` thirty times. Lines that begin with `#` are left out.
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

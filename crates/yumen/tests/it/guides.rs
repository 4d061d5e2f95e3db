//! Every command in the guides runs and prints the documented output.
//!
//! In a `console` block, a line `$ command` is run, by one shell per guide. The lines below it must appear in
//! its output in the same order, with any lines in between. `…` matches any text.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::harness::gateway::YUMEN;
use crate::harness::{Gateway, Options, Scratch, free_port, port};

/// A command of a guide with its documented output.
struct Step {
    command: String,
    expected: Vec<String>,
}

fn steps(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for block in text.split("```console\n").skip(1) {
        let block = block.split("```").next().unwrap_or_default();
        // Output alone, such as that of the start.
        if !block.starts_with("$ ") {
            continue;
        }
        let mut continues = false;
        for line in block.lines() {
            match (line.strip_prefix("$ "), continues) {
                (Some(command), false) => {
                    steps.push(Step { command: command.to_owned(), expected: Vec::new() })
                }
                (_, true) => {
                    let step = steps.last_mut().expect("a command came before");
                    step.command.push('\n');
                    step.command.push_str(line);
                }
                (None, false) => {
                    let step = steps.last_mut().expect("a block starts with a command");
                    step.expected.push(line.trim().to_owned());
                }
            }
            // A command continues after a backslash at the end of its line, and while a quote is open.
            let command = &steps.last().expect("just pushed").command;
            let is_command = line.starts_with("$ ") || continues;
            continues = is_command && (line.ends_with('\\') || command.matches('\'').count() % 2 == 1);
        }
    }
    steps
}

/// The shell script of a guide, with a marker after each command.
fn script(steps: &[Step]) -> String {
    let step =
        |(i, step): (usize, &Step)| format!("{} 2>&1\nprintf '\\n<<%d %d>>\\n' {i} $?\n", step.command);
    // On a terminal curl shows no progress beside a response.
    let start = "curl() { command curl -s \"$@\"; }\n".to_owned();
    start + &steps.iter().enumerate().map(step).collect::<String>()
}

/// The services that guides start by `yumen echo`; ended on drop.
struct EchoServices {
    addresses: [SocketAddr; 3],
    child: Child,
}

impl EchoServices {
    fn start() -> EchoServices {
        let any = "127.0.0.1:0";
        let mut command = Command::new(YUMEN);
        let mut child =
            command.args(["echo", any, any, any]).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let addresses = [(); 3].map(|()| {
            let line = lines.next().expect("a line per address").expect("text");
            let (_, rest) = line.split_once("http://").expect("an address");
            rest.split(": ").next().and_then(|address| address.parse().ok()).expect("an address")
        });
        EchoServices { addresses, child }
    }
}

impl Drop for EchoServices {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn check(guide: &Path) {
    let echo = EchoServices::start();
    let [first, second, grpc] = &echo.addresses;
    let node = "stream_listen: [{address: '127.0.0.1:0'}]\n";
    let options = Options { node, ..Options::default() };
    let gateway = Gateway::launch(Scratch::new(), &options, &["--data-dir", "data"]);
    // Commands of guides run in the root of the repository.
    for folder in ["docs", "deploy"] {
        let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
        std::os::unix::fs::symlink(target, gateway.scratch.path().join(folder)).expect("a link");
    }
    let key = gateway.admin_key().expect("a first start prints the admin key");
    let stream = gateway
        .lines()
        .iter()
        .find_map(|line| line.split_once("tcp 127.0.0.1:").map(|(_, port)| port.to_owned()));
    let text = std::fs::read_to_string(guide).unwrap();
    let mut actual = vec![
        ("127.0.0.1:9080", gateway.http.to_string()),
        ("127.0.0.1:9443", gateway.https.to_string()),
        ("127.0.0.1:9180", gateway.admin.to_string()),
        ("127.0.0.1:9091", gateway.status.to_string()),
        ("127.0.0.1:1980", first.to_string()),
        ("127.0.0.1:1981", second.to_string()),
        ("127.0.0.1:50051", grpc.to_string()),
        ("localhost:1980", format!("localhost:{}", first.port())),
        (":9443", format!(":{}", gateway.https.port())),
        ("9100", stream.expect("the listener for streams is announced")),
        ("6390", free_port().port().to_string()),
    ];
    // Servers that guides start get ports of the test as well.
    let blocks = ["2107", "2108", "2109", "2207", "2208"].into_iter().filter(|block| text.contains(block));
    actual.extend(blocks.map(|block| (block, port::free_block())));
    let text = replaced(&text, &actual);
    let mut steps = steps(&text);
    // The key of the example is not that of this gateway, and the variables are set below.
    steps.retain(|step| !step.command.starts_with("export YUMEN_ADMIN_KEY="));
    assert!(!steps.is_empty(), "{}: no command", guide.display());
    let script = script(&steps);
    let binary_dir = Path::new(YUMEN).parent().unwrap().display().to_string();
    let output = Command::new("bash")
        .arg("-c")
        .arg(&script)
        .current_dir(gateway.scratch.path())
        .env("PATH", format!("{binary_dir}:{}", std::env::var("PATH").unwrap_or_default()))
        .env("YUMEN_ADMIN_KEY", &key)
        .env("YUMEN_ADMIN", format!("http://{}", gateway.admin))
        .env("YUMEN_STATUS", format!("http://{}", gateway.status))
        .stdin(Stdio::null())
        .output()
        .expect("bash runs");
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut rest = stdout.as_str();
    for (i, step) in steps.iter().enumerate() {
        let marker = format!("\n<<{i} ");
        let (printed, after) = rest
            .split_once(&marker)
            .unwrap_or_else(|| panic!("{}: ended before\n{}\n{stdout}", guide.display(), step.command));
        rest = after.split_once(">>\n").map_or("", |(_, rest)| rest);
        expect(guide, step, printed);
    }
}

/// Replaces addresses in a text; the earlier entry wins for a common prefix. Replacements are not searched
/// again, because ports share digits.
fn replaced(text: &str, actual: &[(&str, String)]) -> String {
    let (mut done, mut rest) = (String::new(), text);
    while let Some(next) = rest.chars().next() {
        let found = actual.iter().find_map(|(written, actual)| Some((rest.strip_prefix(written)?, actual)));
        if let Some((after, actual)) = found {
            done.push_str(actual);
            rest = after;
        } else {
            done.push(next);
            rest = &rest[next.len_utf8()..];
        }
    }
    done
}

#[test]
fn what_took_the_place_of_a_port_is_not_replaced() {
    let actual = [("127.0.0.1:9080", "127.0.0.1:42107".into()), ("2107", "1333".into())];
    assert_eq!(replaced("http://127.0.0.1:9080/ 21071", &actual), "http://127.0.0.1:42107/ 13331");
}

/// Compares the documented output with the printed one, line by line without indentation and empty lines. `…` stands for
/// any text within a line, and alone for any number of lines. A command without documented output prints anything.
fn expect(guide: &Path, step: &Step, printed: &str) {
    let expected: Vec<&str> =
        step.expected.iter().map(String::as_str).filter(|line| !line.is_empty()).collect();
    let lines: Vec<&str> = printed.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let (mut at, mut is_gap) = (0, false);
    for line in &expected {
        if *line == "…" {
            is_gap = true;
            continue;
        }
        let until = if is_gap { lines.len() } else { lines.len().min(at + 1) };
        match (at..until).find(|at| is_like(line, lines[*at])) {
            Some(found) => (at, is_gap) = (found + 1, false),
            None => panic!("{}: `{line}` is not next in\n$ {}\n{printed}", guide.display(), step.command),
        }
    }
    let is_whole = expected.is_empty() || is_gap || at == lines.len();
    assert!(is_whole, "{}: the output is cut without `…`\n$ {}\n{printed}", guide.display(), step.command);
}

fn is_like(expected: &str, line: &str) -> bool {
    let mut parts: Vec<&str> = expected.split('…').map(str::trim).collect();
    let last = parts.pop().unwrap_or_default();
    let Some((first, middle)) = parts.split_first() else { return line == last };
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    for part in middle {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[test]
fn cut_output_is_marked() {
    let check = |expected: &str, line: &str, is_expected: bool| {
        assert_eq!(is_like(expected, line), is_expected, "{expected} {line}");
    };
    check("200", "200", true);
    check("200", "2001", false);
    check("…\"a\":1…", "{\"a\":1}", true);
    check("\"a\":1", "{\"a\":1}", false);
    check("process … serves", "process 7 serves", true);
    check("process … serves", "process 7 serves x", false);
}

fn guides() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guides");
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("the guides")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    found.sort();
    found.push(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md"));
    found
}

#[test]
fn every_command_of_every_guide_does_what_the_guide_says() {
    let guides = guides();
    // `GUIDE=18-grpc` runs one of them.
    let only = std::env::var("GUIDE").unwrap_or_default();
    for guide in guides.iter().filter(|guide| guide.to_string_lossy().contains(&only)) {
        check(guide);
    }
    assert!(guides.len() >= 8, "{guides:?}");
}

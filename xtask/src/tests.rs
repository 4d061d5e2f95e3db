use crate::arrows::{check_arrow, check_purity};
use crate::cycles;
use crate::docs::{anchors, backticked, check_bans, links};
use crate::modules;
use crate::policy::{licensed, list};
use crate::sizes;
use crate::sources::Sources;

#[test]
fn the_repository_is_tidy() {
    let findings = crate::tidy().expect("the repository can be read");
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

#[test]
fn arrows_are_acyclic() {
    let check =
        |from, to, allowed: bool| assert_eq!(check_arrow(from, to).is_none(), allowed, "{from} -> {to}");
    check("yumen-http", "yumen-base", true);
    check("yumen-base", "yumen-http", false);
    check("yumen-proxy", "yumen-snapshot", true);
    check("yumen-proxy", "yumen-store", false);
    check("yumen-proxy", "yumen-plugins", false);
    check("yumen-proxy", "tokio", true);
    check("yumen-snapshot", "tokio", false);
    check("yumen-plugins", "rand", false);
    check("yumen", "yumen-proxy", true);
    check("yumen-admin", "yumen-proxy", false);
    check("yumen-import", "yumen-admin", false);
    check("yumen-import", "tokio", false);
    check("yumen-unheard-of", "yumen-base", false);
}

#[test]
fn pure_crates_read_no_clock_outside_tests() {
    let check = |path: &str, text: &str, findings: usize| {
        assert_eq!(check_purity(&Sources::of(&[(path, text)])).len(), findings, "{path}: {text}");
    };
    check("crates/yumen-base/src/a.rs", "let t = Instant::now();", 1);
    check("crates/yumen-base/src/a.rs", "// Instant::now() is not read here", 0);
    check("crates/yumen-base/src/a/tests.rs", "let t = Instant::now();", 0);
    check("crates/yumen-proxy/src/a.rs", "let t = Instant::now();", 0);
    check("crates/yumen-config/src/a.rs", "use std::net::IpAddr;", 0);
    check("crates/yumen-config/src/a.rs", "use std::net::TcpStream;", 1);
}

#[test]
fn files_without_a_module_declaration_are_found() {
    let check = |path: &str, parent: &str, text: &str, findings: usize| {
        let files = [(path, ""), (parent, text), ("crates/x/src/lib.rs", "mod a;")];
        assert_eq!(modules::check(&Sources::of(&files)).len(), findings, "{path}: {parent}: {text}");
    };
    check("crates/x/src/a/tests.rs", "crates/x/src/a.rs", "#[cfg(test)]\nmod tests;\n", 0);
    check("crates/x/src/a/tests.rs", "crates/x/src/a.rs", "mod my_tests;\n// mod tests;\n", 1);
    check("crates/x/src/a/b.rs", "crates/x/src/a/mod.rs", "pub(crate) mod b;", 0);
    check("crates/y/src/a.rs", "crates/y/src/main.rs", "mod a;", 0);
    check("crates/y/src/a.rs", "crates/y/src/main.rs", "", 1);
    check("crates/y/tests/it/a.rs", "crates/y/tests/it/main.rs", "", 0);
}

#[test]
fn functions_are_measured_from_signature_to_brace() {
    let text = "impl A {\n    pub fn one(&self) {\n        two();\n    }\n\n    fn declared(&self);\n\n    \
                async fn three(\n        a: u8,\n    ) -> u8 {\n        a\n    }\n}\n\nfn four() {}\n";
    assert_eq!(sizes::functions(text), [("one", 3), ("declared", 1), ("three", 5), ("four", 1)]);
}

#[test]
fn long_things_fail_unless_listed_and_lists_only_shrink() {
    let function = |lines: usize| format!("fn long() {{\n{}}}\n", "    a();\n".repeat(lines - 2));
    let check = |lines: usize, listed: &str, expected: &str| {
        let text = function(lines);
        let files = [("crates/x/src/a.rs", text.as_str()), ("xtask/long.txt", listed)];
        let findings = sizes::check(&Sources::of(&files)).join("\n");
        assert!(
            if expected.is_empty() { findings.is_empty() } else { findings.contains(expected) },
            "{findings}"
        );
    };
    check(70, "", "");
    check(71, "", "71 lines; split it");
    check(71, "crates/x/src/a.rs long 71\n", "");
    check(72, "crates/x/src/a.rs long 71\n", "72 lines; split it (grew from 71)");
    check(71, "crates/x/src/a.rs long 90\n", "shrank from 90 to 71");
    check(70, "crates/x/src/a.rs long 71\n", "no longer an exception");
}

#[test]
fn style_figures_are_counted_outside_tests() {
    let check = |text: &str, expected: &[&str]| {
        let found = crate::style::measure(&Sources::of(&[("crates/x/src/a.rs", text)]));
        let found: Vec<String> =
            found.iter().map(|(subject, number)| format!("{subject} {number}")).collect();
        assert_eq!(found, expected, "{text}");
    };
    check("struct PoolKey { a: bool, b: Cell<bool>, c: u8 }", &[]);
    check("struct PoolKey { a: bool, b: Cell<bool>, c: bool }", &["bools PoolKey 3"]);
    let wide: String = (0..16).map(|i| format!("f{i}: u8,")).collect();
    check(&format!("struct PoolKey {{ {wide} }}"), &["fields PoolKey 16"]);
    check("enum Answer {}\nmod m { pub struct Answer; }", &["one-word Answer 2", "shared-name Answer 2"]);
    check(
        "fn f(at: (u8, u8)) {} impl A { fn g(&self, at: &(u8, u8)) {} fn h(&self, a: ()) {} }",
        &["tuple-parameter crates/x/src/a.rs f 1", "tuple-parameter crates/x/src/a.rs g 1"],
    );
    check("/// What it is.\n// Nobody whatever\nfn f() { let what = \"// told\"; }", &["words crates/x 2"]);
    check("#[cfg(test)] struct Answer;\n#[cfg(test)] mod m { fn f(at: (u8, u8)) {} }", &[]);
}

#[test]
fn module_cycles_fail_unless_listed_and_lists_only_shrink() {
    let check = |files: &[(&str, &str)], listed: &str, expected: &str| {
        let rest = [("crates/x/Cargo.toml", ""), ("xtask/cycles.txt", listed)];
        let findings = cycles::check(&Sources::of(&[files, &rest].concat())).join("\n");
        assert!(
            if expected.is_empty() { findings.is_empty() } else { findings.contains(expected) },
            "{findings}"
        );
    };
    let [a, b, c] = ["crates/x/src/a.rs", "crates/x/src/b/inner.rs", "crates/x/src/c.rs"];
    let root = ("crates/x/src/lib.rs", "pub use a::{A, E as F};\n#[cfg(test)]\nmod t;\n");
    let pair = [root, (c, ""), (b, "let a = crate::A;\n"), (a, "use crate::{b::{inner, c}, z};\n")];
    check(&pair, "", "crates/x: modules a b form a cycle; remove one of: a -> b (crates/x/src/a.rs), b -> a");
    check(&pair, "crates/x: a b\n", "");
    check(&pair, "# Cycles.\ncrates/x: a b c\n", "shrank to a b");
    check(&pair[..3], "crates/x: a b\n", "modules a b form no cycle");
    let paths = [(a, "use crate::b;\n"), (b, "let a = crate::a::A;\n")];
    check(
        &paths,
        "crates/x: a b\n",
        "crates/x: paths of a b form a cycle in xtask/cycles.txt; remove one of: a -> b",
    );
    // Names that the root exports, paths through `super`, and cycles of more than two modules.
    check(&[root, (a, "use crate::c::C;"), (b, "use crate::F;"), (c, "use super::b;")], "", "modules a b c");
    check(&[(a, "use super::b;"), (b, "use super::super::a;")], "", "modules a b");
    // Other paths, comments and code for tests.
    check(
        &[(a, "use crate::b;"), (b, "use super::a; use b::crate::a; use crate::b::a;\n// crate::a\n")],
        "",
        "",
    );
    check(&[(a, "use crate::b;"), (b, "#[cfg(test)]\nmod tests {\n    use crate::a;\n}\n")], "", "");
    check(&[root, (a, "use crate::t;"), ("crates/x/src/t.rs", "use crate::a;")], "", "");
    check(&[(a, "use crate::b;"), ("crates/x/src/b/tests.rs", "use crate::a;")], "", "");
}

#[test]
fn licences_are_spdx_expressions() {
    let allowed = ["MIT", "Apache-2.0", "Unicode-3.0", "Apache-2.0 WITH LLVM-exception"];
    let check = |expression: &str, met: bool| assert_eq!(licensed(expression, &allowed), met, "{expression}");
    check("MIT", true);
    check("MIT/Apache-2.0", true);
    check("GPL-3.0 OR MIT", true);
    check("GPL-3.0 AND MIT", false);
    check("(MIT OR GPL-3.0) AND Unicode-3.0", true);
    check("Apache-2.0 WITH LLVM-exception OR GPL-3.0", true);
    check("MIT WITH Unheard-exception", false);
    check("MIT+", true);
    check("", false);
    check("(MIT", false);
}

#[test]
fn lists_are_read_line_by_line() {
    let text = "[licenses]\nallow = [\n    \"MIT\",\n    # not this\n    \"ISC\",\n]\nskip = [\n    { crate = \
                \"a@1\", reason = \"b\" },\n]\n";
    assert_eq!(list(text, "allow"), ["MIT", "ISC"]);
    assert_eq!(list(text, "skip"), ["a"]);
}

#[test]
fn prose_is_separated_from_fenced_code() {
    let text = "A `Name` and\n```\n`Not` [x](y.md)\n```\n[a](b.md#c) [d](https://e) `yumen-http`";
    assert_eq!(backticked(text).collect::<Vec<_>>(), ["Name", "yumen-http"]);
    assert_eq!(links(text).collect::<Vec<_>>(), ["b.md"]);
    assert!(anchors("# A `b`: c-d?\n```\n# no\n```").iter().eq(["a-b-c-d"]));
}

#[test]
fn files_that_name_the_workplace_are_found() {
    let path = format!("see {}{}x", "/wo", "rk/");
    assert_eq!(check_bans(&Sources::of(&[("a.md", &path)])).len(), 1);
    assert_eq!(check_bans(&Sources::of(&[("a.md", "network/ is fine")])).len(), 0);
}

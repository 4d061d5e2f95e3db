//! Each kind of difference is found, and comments and prose are free.

use super::*;

const ORIGINAL: &str = "# Title\n\nProse with `setting`.\n\n```sh\nyumen run    # comment\n```\n\n## Section\n\n| a | b |\n|---|---|\n";

fn check_page(translated: &str, expected: &str) {
    let files = [("docs/guides/1-a.md", ORIGINAL), ("docs/zh/guides/1-a.md", translated)];
    let findings = check(&Sources::of(&files)).join("\n");
    match expected {
        "" => assert_eq!(findings, "", "{translated}"),
        _ => assert!(findings.contains(expected), "{translated}:\n{findings}"),
    }
}

#[test]
fn prose_and_comments_are_free() {
    check_page(ORIGINAL, "");
    let translated =
        ORIGINAL.replace("Prose with", "文字").replace("# comment", "# 注释").replace("Section", "章节");
    check_page(&translated, "");
}

#[test]
fn sections_commands_rows_and_settings_are_compared() {
    check_page(&ORIGINAL.replace("## Section", "### Section"), "section 2 differs");
    check_page(&ORIGINAL.replace("## Section\n", ""), "section 2 differs");
    check_page(&ORIGINAL.replace("yumen run", "yumen runs"), "block 1 differs");
    check_page(&ORIGINAL.replace("| a | b |", "| a |"), "table row 1 differs");
    check_page(&ORIGINAL.replace("`setting`", "`设置`"), "missing [\"setting\"], added [\"设置\"]");
}

#[test]
fn a_translation_has_an_original() {
    let files = [("docs/zh/guides/9-gone.md", "")];
    assert_eq!(check(&Sources::of(&files)).len(), 1);
}

#[test]
fn the_list_names_every_guide_and_its_language() {
    let check_list = |index: &str, findings: usize| {
        let files = [
            ("docs/guides/1-a.md", "# A\n"),
            ("docs/guides/2-b.md", "# B\n"),
            ("docs/zh/guides/1-a.md", "# 甲\n"),
            ("docs/zh/README.md", index),
        ];
        let found = check(&Sources::of(&files));
        assert_eq!(found.len(), findings, "{index}: {found:?}");
    };
    check_list("- [甲](guides/1-a.md)\n- [B](../guides/2-b.md)（英文）\n", 0);
    check_list("- [甲](guides/1-a.md)\n- [B](../guides/2-b.md)\n", 1);
    check_list("- [A](../guides/1-a.md)（英文）\n- [B](../guides/2-b.md)（英文）\n", 1);
    check_list("- [甲](guides/1-a.md)\n", 1);
}

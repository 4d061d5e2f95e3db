//! Characters that a reader of a name does not see.

/// Format characters of Unicode (general category Cf), such as those that reverse the direction of text.
const FORMAT_CHARS: [(char, char); 21] = [
    ('\u{ad}', '\u{ad}'),
    ('\u{600}', '\u{605}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{6dd}', '\u{6dd}'),
    ('\u{70f}', '\u{70f}'),
    ('\u{890}', '\u{891}'),
    ('\u{8e2}', '\u{8e2}'),
    ('\u{180e}', '\u{180e}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{202a}', '\u{202e}'),
    ('\u{2060}', '\u{2064}'),
    ('\u{2066}', '\u{206f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{fff9}', '\u{fffb}'),
    ('\u{110bd}', '\u{110bd}'),
    ('\u{110cd}', '\u{110cd}'),
    ('\u{13430}', '\u{1343f}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0001}', '\u{e0001}'),
    ('\u{e0020}', '\u{e007f}'),
];

/// Whether a character is a control or format character, or separates lines or paragraphs (Cc, Cf, Zl, Zp).
pub fn is_invisible(character: char) -> bool {
    let is_format = || FORMAT_CHARS.iter().any(|(first, last)| (*first..=*last).contains(&character));
    character.is_control() || matches!(character, '\u{2028}' | '\u{2029}') || is_format()
}

#[cfg(test)]
mod tests {
    use super::is_invisible;

    #[test]
    fn letters_and_spaces_are_visible_and_format_characters_are_not() {
        for character in
            "\n\u{7f}\u{85}\u{ad}\u{200b}\u{200d}\u{202e}\u{2028}\u{2029}\u{2066}\u{feff}\u{e0041}".chars()
        {
            assert!(is_invisible(character), "{character:?}");
        }
        assert!(!"aé 名\u{a0}\u{301}🙂\u{202f}".chars().any(is_invisible));
        assert!(super::FORMAT_CHARS.is_sorted());
    }
}

//! "Did you mean": the closest known name.

/// The known name nearest to `written`, within an edit distance of about a third of its length and at least
/// 1. Letters count as equal in any case.
///
/// Otherwise the only known name of which `written` is a word, such as `time_window` for `window`.
pub fn closest<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let known: Vec<&str> = known.into_iter().collect();
    nearest(written, &known).or_else(|| {
        let has_word = |name: &&&str| name.split(['_', '-']).any(|word| word.eq_ignore_ascii_case(written));
        let mut named = known.iter().filter(has_word);
        // Words of one or two letters are in too many names.
        let only = named.next().filter(|_| written.len() > 2 && named.next().is_none());
        only.copied()
    })
}

fn nearest<'a>(written: &str, known: &[&'a str]) -> Option<&'a str> {
    // One typo in a short name, about one in three characters in a longer one.
    let allowed = ((written.chars().count() + 1) / 3).max(1);
    let written = folded(written);
    known
        .iter()
        .map(|name| {
            let known = folded(name);
            // A doubled last letter is likelier than a substitution, and that likelier than a missing letter.
            let is_doubled = written
                .split_last()
                .is_some_and(|(last, rest)| rest == known.as_slice() && rest.last() == Some(last));
            let difference = if is_doubled { 0 } else { 1 + known.len().abs_diff(written.len()) };
            (distance(&written, &known), difference, *name)
        })
        .filter(|(distance, ..)| *distance <= allowed)
        .min_by_key(|(distance, difference, _)| (*distance, *difference))
        .map(|(.., name)| name)
}

/// A hint that names the closest known name.
pub fn suggestion<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    closest(written, known).map(|name| format!("did you mean \"{name}\"?"))
}

/// Whether `written` is a name, or the name with one slip; a name of 8 letters or more may have two. Letters count as
/// equal in any case.
pub fn is_slip_of(written: &str, name: &str) -> bool {
    let (written, name) = (folded(written), folded(name));
    let slips = if name.len() < 8 { 1 } else { 2 };
    // Most names differ in length, which is cheaper to compare.
    written.len().abs_diff(name.len()) <= slips && distance(&written, &name) <= slips
}

fn folded(name: &str) -> Vec<char> {
    name.chars().map(|c| c.to_ascii_lowercase()).collect()
}

/// Damerau-Levenshtein distance (optimal string alignment): insertions, deletions, substitutions, and swaps of
/// neighbours.
fn distance(a: &[char], b: &[char]) -> usize {
    // A swap looks two rows back in the matrix of distances; older rows are not kept.
    let (mut before, mut above) = (vec![0; b.len() + 1], Vec::new());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.iter().enumerate() {
        above.clone_from(&row);
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let substituted = above[j] + usize::from(from != to);
            row[j + 1] = substituted.min(above[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a[i - 1] == *to && b[j - 1] == *from {
                row[j + 1] = row[j + 1].min(before[j - 1] + 1);
            }
        }
        before.clone_from(&above);
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::closest;

    #[test]
    fn the_closest_name_is_one_slip_away() {
        const KNOWN: [&str; 8] =
            ["limit-count", "limit-conn", "time_window", "header", "hosts", "host", "uri", "count"];
        let check = |written: &str, expected: Option<&str>| {
            assert_eq!(closest(written, KNOWN), expected, "{written}");
        };
        check("limit-cuont", Some("limit-count"));
        check("limit-con", Some("limit-conn"));
        check("time_windw", Some("time_window"));
        check("timeWindow", Some("time_window"));
        check("heder", Some("header"));
        check("hostz", Some("hosts"));
        check("hots", Some("host"));
        // A swap of neighbours is one slip, so that even short names are found.
        check("rui", Some("uri"));
        check("URI", Some("uri"));
        assert_eq!(closest("urii", ["uris", "uri"]), Some("uri"));
        check("cuont", Some("count"));
        check("window", Some("time_window"));
        // Two names have the word.
        check("limit", None);
        check("plugins", None);
        check("x", None);
    }
}

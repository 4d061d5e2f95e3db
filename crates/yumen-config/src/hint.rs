//! "Did you mean": the closest known name.

/// The known name nearest to `written`, within an edit distance of about a third of its length and at least
/// 1.
pub fn closest<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // One typo in a short name, about one in three characters in a longer one.
    let allowed = ((written.chars().count() + 1) / 3).max(1);
    known
        .into_iter()
        .map(|name| (distance(written, name), name))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Edit distance in which two swapped neighbours count once, as in `cuont` (optimal string alignment).
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    // Three rows of the matrix of distances: the current one, the one above, and the one above that.
    let (mut above, mut upper): (Vec<usize>, Vec<usize>) = ((0..=b.len()).collect(), Vec::new());
    for (i, from) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, to) in b.iter().enumerate() {
            let substituted = above[j] + usize::from(from != to);
            let mut least = substituted.min(above[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *from == b[j - 1] && a[i - 1] == *to {
                least = least.min(upper[j - 1] + 1);
            }
            row.push(least);
        }
        upper = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

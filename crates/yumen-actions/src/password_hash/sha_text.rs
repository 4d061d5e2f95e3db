//! The text form of SHA-crypt: `$5$rounds=5000$salt$sum` and `$6$…`.

use sha_crypt::Params;

use super::md5_crypt::push_digits;

/// The most rounds of a hash; the default is 5000.
const ROUNDS_MAX: u32 = 1_000_000;

/// A hash without its sum.
struct HashHead<'t> {
    /// Up to the dollar sign before the sum.
    text: &'t str,
    salt: &'t str,
    rounds: Option<u32>,
}

fn head_of(text: &str) -> Option<HashHead<'_>> {
    let (head, _) = text.rsplit_once('$')?;
    let rest = head.get(3..)?;
    let (rounds, salt) = match rest.strip_prefix("rounds=") {
        Some(rest) => {
            let (rounds, salt) = rest.split_once('$')?;
            (Some(rounds.parse().ok()?), salt)
        }
        None => (None, rest),
    };
    Some(HashHead { text: head, salt, rounds })
}

/// Whether a hash has all its parts, and rounds that are worth their time.
pub(super) fn is_whole(text: &str) -> bool {
    let sum = text.rsplit_once('$').map_or(0, |(_, sum)| sum.len());
    let wanted = if text.starts_with("$5$") { 43 } else { 86 };
    sum == wanted && head_of(text).is_some_and(|head| head.rounds.is_none_or(|rounds| rounds <= ROUNDS_MAX))
}

/// The rounds of a hash.
pub(super) fn rounds(text: &str) -> usize {
    head_of(text).and_then(|head| head.rounds).unwrap_or(Params::RECOMMENDED_ROUNDS) as usize
}

/// The hash of a password with the salt and rounds of `text`.
pub(super) fn hash(password: &[u8], text: &str) -> Option<String> {
    let head = head_of(text)?;
    let params = match head.rounds {
        Some(rounds) => Params::new(rounds.max(Params::ROUNDS_MIN)).ok()?,
        None => Params::new(Params::RECOMMENDED_ROUNDS).ok()?,
    };
    let mut out = format!("{}$", head.text);
    if text.starts_with("$5$") {
        let sum = sha_crypt::sha256_crypt(password, head.salt.as_bytes(), params);
        // The order of the reference implementation: three interleaved thirds, each group rotated.
        let mut at = (0, 10, 20);
        for _ in 0..10 {
            push_digits([sum[at.0], sum[at.1], sum[at.2]], 4, &mut out);
            at = (at.2 + 1, at.0 + 1, at.1 + 1);
            at = (at.0 % 30, at.1 % 30, at.2 % 30);
        }
        push_digits([0, sum[31], sum[30]], 3, &mut out);
    } else {
        let sum = sha_crypt::sha512_crypt(password, head.salt.as_bytes(), params);
        let mut at = (0, 21, 42);
        for _ in 0..21 {
            push_digits([sum[at.0], sum[at.1], sum[at.2]], 4, &mut out);
            at = (at.1 + 1, at.2 + 1, at.0 + 1);
        }
        push_digits([0, 0, sum[63]], 2, &mut out);
    }
    Some(out)
}

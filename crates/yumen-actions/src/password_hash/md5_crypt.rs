//! MD5-crypt: `$1$salt$sum`, and `$apr1$…` of htpasswd.

use md5::{Digest, Md5};

/// The digits of crypt.
const DIGITS: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Longest salt.
const SALT_BYTES_MAX: usize = 8;

/// Appends three bytes, the most significant first, as digits of six bits, the least significant first.
pub(super) fn push_digits(bytes: [u8; 3], count: usize, out: &mut String) {
    let mut bits = u32::from(bytes[0]) << 16 | u32::from(bytes[1]) << 8 | u32::from(bytes[2]);
    for _ in 0..count {
        out.push(char::from(DIGITS[(bits & 63) as usize]));
        bits >>= 6;
    }
}

fn md5(parts: &[&[u8]]) -> [u8; 16] {
    let mut hasher = Md5::new();
    parts.iter().for_each(|part| hasher.update(part));
    hasher.finalize().into()
}

/// The hash of a password.
pub(super) fn hash(password: &[u8], salt: &[u8], magic: &str) -> String {
    let salt = &salt[..salt.len().min(SALT_BYTES_MAX)];
    let alternate = md5(&[password, salt, password]);
    let mut hasher = Md5::new();
    for part in [password, magic.as_bytes(), salt] {
        hasher.update(part);
    }
    for at in (0..password.len()).step_by(16) {
        hasher.update(&alternate[..16.min(password.len() - at)]);
    }
    let mut bits = password.len();
    while bits > 0 {
        hasher.update(if bits & 1 == 1 { &[0][..] } else { &password[..1] });
        bits >>= 1;
    }
    let mut sum: [u8; 16] = hasher.finalize().into();
    for round in 0..1000 {
        let is_odd = round % 2 == 1;
        let begin = if is_odd { password } else { &sum };
        let salt = if round % 3 == 0 { &[][..] } else { salt };
        let middle = if round % 7 == 0 { &[][..] } else { password };
        let end = if is_odd { &sum } else { password };
        sum = md5(&[begin, salt, middle, end]);
    }
    let mut out = format!("{magic}{}$", String::from_utf8_lossy(salt));
    for at in 0..5 {
        let last = if at == 4 { 5 } else { at + 12 };
        push_digits([sum[at], sum[at + 6], sum[last]], 4, &mut out);
    }
    push_digits([0, 0, sum[11]], 2, &mut out);
    out
}

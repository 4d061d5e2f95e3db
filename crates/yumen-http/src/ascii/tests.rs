//! Every byte at every position of values longer than a word.

use super::{is_value, value_len};

#[test]
fn a_value_ends_at_the_first_control_wherever_it_stands() {
    for length in [0, 1, 7, 8, 9, 31, 32, 33, 50, 70] {
        for at in 0..length {
            for byte in 0..=255u8 {
                let mut value = vec![b'a'; length];
                value[at] = byte;
                // A tab or bytes beyond ASCII before the byte must not hide it.
                value[at / 2] = if at > 0 && at % 2 == 0 { b'\t' } else { value[at / 2] };
                value[at / 3] = if at > 2 { 0xff } else { value[at / 3] };
                let is_control = (byte < 0x20 && byte != b'\t') || byte == 0x7f;
                let expected = if is_control { at } else { length };
                assert_eq!(value_len(&value), expected, "{byte} at {at} of {length}");
                assert_eq!(is_value(&value), !is_control, "{byte} at {at} of {length}");
            }
        }
    }
}

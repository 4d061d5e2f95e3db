use super::*;

/// The number of heads of this length that are accepted.
fn taken(bytes: usize, bytes_max: usize) -> usize {
    let mut interim = InterimCount::default();
    (0..100).take_while(|_| interim.count(bytes, bytes_max).is_ok()).count()
}

#[test]
fn interim_answers_are_few_and_together_no_longer_than_a_head() {
    assert_eq!(taken(25, 65_536), 16);
    assert_eq!(taken(4096, 65_536), 16);
    assert_eq!(taken(8192, 65_536), 8);
    assert_eq!(taken(65_536, 65_536), 1);
    assert_eq!(taken(65_537, 65_536), 0);
}

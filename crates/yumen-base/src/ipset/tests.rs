use super::*;

fn check(entries: &[&str], inside: &[&str], outside: &[&str]) {
    let set = IpSet::parse(entries.iter().copied()).expect("the entries are right");
    let holds = |text: &str| set.contains(text.parse().expect("an address"));
    for address in inside {
        assert!(holds(address), "{address} should be in {entries:?}");
    }
    for address in outside {
        assert!(!holds(address), "{address} should not be in {entries:?}");
    }
}

#[test]
fn blocks_contain_their_addresses_only() {
    check(&["127.0.0.1"], &["127.0.0.1", "::ffff:127.0.0.1"], &["127.0.0.0", "127.0.0.2", "::1"]);
    check(&["10.0.0.0/8"], &["10.0.0.0", "10.255.255.255"], &["9.255.255.255", "11.0.0.0"]);
    check(&["113.74.26.106/24"], &["113.74.26.0", "113.74.26.255"], &["113.74.27.0"]);
    check(&["0.0.0.0/0"], &["0.0.0.0", "255.255.255.255"], &["::", "2001::1"]);
    check(&["::/0"], &["::", "2001::1", "ffff::"], &["1.2.3.4"]);
    check(&["1.2.3.4/32", "2001:db8::/128"], &["1.2.3.4", "2001:db8::"], &["1.2.3.5", "2001:db8::1"]);
    check(&["2001:db8::/32"], &["2001:db8:ffff::1"], &["2001:db7:ffff::", "2001:db9::"]);
    check(&["10.1.2.3/8"], &["10.9.9.9", "::ffff:10.1.1.1"], &["11.1.2.3", "::a01:101"]);
    check(&["192.168.0.0/16"], &["192.168.3.4"], &["192.169.0.0"]);
    check(&["2001:db8::/33"], &["2001:db8:7fff::1"], &["2001:db8:8000::1"]);
    check(&["fe80::1/64"], &["fe80::ffff:ffff:ffff:ffff"], &["fe80:0:0:1::"]);
    check(&[], &[], &["127.0.0.1", "::1"]);
}

#[test]
fn mapped_addresses_are_the_ipv4_ones_they_stand_for() {
    check(&["::ffff:10.1.0.0/112"], &["10.1.255.255", "::ffff:10.1.2.3"], &["10.2.0.0"]);
    check(&["::ffff:1.2.3.4"], &["1.2.3.4"], &["::1.2.3.4"]);
    check(&["::ffff:0:0/96"], &["1.2.3.4"], &["::1"]);
}

#[test]
fn overlapping_and_nested_blocks_are_one() {
    let set = IpSet::parse(["10.0.0.0/8", "10.1.0.0/16", "10.0.0.0/9", "11.0.0.1"]).expect("right");
    assert_eq!(set, IpSet::parse(["11.0.0.1", "10.0.0.0/8"]).expect("right"));
    check(&["10.0.0.0/8", "10.1.0.0/16"], &["10.200.0.1"], &["11.0.0.0"]);
}

#[test]
fn families_do_not_hide_each_other() {
    let both = ["10.0.0.0/8", "2001:db8::/32"];
    check(&both, &["10.1.2.3", "::ffff:10.1.2.3", "2001:db8::5"], &["11.0.0.0", "2001:db9::5", "::a01:203"]);
    check(&["2001:db8::1", "2001:db8::3"], &["2001:db8::1", "2001:db8::3"], &["2001:db8::2", "0.0.0.1"]);
}

#[test]
fn a_set_of_one_block_is_small() {
    assert_eq!(size_of::<IpSet>(), 16);
    for (entries, one) in [
        (&[][..], true),
        (&["10.0.0.1"], true),
        (&["10.0.0.1", "10.0.0.1", "::ffff:10.0.0.1"], true),
        (&["10.0.0.0/8", "10.1.0.0/16"], true),
        (&["2001:db8::/32"], true),
        (&["10.0.0.1", "10.0.0.3"], false),
        (&["10.0.0.1", "::1"], false),
    ] {
        let set = IpSet::parse(entries.iter().copied()).expect("right");
        assert_eq!(!matches!(set.0, IpSetRepr::Many(_)), one, "{entries:?}");
        assert_eq!(set.is_empty(), entries.is_empty(), "{entries:?}");
    }
}

#[test]
fn a_long_list_agrees_with_asking_every_entry() {
    let entries: Vec<String> =
        (0..2000u32).map(|at| format!("10.{}.{}.0/{}", at % 256, at / 8, 20 + at % 13)).collect();
    let set = IpSet::parse(entries.iter().map(String::as_str)).expect("right");
    let single: Vec<IpSet> =
        entries.iter().map(|entry| IpSet::parse([entry.as_str()]).expect("right")).collect();
    for at in 0..20_000u32 {
        let address = IpAddr::from((0x0a00_0000 + at.wrapping_mul(839)).to_be_bytes());
        assert_eq!(set.contains(address), single.iter().any(|one| one.contains(address)), "{address}");
    }
}

#[test]
fn invalid_address_is_named() {
    for bad in [
        "",
        "1.2.3",
        "1.2.3.256",
        "1.2.3.4/33",
        "1.2.3.4/",
        "1.2.3.4/+8",
        "::/129",
        ":::",
        "a",
        "1.2.3.4/8/9",
        "/8",
        " 10.0.0.1",
        "10.0.0.1 ",
    ] {
        assert_eq!(IpSet::parse(["1.1.1.1", bad]), Err(format!("invalid ip address: {bad}")));
    }
}

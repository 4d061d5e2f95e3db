use yumen_plugin::{MirrorTarget, UpstreamSlot};

use super::target;

#[test]
fn a_mirror_may_be_asked_for_another_path() {
    let check = |path: Option<&str>, is_prefix: bool, original: &str, expected: &str| {
        let mirror =
            MirrorTarget { upstream: UpstreamSlot::default(), path: path.map(Into::into), is_prefix };
        assert_eq!(String::from_utf8_lossy(&target(original.as_bytes(), &mirror)), expected);
    };
    check(None, false, "/a?b=c", "/a?b=c");
    check(Some("/m"), false, "/a?b=c", "/m?b=c");
    check(Some("/m"), false, "/a", "/m");
    check(Some("/m"), true, "/a?b=c", "/m/a?b=c");
}

use hyper::HeaderMap;
use hyper::header::{CACHE_CONTROL, HeaderValue};

use super::max_age_s;

#[test]
fn the_lifetime_is_read_from_cache_control() {
    for (fields, expected) in [
        (&["max-age=60"][..], Some(60)),
        (&["public, Max-Age=\"61\", must-revalidate"], Some(61)),
        (&["no-store", "max-age=62"], Some(62)),
        (&["s-maxage=5"], None),
        (&["max-age=x"], None),
        (&["max-age=99999999999"], None),
        (&[], None),
    ] {
        let mut headers = HeaderMap::new();
        for field in fields {
            headers.append(CACHE_CONTROL, HeaderValue::from_static(field));
        }
        assert_eq!(max_age_s(&headers), expected, "{fields:?}");
    }
}

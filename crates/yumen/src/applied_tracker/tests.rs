//! A revision is applied when this process and its predecessor serve it, or this process alone if there is
//! none.

use super::*;

const SOON: Duration = Duration::from_millis(1);

#[test]
fn a_process_alone_has_applied_what_it_has_published() {
    let reach = AppliedTracker::new(true);
    let number = reach.published_here(Revision(7));
    assert_eq!(*reach.applied().borrow(), Revision(7));
    assert!(reach.is_everywhere_within(number, SOON));
    assert_eq!(reach.next_after(number), None);
}

#[test]
fn what_the_process_before_has_not_followed_is_not_applied() {
    let reach = AppliedTracker::new(false);
    let first = reach.published_here(Revision(7));
    assert_eq!((*reach.applied().borrow(), reach.revision()), (Revision(0), Revision(7)));
    let news = reach.next_after(0).unwrap();
    assert_eq!(news, (first, Revision(7)));
    let second = reach.published_here(Revision(8));
    reach.applied_everywhere(news);
    assert_eq!(*reach.applied().borrow(), Revision(7));
    assert!(reach.is_everywhere_within(first, SOON) && !reach.is_everywhere_within(second, SOON));
    // The order of publication counts, not the revision: a restored backup may have a lower one.
    let third = reach.published_here(Revision(3));
    reach.applied_everywhere((third, Revision(3)));
    assert_eq!(*reach.applied().borrow(), Revision(3));
    reach.applied_everywhere((second, Revision(8)));
    assert_eq!(*reach.applied().borrow(), Revision(3));
}

#[test]
fn a_process_before_that_has_gone_is_waited_for_no_more() {
    let reach = AppliedTracker::new(false);
    let number = reach.published_here(Revision(7));
    reach.go_on_alone();
    assert_eq!(*reach.applied().borrow(), Revision(7));
    assert!(reach.is_everywhere_within(number, SOON));
    assert_eq!(reach.next_after(0), None);
}

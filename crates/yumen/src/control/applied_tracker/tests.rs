//! A revision is applied when this process and its predecessor serve it, or this process alone if there is
//! none.

use super::*;

#[test]
fn a_process_without_predecessor_applies_by_publishing() {
    let tracker = AppliedTracker::alone();
    let first = tracker.record_publication(Revision(7));
    assert_eq!(*tracker.applied().borrow(), Revision(7));
    assert_eq!(tracker.next_after(first.number), None);
}

#[test]
fn a_publication_is_applied_once_the_predecessor_serves_it() {
    let tracker = AppliedTracker::with_predecessor();
    let first = tracker.record_publication(Revision(7));
    assert_eq!((*tracker.applied().borrow(), tracker.revision()), (Revision(0), Revision(7)));
    assert_eq!(tracker.next_after(0), Some(first));
    let second = tracker.record_publication(Revision(8));
    tracker.record_applied(first);
    assert_eq!(*tracker.applied().borrow(), Revision(7));
    // The order of publication counts, not the revision: a restored backup may have a lower one.
    let third = tracker.record_publication(Revision(3));
    tracker.record_applied(third);
    assert_eq!(*tracker.applied().borrow(), Revision(3));
    tracker.record_applied(second);
    assert_eq!(*tracker.applied().borrow(), Revision(3));
}

#[test]
fn the_end_of_the_predecessor_applies_the_newest_publication() {
    let tracker = AppliedTracker::with_predecessor();
    tracker.record_publication(Revision(7));
    tracker.predecessor_ended();
    assert_eq!(*tracker.applied().borrow(), Revision(7));
    assert_eq!(tracker.next_after(0), None);
}

#[test]
fn a_successor_starts_at_the_revision_of_its_predecessor() {
    let tracker = AppliedTracker::with_predecessor();
    tracker.start_at(Revision(5));
    assert_eq!(*tracker.applied().borrow(), Revision(5));
}

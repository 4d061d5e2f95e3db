use super::*;
use crate::test_kit::TestDir;

#[test]
fn a_directory_that_is_given_back_is_free_though_a_new_process_has_its_lock_open() {
    let dir = TestDir::new();
    let first = DataDir::lock(dir.path()).unwrap();
    assert!(matches!(DataDir::lock(dir.path()), Err(StoreError::InUse(_))));
    let inherited = first.lock.try_clone().unwrap();
    drop(first);
    assert!(DataDir::lock(dir.path()).is_ok());
    drop(inherited);
}

use super::{ROWS_MAX, UsageTable};

fn requests(table: &UsageTable, id: &str) -> Option<u64> {
    table.rows.get(id).map(|row| row.usage.requests)
}

#[test]
fn the_row_unused_longest_makes_room_and_is_kept_in_the_rest() {
    let mut table = UsageTable::default();
    for id in 0..ROWS_MAX {
        table.at(&id.to_string(), "").requests += 2;
    }
    table.at("0", "").requests += 1;
    table.at("new", "").requests += 1;
    assert_eq!(table.rows.len(), ROWS_MAX);
    assert_eq!(
        (requests(&table, "0"), requests(&table, "1"), requests(&table, "new")),
        (Some(3), None, Some(1))
    );
    assert_eq!(table.rest.requests, 2);
}

#[test]
fn nothing_is_missing_from_the_sum() {
    let mut table = UsageTable::default();
    for at in 0..5_000 {
        table.at(&(at * 7 % 2_000).to_string(), "").requests += 1;
    }
    let sum: u64 = table.rows.values().map(|row| row.usage.requests).sum();
    assert_eq!((sum + table.rest.requests, table.rows.len()), (5_000, ROWS_MAX));
}

#[test]
fn a_new_name_replaces_the_old() {
    let mut table = UsageTable::default();
    table.at("1", "old").requests += 1;
    table.at("1", "new").requests += 1;
    assert_eq!((&*table.rows["1"].name, requests(&table, "1")), ("new", Some(2)));
}

#[test]
fn tables_of_workers_add_up() {
    let (mut one, mut other) = (UsageTable::default(), UsageTable::default());
    one.at("1", "a").requests += 1;
    other.at("1", "a").requests += 2;
    other.at("2", "b").answers += 1;
    one.merge(&other);
    assert_eq!((requests(&one, "1"), one.rows["2"].usage.answers, &*one.rows["2"].name), (Some(3), 1, "b"));
}

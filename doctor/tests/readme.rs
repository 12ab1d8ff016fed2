//! The table of all checks has no row that nothing makes. Tests of the commands look for missing ones.

use std::{fs, path::Path};

/// All sources below a path that may name a check.
fn sources(path: &Path) -> String {
    if path.is_file() {
        return fs::read_to_string(path).unwrap();
    }
    let entries = fs::read_dir(path).unwrap().map(|entry| sources(&entry.unwrap().path()));
    entries.collect()
}

#[test]
fn every_row_of_the_table_is_a_check() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let sources: String = [
        "doctor/src",
        "lock-client/cli/src/doctor",
        "lab/src/doctor.rs",
        "storage-server/src/store",
    ]
    .map(|path| sources(&root.join(path)))
    .concat();
    let (_, table) = include_str!("../README.md").split_once("## The checks").unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix('|')?.split('|').nth(1));
    let names = rows.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let mut count = 0;
    for name in names {
        let is_made =
            ['"', '\''].iter().any(|quote| sources.contains(&format!("{quote}{name}{quote}")));
        assert!(is_made, "no check is called {name}");
        count += 1;
    }
    assert!(count > 50, "{count} names");
}

//! The commands on the page.

const PAGE: &str = include_str!("../../docs/bring-your-own-lock.md");

/// The shell commands under a heading: the block with this number, from 0.
pub(super) fn commands(heading: &str, number: usize) -> &'static str {
    let section = PAGE.split("\n## ").find(|section| section.starts_with(&format!("{heading}\n")));
    let section = section.unwrap_or_else(|| panic!("the page has no section {heading:?}"));
    let block = section.split("```sh\n").nth(number + 1);
    let block = block.unwrap_or_else(|| panic!("no block {number} under {heading:?}"));
    block.split("```").next().expect("a split has a first part")
}

/// A block that no test runs may rot.
#[test]
fn every_block_of_shell_commands_is_run_by_a_test() {
    let blocks = |section: &str| section.matches("```sh\n").count();
    let found: Vec<_> = PAGE
        .split("\n## ")
        .filter(|section| blocks(section) > 0)
        .map(|section| (section.lines().next().expect("a heading"), blocks(section)))
        .collect();
    let run = [
        ("Write under any lock", 1),
        ("etcd", 1),
        ("ZooKeeper", 1),
        ("Redis", 1),
        ("Redisson", 1),
        ("PostgreSQL", 2),
        ("When a token went back", 2),
    ];
    assert_eq!(found, run);
}

//! A disk that loses power keeps what was synced, and nothing else.

use std::{fs, path::PathBuf, process::Command};

use tempfile::TempDir;
use testbed::{Disk, Unsynced};

/// A disk with the file `old`, and the folder around it.
struct Fixture {
    disk: Disk,
    _folder: TempDir,
}

impl Fixture {
    fn new(old: &str) -> Self {
        let folder = TempDir::with_prefix("fenced-").unwrap();
        let seen = folder.path().join("disk");
        fs::create_dir(&seen).unwrap();
        fs::write(seen.join("old"), old).unwrap();
        Self { disk: Disk::new(&seen).unwrap(), _folder: folder }
    }

    /// Runs a script of processes that have the disk, in its folder.
    fn run(&self, script: &str) {
        let mut command = Command::new("sh");
        command.args(["-ec", script]).current_dir(self.disk.folder());
        self.disk.preload(&mut command);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn path(&self, name: &str) -> PathBuf {
        self.disk.folder().join(name)
    }

    fn content(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.path(name)).ok()
    }

    /// Checks the content of files, before and after all that was not synced is lost.
    #[track_caller]
    fn assert_loses<const N: usize>(&self, files: [(&str, Option<&str>, Option<&str>); N]) {
        for (name, before, _) in files {
            assert_eq!(self.content(name).as_deref(), before, "{name} before the loss");
        }
        self.disk.lose_power(Unsynced::Lost).unwrap();
        for (name, _, after) in files {
            assert_eq!(self.content(name).as_deref(), after, "{name} after the loss");
        }
    }
}

#[test]
fn synced_bytes_stay_and_later_ones_are_lost() {
    let fixture = Fixture::new("");
    fixture.run(
        "printf one >> old; sync old; printf two >> old
        printf one > new; sync --data new; printf two >> new
        printf one > never",
    );
    fixture.assert_loses([
        ("old", Some("onetwo"), Some("one")),
        ("new", Some("onetwo"), Some("one")),
        ("never", Some("one"), None),
    ]);
    // It is a disk for the next processes, too.
    fixture.run("printf two >> old; sync old; printf two >> new");
    fixture.assert_loses([
        ("old", Some("onetwo"), Some("onetwo")),
        ("new", Some("onetwo"), Some("one")),
    ]);
}

#[test]
fn overwritten_bytes_come_back_and_synced_ones_do_not() {
    let fixture = Fixture::new("aaaaaa");
    let overwrite = "dd of=old bs=1 status=none conv=notrunc";
    fixture.run(&format!("printf b | {overwrite} seek=1; sync old; printf c | {overwrite} seek=3"));
    fixture.assert_loses([("old", Some("abacaa"), Some("abaaaa"))]);
    // The file is open only for writing while it is synced.
    fixture.run(&format!("printf d | {overwrite},fsync seek=5"));
    fixture.assert_loses([("old", Some("abaaad"), Some("abaaad"))]);
}

#[test]
fn lengths_are_lost_until_they_are_synced() {
    let fixture = Fixture::new("abcd");
    fixture.run("truncate --size 2 old");
    fixture.assert_loses([("old", Some("ab"), Some("abcd"))]);
    fixture.run("truncate --size 2 old; sync old; truncate --size 3 old");
    fixture.assert_loses([("old", Some("ab\0"), Some("ab"))]);
    fixture.run("truncate --size 3 old; sync old; : > old");
    fixture.assert_loses([("old", Some(""), Some("ab\0"))]);
}

#[test]
fn deletions_and_new_names_need_a_sync_of_their_folder() {
    let fixture = Fixture::new("old");
    fixture.run("rm old");
    fixture.assert_loses([("old", None, Some("old"))]);
    fixture.run("rm old; printf new > new; mkdir folder; sync .");
    fixture.assert_loses([("old", None, None), ("new", Some("new"), Some(""))]);
    fixture.run("printf new > folder/new; sync folder/new");
    fixture.assert_loses([("folder/new", Some("new"), Some("new"))]);
}

#[test]
fn renamed_file_keeps_what_was_synced_of_it() {
    let fixture = Fixture::new("old");
    fixture.run("printf new > unsynced; mv unsynced old");
    fixture.assert_loses([("old", Some("new"), Some("old"))]);
    fixture.run("printf new > synced; sync synced; printf er >> synced; mv synced old");
    fixture.assert_loses([("old", Some("newer"), Some("new")), ("synced", None, None)]);
}

#[test]
fn other_folders_are_synced_as_ever() {
    let fixture = Fixture::new("old");
    fixture.run("printf new > ../outside; sync ../outside; mv ../outside inside; mv old ../old");
    assert_eq!(fixture.content("../old").as_deref(), Some("old"));
    fixture.assert_loses([("inside", Some("new"), None), ("old", None, Some("old"))]);
}

#[test]
fn by_chance_a_part_of_what_was_not_synced_survives() {
    const BLOCK: usize = 512;
    let fixture = Fixture::new(&"o".repeat(200 * BLOCK));
    let fill = |letter: char, file: &str| {
        format!("head -c {} /dev/zero | tr '\\0' {letter} {file}", 100 * BLOCK)
    };
    fixture.run(&format!(
        "{}; sync old; {}; {}",
        fill('s', "1<> old"),
        fill('u', ">> old"),
        fill('u', "> never")
    ));
    fixture.disk.lose_power(Unsynced::HalfLost).unwrap();
    let old = fixture.content("old").unwrap();
    let (synced, unsynced) = old.split_at(200 * BLOCK);
    let expected = "s".repeat(100 * BLOCK) + &"o".repeat(100 * BLOCK);
    assert!(synced == expected, "what was synced has changed");
    let survived = unsynced.as_bytes().chunks(BLOCK).filter(|block| block.contains(&b'u')).count();
    assert!((20..80).contains(&survived), "{survived} of 100 blocks survived");
    assert!(unsynced.bytes().all(|byte| matches!(byte, b'u' | 0)));
    assert_eq!(fixture.content("never"), None);
}

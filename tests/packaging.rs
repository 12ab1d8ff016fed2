//! What becomes a package or an image.

use std::{fs, os::unix::fs::symlink, process::Command};

use tempfile::TempDir;

use crate::programs::{LOCK_CLIENT, STORAGE_SERVER};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

#[test]
fn both_commands_have_manual_pages_and_completions() {
    let folder = TempDir::with_prefix("fenced-").unwrap();
    fs::create_dir(folder.path().join("bin")).unwrap();
    for (program, name) in [(STORAGE_SERVER, "storage-server"), (LOCK_CLIENT, "lock-client")] {
        symlink(program, folder.path().join("bin").join(name)).unwrap();
    }
    let pages = format!("{ROOT}/../ops/pages");
    assert!(Command::new(&pages).arg(folder.path()).status().unwrap().success());
    for (file, text) in [
        ("man/man1/storage-server.1", "storage\\-server \\- "),
        ("man/man1/lock-client.1", "lock\\-client \\- "),
        ("bash-completion/completions/storage-server", "--database-url"),
        ("bash-completion/completions/lock-client", "--locks"),
        ("zsh/site-functions/_storage-server", "#compdef storage-server"),
        ("zsh/site-functions/_lock-client", "#compdef lock-client"),
        ("fish/vendor_completions.d/storage-server.fish", "-l database-url"),
        ("fish/vendor_completions.d/lock-client.fish", "-l locks"),
    ] {
        let path = folder.path().join("share").join(file);
        let written = fs::read_to_string(path).unwrap();
        assert!(written.contains(text), "{file} has {text}");
    }

    // The control: without a command there are no pages.
    fs::remove_file(folder.path().join("bin/lock-client")).unwrap();
    assert!(!Command::new(&pages).arg(folder.path()).status().unwrap().success());
}

/// A variable that no option reads would be ignored in silence.
#[test]
fn variables_of_the_composition_are_options_of_the_server() {
    let help = Command::new(STORAGE_SERVER).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let is_option = |variable: &str| {
        ["=", "]"].iter().any(|end| help.contains(&format!("[env: {variable}{end}")))
    };
    let composition = fs::read_to_string(format!("{ROOT}/../compose.yaml")).unwrap();
    let lines = composition.lines().map(str::trim).filter(|line| line.starts_with("FENCED_"));
    let variables: Vec<_> = lines.filter_map(|line| line.split_once(':')).collect();
    assert_eq!(variables.len(), 3, "{variables:?}");
    for (variable, _) in variables {
        assert!(is_option(variable), "{variable}");
    }
    assert!(!is_option("FENCED_NO_SUCH_OPTION"), "the control");
}

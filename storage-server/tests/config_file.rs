//! The config file, `--check` and `config`.

use std::{fs, path::PathBuf, process::Command, time::Duration};

use tempfile::TempDir;
use testbed::{Postgres, StorageServer, process::Process};

use crate::database::Ran;
use crate::programs::{STORAGE_SERVER, storage_server};
use crate::wire;

const END_TIMEOUT: Duration = Duration::from_secs(30);

/// A folder in which the server is started, with a config file.
struct Folder(TempDir);

impl Folder {
    fn with_config(text: &str) -> Self {
        let folder = Self(TempDir::with_prefix("fenced-").unwrap());
        fs::write(folder.config(), text).unwrap();
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn config(&self) -> PathBuf {
        self.path("server.toml")
    }

    /// Runs a command that ends, with the config file.
    async fn run(&self, environment: &[(&str, &str)], arguments: &[&str]) -> Ran {
        let mut command = Command::new(STORAGE_SERVER);
        command.arg("--config").arg(self.config()).args(arguments);
        command.envs(environment.iter().copied()).current_dir(self.0.path());
        let mut process = Process::spawn("storage-server", &command, self.0.path()).unwrap();
        let status = process.exit(END_TIMEOUT).await.unwrap();
        let mut stdout = String::new();
        while let Ok(line) = process.line(END_TIMEOUT).await {
            stdout += &format!("{line}\n");
        }
        Ran { code: status.code(), stdout, stderr: process.stderr().unwrap() }
    }

    async fn check(&self, arguments: &[&str]) -> Ran {
        self.run(&[], &[&["--check"], arguments].concat()).await
    }

    /// The line of `config` for a key.
    async fn in_force(
        &self,
        key: &str,
        environment: &[(&str, &str)],
        arguments: &[&str],
    ) -> Option<String> {
        let printed = self.run(environment, &[arguments, &["config"]].concat()).await.printed();
        let prefix = format!("{key} = ");
        printed.lines().find_map(|line| line.strip_prefix(&prefix).map(str::to_owned))
    }
}

#[tokio::test]
async fn flags_win_over_the_environment_and_that_wins_over_the_file() {
    let folder = Folder::with_config("max-value-bytes = 10\nno-create = true\n");
    let variable = [("FENCED_MAX_VALUE_BYTES", "20"), ("FENCED_NO_CREATE", "false")];
    let flag = ["--max-value-bytes", "30"];
    for (environment, arguments, bytes, no_create) in [
        (&[][..], &[][..], "10", "true"),
        (&variable, &[], "20", "false"),
        (&variable, &flag, "30", "false"),
        (&[], &flag, "30", "true"),
    ] {
        let in_force = async |key| folder.in_force(key, environment, arguments).await.unwrap();
        assert_eq!(in_force("max-value-bytes").await, bytes, "{environment:?} {arguments:?}");
        assert_eq!(in_force("no-create").await, no_create, "{environment:?} {arguments:?}");
    }
    // The control: what nothing sets has its default.
    assert_eq!(folder.in_force("enforcement", &[], &[]).await.unwrap(), "\"enforce\"");
    assert_eq!(folder.in_force("auth-file", &[], &[]).await, None);
}

/// A word that is misspelt must not open the server, or turn a protection off.
#[tokio::test]
async fn variable_that_is_empty_or_no_word_of_a_flag_is_rejected() {
    let folder = Folder::with_config("");
    for (name, value, reason) in [
        (
            "FENCED_INSECURE",
            "flase",
            "the variable FENCED_INSECURE can't be used: invalid value 'flase'",
        ),
        ("FENCED_NO_CREATE", "ture", "invalid value 'ture' for '--no-create'"),
        ("FENCED_NO_MIGRATE", "nope", "invalid value 'nope' for '--no-migrate'"),
        ("FENCED_ACCESS_LOG", "offf", "invalid value 'offf' for '--access-log'"),
        ("FENCED_NO_CREATE", "", "the variable FENCED_NO_CREATE is empty"),
        ("FENCED_LISTEN", "", "the variable FENCED_LISTEN is empty"),
        ("FENCED_AUTH_FILE", "", "the variable FENCED_AUTH_FILE is empty"),
    ] {
        let ran = folder.run(&[(name, value)], &["config"]).await;
        assert_eq!(ran.code, Some(2), "{name}={value}: {ran:?}");
        assert!(ran.stderr.contains(reason), "{name}={value}: {ran:?}");
    }
    // Neither help nor a command that doesn't use the variable is held up by it.
    for arguments in [&["--help"][..], &["--version"], &["migrate"]] {
        folder.run(&[("FENCED_AUTH_FILE", "")], arguments).await.printed();
    }
    // The control: the words that are known.
    for (value, in_force) in [("true", "true"), ("yes", "true"), ("0", "false"), ("off", "false")] {
        let variable = [("FENCED_INSECURE", value)];
        assert_eq!(folder.in_force("insecure", &variable, &[]).await.unwrap(), in_force, "{value}");
    }
}

#[tokio::test]
async fn server_obeys_its_config_file() {
    let folder = Folder::with_config("max-value-bytes = 3\ntoken-ceiling = 40\n");
    let config = folder.config();
    let arguments = ["--config", config.to_str().unwrap()];
    let server = StorageServer::start(&storage_server(), &arguments).await.unwrap();
    let put = async |server: &StorageServer, token, value| {
        let headers = [("Fencing-Token", token)];
        wire::request(server.url(), "PUT", "/v1/resources/r", &headers, value).await.status
    };
    assert_eq!(put(&server, "34", "abcd").await, 413);
    assert_eq!(put(&server, "2000", "abc").await, 403);
    assert_eq!(put(&server, "34", "abc").await, 201);

    // The control: without the file, both are accepted.
    let server = StorageServer::start(&storage_server(), &[]).await.unwrap();
    assert_eq!(put(&server, "34", "abcd").await, 201);
    assert_eq!(put(&server, "2000", "abc").await, 200);
}

/// Each command uses the same database as the server.
#[tokio::test]
async fn commands_take_the_database_of_the_config_file() {
    let folder = Folder::with_config("database-url = \"sqlite:other.db\"\nmax-value-bytes = 3\n");
    folder.run(&[], &["migrate"]).await.printed();
    assert!(folder.path("other.db").exists());
    assert!(!folder.path("fenced.db").exists());
    folder.run(&[], &["migrate", "--database-url", "sqlite:third.db"]).await.printed();
    assert!(folder.path("third.db").exists());
}

#[tokio::test]
async fn wrong_config_files_are_rejected_with_path_and_key() {
    for (text, reason) in [
        (
            "max-value-byte = 3",
            "there is no key \"max-value-byte\", but there is \"max-value-bytes\"",
        ),
        ("colour = 'red'", "there is no key \"colour\""),
        ("no-create = 'yes'", "no-create takes true or false, and this is of type string"),
        ("max-value-bytes = 'many'", "invalid value 'many' for '--max-value-bytes <BYTES>'"),
        ("enforcement = 'maybe'", "invalid value 'maybe' for '--enforcement <MODE>'"),
        ("token-ceiling = 'tall'", "a token ceiling is a duration"),
        ("\nlisten = ", "line 2: "),
    ] {
        let folder = Folder::with_config(text);
        for arguments in [&[][..], &["--check"], &["migrate"], &["config"]] {
            let ran = folder.run(&[], arguments).await;
            assert_eq!(ran.code, Some(2), "{text} {ran:?}");
            let error = ran.stderr.lines().next().unwrap();
            assert!(error.contains(folder.config().to_str().unwrap()), "{text}: {error}");
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
    let missing = Folder::with_config("");
    fs::remove_file(missing.config()).unwrap();
    let ran = missing.run(&[], &["config"]).await;
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("server.toml can't be used: No such file"), "{ran:?}");
}

/// A value that a flag replaces is checked all the same, so that a mistake does not wait for its day.
#[tokio::test]
async fn flag_does_not_hide_a_mistake_in_the_file() {
    let folder = Folder::with_config("max-value-bytes = 'many'");
    let ran = folder.run(&[("FENCED_MAX_VALUE_BYTES", "5")], &["config"]).await;
    assert_eq!(ran.code, Some(2), "{ran:?}");
}

#[tokio::test]
async fn printed_configuration_is_a_config_file_without_the_password() {
    let text = "database-url = 'postgres://server:s3cret@db.example/fenced?sslmode=require'\n\
                listen = '127.0.0.1:9000'\nmax-connections = 50\nno-migrate = true\n";
    let folder = Folder::with_config(text);
    let printed = folder.run(&[], &["config"]).await.printed();
    assert!(!printed.contains("s3cret"), "{printed}");
    let url = "database-url = \"postgres://server:***@db.example/fenced?sslmode=require\"\n";
    assert!(printed.contains(url), "{printed}");
    for line in ["listen = \"127.0.0.1:9000\"", "max-connections = 50", "no-migrate = true"] {
        assert!(printed.lines().any(|printed| printed == line), "{line}: {printed}");
    }
    assert_eq!(Folder::with_config(&printed).run(&[], &["config"]).await.printed(), printed);
}

#[tokio::test]
async fn check_tries_everything_and_starts_nothing() {
    let folder = Folder::with_config("auth-file = \"auth.toml\"\nlisten = \"127.0.0.1:0\"\n");
    let auth = ["auth", "new", "--auth-file", "auth.toml", "--name", "a", "--prefix", ""];

    // 1. What the file names is read.
    let missing = folder.check(&[]).await;
    assert_eq!(missing.code, Some(2), "{missing:?}");
    assert!(missing.stderr.contains("auth.toml, which does not exist"), "{missing:?}");
    folder.run(&[], &[&auth[..], &["--allow", "read"]].concat()).await.printed();

    // 2. A database that is missing is all right only if the server may create it.
    let printed = folder.check(&[]).await.printed();
    assert!(printed.contains("will create the database"), "{printed}");
    let error = folder.check(&["--no-create"]).await.failed();
    assert!(error.contains("can't open sqlite:fenced.db"), "{error}");
    let error = folder.check(&["--database-url", "sqlite:no/such/folder.db"]).await.failed();
    assert!(error.contains("can't create no/such/folder.db"), "{error}");
    let error = folder.check(&["--database-url", "sqlite::memory:"]).await.failed();
    assert!(error.contains("can't keep a fence"), "{error}");
    let error = folder.check(&["--listen", "nowhere"]).await.failed();
    assert!(error.contains("can't listen on nowhere"), "{error}");
    assert!(!folder.path("fenced.db").exists(), "it changes nothing");

    // 3. It may run beside the server, and opens no port.
    let url = format!("sqlite:{}", folder.path("fenced.db").display());
    let server = StorageServer::start_on(&storage_server(), &url, &[]).await.unwrap();
    let listen = server.address().to_string();
    let printed = folder.check(&["--listen", &listen]).await.printed();
    assert_eq!(printed, "the configuration can be used\n");

    // 4. A database that is no database is found.
    drop(server);
    fs::write(folder.path("fenced.db"), "this is no database, but a text of some length").unwrap();
    folder.check(&[]).await.failed();
}

#[tokio::test]
async fn check_tries_postgres() {
    let folder = Folder::with_config("");
    let postgres = Postgres::start().await.unwrap();
    let url = postgres.url();
    let printed = folder.check(&["--database-url", &url]).await.printed();
    assert!(printed.contains("will create or change its tables"), "{printed}");
    let error = folder.check(&["--database-url", &url, "--no-migrate"]).await.failed();
    assert!(error.contains("run `storage-server migrate` first"), "{error}");
    folder.run(&[], &["migrate", "--database-url", &url]).await.printed();
    let printed = folder.check(&["--database-url", &url, "--no-migrate"]).await.printed();
    assert_eq!(printed, "the configuration can be used\n");
    drop(postgres);
    let error = folder.check(&["--database-url", &url]).await.failed();
    assert!(error.contains("can't open"), "{error}");
}

#[tokio::test]
async fn manual_and_completions_know_the_options() {
    let folder = Folder::with_config("");
    let page = folder.run(&[], &["man"]).await.printed();
    assert!(
        page.contains(".TH storage-server 1") && page.contains("max\\-value\\-bytes"),
        "{page}"
    );
    let page = folder.run(&[], &["man", "fence", "set"]).await.printed();
    assert!(page.contains(".TH storage-server-fence-set 1"), "{page}");
    let error = folder.run(&[], &["man", "fence", "unset"]).await.failed();
    assert!(error.contains("there is no command fence unset"), "{error}");

    for shell in ["bash", "zsh", "fish"] {
        let script = folder.run(&[], &["completions", shell]).await.printed();
        assert!(script.contains("max-value-bytes"), "{shell}: {script}");
    }
    // In bash itself: the options of a subcommand are completed, too.
    let script = folder.run(&[], &["completions", "bash"]).await.printed();
    fs::write(folder.path("completions"), script).unwrap();
    let complete = "source completions; COMP_WORDS=(storage-server fence set --fo) COMP_CWORD=3; \
                    _storage__server storage-server --fo set; echo \"${COMPREPLY[@]}\"";
    let mut bash = Command::new("bash");
    let completed = bash.args(["-c", complete]).current_dir(folder.0.path()).output().unwrap();
    assert_eq!(String::from_utf8(completed.stdout).unwrap(), "--force\n");
}

//! The end of PostgreSQL servers that are no children of this process.

use std::{
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
};

/// Ends all PostgreSQL servers with data in the folder `$FOLDER`, once the other end of its stdin is
/// closed. It looks twice, because one may be about to start. The folder is no argument, because `ps`
/// would then list this script and `awk` as well.
const SCRIPT: &str = r#"
    read -r line
    quiet=0 rounds=0
    while [ "$quiet" -lt 2 ] && [ "$rounds" -lt 300 ]; do
        quiet=$((quiet + 1)) rounds=$((rounds + 1))
        for pid in $(ps -A -o pid=,args= | awk 'index($0, "/postgres -D " ENVIRON["FOLDER"] "/") { print $1 }')
        do
            quiet=0
            # SIGKILL would leave shared memory behind. One that is paused would not end.
            kill -QUIT "$pid"; kill -CONT "$pid"
        done
        if [ "$quiet" -gt 0 ]; then sleep 0.5; else sleep 0.1; fi
    done
"#;

/// A process that outlives this one, and then ends the servers.
#[derive(Debug)]
pub(super) struct Guard {
    process: Child,
    /// Closed when this process ends, in whatever way.
    stdin: Option<ChildStdin>,
}

impl Guard {
    /// Starts one for the servers whose data is in the folder.
    pub(super) fn start(folder: &Path) -> anyhow::Result<Self> {
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "guard-of-postgres"]).env("FOLDER", folder);
        // Keys that end the test don't end it.
        command.process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut process = command.spawn()?;
        let stdin = process.stdin.take();
        Ok(Self { process, stdin })
    }

    /// Ends the servers, and waits until they have ended.
    pub(super) fn end_postgres(&mut self) {
        drop(self.stdin.take());
        // It ends by itself.
        let _ = self.process.wait();
    }
}

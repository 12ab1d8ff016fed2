//! Snapshots of the data, and clusters that are restored from one.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::{
    Etcd,
    control::{output, program},
    launch::{initial_cluster, name},
};

impl Etcd {
    /// Saves a snapshot of the data in a new file.
    ///
    /// # Errors
    /// If `etcdctl` fails.
    pub async fn save_snapshot(&self) -> anyhow::Result<PathBuf> {
        let file = self.folder.path().join("snapshot");
        // It replaces no file.
        if file.exists() {
            fs::remove_file(&file)?;
        }
        // A snapshot is taken from one member.
        let save = ["snapshot", "save", &file.display().to_string()];
        self.etcdctl_at(&self.endpoint(0), &save).await?;
        Ok(file)
    }

    /// Kills all members, and starts them again with the data of a snapshot.
    ///
    /// # Errors
    /// If `etcdctl` fails, or a member doesn't start.
    pub async fn restore(&mut self, snapshot: &Path) -> anyhow::Result<()> {
        self.kill_all()?;
        let ports = self.ports();
        for (number, (_, peer)) in ports.iter().enumerate() {
            let data = self.data_folder(number);
            fs::remove_dir_all(&data)?;
            let mut command = Command::new(program("etcdctl")?);
            command.env("ETCDCTL_API", "3").args(["snapshot", "restore"]).arg(snapshot);
            command.args(["--name", &name(number), "--initial-cluster", &initial_cluster(&ports)]);
            command.arg(format!("--initial-advertise-peer-urls=http://127.0.0.1:{peer}"));
            command.arg("--data-dir").arg(data);
            output(command, "").await?;
        }
        self.launch_all().await
    }
}

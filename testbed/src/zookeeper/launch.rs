//! The command line of a member, and its settings.

use std::{fmt::Write, fs, path::PathBuf, process::Command};

use anyhow::Context;

use super::{Ports, ZooKeeper, classes};
use crate::{clock::Clock, package::installed, process::Process, tls};

/// Members give up a silent leader after a second. A tick is 100 ms.
const SETTINGS: &str = "\
tickTime=100
initLimit=50
syncLimit=10
minSessionTimeout=1000
clientPortAddress=127.0.0.1
admin.enableServer=false
4lw.commands.whitelist=conf,cons,dump,srvr
preAllocSize=64
";

/// Certificates are PEM files, which ZooKeeper takes with Netty only.
const ENCRYPTED_SETTINGS: &str = "\
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
secureClientPortAddress=127.0.0.1
ssl.keyStore.type=PEM
ssl.trustStore.type=PEM
";

/// The certificate and the key in one file.
const IDENTITY: &str = "identity.pem";

/// The kind of connection that the clients need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Door {
    Tcp,
    Tls,
    MutualTls,
}

/// A small heap, and little work before the start.
pub(super) const JAVA: [&str; 9] = [
    "-Xmx64m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:CICompilerCount=1",
    // Older versions have no archives of classes.
    "-XX:+IgnoreUnrecognizedVMOptions",
    // Java would warn on stdout of an archive that it can't use.
    "-Xlog:disable",
    "-XX:-UsePerfData",
    // No setting of the file.
    "-Dznode.container.checkIntervalMs=500",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
];

const SERVER: &str = "org.apache.zookeeper.server.quorum.QuorumPeerMain";

impl ZooKeeper {
    pub(super) fn launch(&self, number: usize, ports: &[Ports]) -> anyhow::Result<Process> {
        let name = name(number);
        let data = self.data_folder(number);
        fs::create_dir_all(&data)?;
        let mut settings = format!("{SETTINGS}clientPort={}\n", ports[number].client);
        writeln!(settings, "dataDir={}", data.display())?;
        let longest = self.longest_sessions[number].as_millis();
        writeln!(settings, "maxSessionTimeout={longest}")?;
        if let Some(most) = self.most_connections {
            writeln!(settings, "maxClientCnxns={most}")?;
        }
        if ports.len() > 1 {
            fs::write(data.join("myid"), format!("{}\n", number + 1))?;
            for (number, Ports { peer, election, .. }) in (1..).zip(ports) {
                writeln!(settings, "server.{number}=127.0.0.1:{peer}:{election}")?;
            }
        }
        if self.door != Door::Tcp {
            settings += &self.encrypted_settings(ports[number].secure)?;
        }
        let file = self.folder.path().join(format!("{name}.cfg"));
        fs::write(&file, settings)?;
        let mut command = java(self.makes_archive.then(|| self.make_archive()).transpose()?)?;
        command.arg(SERVER).arg(file);
        if let Some(clock) = Clock::find(self.folder.path()) {
            clock.preload(&mut command);
        }
        Process::spawn(&name, &command, self.folder.path())
    }
}

impl ZooKeeper {
    /// The settings of a further port, which takes TLS only.
    fn encrypted_settings(&self, port: u16) -> anyhow::Result<String> {
        let file = |name: &str| self.folder.path().join(name);
        let certificate = fs::read_to_string(file(tls::CERTIFICATE))?;
        fs::write(file(IDENTITY), fs::read_to_string(file(tls::KEY))? + &certificate)?;
        let authentication = if self.door == Door::MutualTls { "need" } else { "none" };
        let mut settings = ENCRYPTED_SETTINGS.to_owned();
        writeln!(settings, "secureClientPort={port}")?;
        writeln!(settings, "ssl.clientAuth={authentication}")?;
        writeln!(settings, "ssl.keyStore.location={}", file(IDENTITY).display())?;
        writeln!(settings, "ssl.trustStore.location={}", file(tls::CA_CERTIFICATE).display())?;
        Ok(settings)
    }
}

/// Returns a command that runs a class of ZooKeeper, with the classes that have been archived unless
/// another option says what to do with them.
pub(super) fn java(classes: Option<String>) -> anyhow::Result<Command> {
    let program = program()?;
    let classes = classes.map_or_else(|| classes::use_archive(&program), |option| Ok(Some(option)));
    let mut command = Command::new(program);
    command.args(JAVA).args(classes?).arg("-cp").arg(class_path()?);
    Ok(command)
}

/// Returns the path of Java.
pub(super) fn program() -> anyhow::Result<PathBuf> {
    installed("java", &[], "a Java runtime")
}

/// The jar that names the others, those that it leaves out, and the logger that writes to stderr.
const DEBIAN_JARS: &str = "/usr/share/java/zookeeper.jar:/usr/share/java/netty-codec.jar:\
    /usr/share/java/netty-resolver.jar:/usr/share/java/slf4j-simple.jar";

/// Debian's package has its jars among all others. The
/// formula has all of them in a folder.
fn class_path() -> anyhow::Result<String> {
    let folders = [
        ("/usr/share/java", DEBIAN_JARS),
        ("/opt/homebrew/opt/zookeeper/libexec/lib", "/opt/homebrew/opt/zookeeper/libexec/lib/*"),
        ("/usr/local/opt/zookeeper/libexec/lib", "/usr/local/opt/zookeeper/libexec/lib/*"),
    ];
    folders
        .into_iter()
        .find(|(folder, jars)| match jars.ends_with('*') {
            true => PathBuf::from(folder).is_dir(),
            false => PathBuf::from(folder).join("zookeeper.jar").is_file(),
        })
        .map(|(_, jars)| jars.to_owned())
        .context("ZooKeeper is not installed; the package zookeeper has it")
}

pub(super) fn name(number: usize) -> String {
    format!("zookeeper-{number}")
}

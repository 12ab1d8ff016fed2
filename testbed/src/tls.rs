//! Certificates, from authorities that are made for a test.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::ensure;
use tempfile::TempDir;

use crate::package::installed;

/// The authority's certificate, in its folder.
pub(crate) const CA_CERTIFICATE: &str = "ca.pem";
/// The server's certificate.
pub(crate) const CERTIFICATE: &str = "server.pem";
/// The server's key.
pub(crate) const KEY: &str = "server.key";

/// The names of a server on this machine.
pub(crate) const LOOPBACK: &str = "IP:127.0.0.1, DNS:localhost";

const SETTINGS: &str = "
[req]
distinguished_name = name
prompt = no
[name]
commonName = testbed
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign
[signed]
basicConstraints = critical, CA:FALSE
";

/// An authority of a test, and the certificates that it has signed.
#[derive(Debug)]
pub struct Authority(TempDir);

/// A certificate and its key, as files.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// The certificate.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

impl Authority {
    /// Makes an authority.
    ///
    /// # Errors
    /// If `openssl` isn't installed, or fails.
    pub fn new() -> anyhow::Result<Self> {
        let folder = TempDir::with_prefix("fenced-")?;
        make_authority(folder.path())?;
        Ok(Self(folder))
    }

    /// Returns the file of its own certificate.
    pub fn ca_file(&self) -> PathBuf {
        self.0.path().join(CA_CERTIFICATE)
    }

    /// Signs a certificate for `127.0.0.1` and `localhost`.
    ///
    /// # Errors
    /// If `openssl` fails.
    pub fn sign_for_loopback(&self) -> anyhow::Result<Certificate> {
        self.sign(LOOPBACK)
    }

    /// Signs a certificate for these names, such as `DNS:a.example, URI:spiffe://a.example/b`.
    ///
    /// # Errors
    /// If `openssl` fails.
    pub fn sign(&self, names: &str) -> anyhow::Result<Certificate> {
        let number = fs::read_dir(self.0.path())?.count();
        let [certificate, key] = ["pem", "key"].map(|kind| format!("signed-{number}.{kind}"));
        sign(self.0.path(), names, &certificate, &key)?;
        let file = |name| self.0.path().join(name);
        Ok(Certificate { certificate: file(certificate), key: file(key) })
    }
}

/// Makes an authority and a server's certificate in a folder. Clients reject a server that is its own
/// authority.
///
/// # Errors
/// If `openssl` isn't installed, or fails.
pub(crate) fn make_certificates(folder: &Path) -> anyhow::Result<()> {
    make_certificates_for(folder, LOOPBACK)
}

/// Makes an authority and a server's certificate, for these names, in a folder.
///
/// # Errors
/// If `openssl` isn't installed, or fails.
pub(crate) fn make_certificates_for(folder: &Path, names: &str) -> anyhow::Result<()> {
    make_authority(folder)?;
    sign(folder, names, CERTIFICATE, KEY)
}

const NEW_KEY: [&str; 9] = [
    "req",
    "-newkey",
    "ec",
    "-pkeyopt",
    "ec_paramgen_curve:P-256",
    "-nodes",
    "-sha256",
    "-config",
    "openssl.cnf",
];

fn make_authority(folder: &Path) -> anyhow::Result<()> {
    fs::write(folder.join("openssl.cnf"), SETTINGS)?;
    // Otherwise a client takes two authorities for one whose signature is bad.
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let subject = format!("/CN=testbed {name}");
    let authority = ["-x509", "-days", "2", "-extensions", "authority", "-subj", &subject];
    let files = ["-keyout", "ca.key", "-out", CA_CERTIFICATE];
    openssl(folder, &[&NEW_KEY[..], &authority, &files].concat())
}

fn sign(folder: &Path, names: &str, certificate: &str, key: &str) -> anyhow::Result<()> {
    fs::write(folder.join("signed.cnf"), format!("{SETTINGS}subjectAltName = {names}\n"))?;
    openssl(folder, &[&NEW_KEY[..], &["-keyout", key, "-out", "signed.csr"]].concat())?;
    let sign = ["x509", "-req", "-in", "signed.csr", "-CA", CA_CERTIFICATE, "-CAkey", "ca.key"];
    let what = ["-CAcreateserial", "-days", "2", "-sha256", "-extfile", "signed.cnf"];
    openssl(folder, &[&sign[..], &what, &["-extensions", "signed", "-out", certificate]].concat())
}

fn openssl(folder: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    let program = installed("openssl", &[], "the package openssl (brew: openssl)")?;
    let output = Command::new(program).args(arguments).current_dir(folder).output()?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "openssl {} failed: {error}", arguments.join(" "));
    Ok(())
}

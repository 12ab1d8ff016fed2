//! Certificates for one server, from an authority that is made for it.

use std::{fs, path::Path, process::Command};

use anyhow::ensure;

use crate::package::installed;

/// The authority's certificate, in the server's folder.
pub(crate) const CA_CERTIFICATE: &str = "ca.pem";
/// The server's certificate.
pub(crate) const CERTIFICATE: &str = "server.pem";
/// The server's key.
pub(crate) const KEY: &str = "server.key";

const SETTINGS: &str = "
[req]
distinguished_name = name
prompt = no
[name]
commonName = testbed
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign
[server]
basicConstraints = critical, CA:FALSE
subjectAltName = IP:127.0.0.1, DNS:localhost
";

/// Makes all files in a folder. An authority signs the server's certificate, because clients refuse
/// a server that is its own authority.
///
/// # Errors
/// If `openssl` isn't installed, or fails.
pub(crate) fn make_certificates(folder: &Path) -> anyhow::Result<()> {
    fs::write(folder.join("openssl.cnf"), SETTINGS)?;
    let curve = ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"];
    let key = [&curve[..], &["-nodes", "-sha256", "-config", "openssl.cnf"]].concat();
    let authority =
        ["-x509", "-days", "2", "-extensions", "authority", "-keyout", "ca.key", "-out"];
    openssl(folder, &[&key[..], &authority, &[CA_CERTIFICATE]].concat())?;
    openssl(folder, &[&key[..], &["-keyout", KEY, "-out", "server.csr"]].concat())?;
    let sign = ["x509", "-req", "-in", "server.csr", "-CA", CA_CERTIFICATE, "-CAkey", "ca.key"];
    let what = ["-CAcreateserial", "-days", "2", "-sha256", "-extfile", "openssl.cnf"];
    let server = ["-extensions", "server", "-out", CERTIFICATE];
    openssl(folder, &[&sign[..], &what, &server].concat())
}

fn openssl(folder: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    let program = installed("openssl", &[], "the package openssl (brew: openssl)")?;
    let output = Command::new(program).args(arguments).current_dir(folder).output()?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "openssl {} failed: {error}", arguments.join(" "));
    Ok(())
}

//! The storage server, as arguments.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use clap::Args;
use lock_client::storage::{InvalidStorageSetting, Storage};

use crate::failure::Failure;

/// The bearer token. It is no option, because other users of the machine can see the arguments.
const TOKEN: &str = "FENCED_STORAGE_TOKEN";

#[derive(Args, Debug)]
pub(crate) struct StorageServer {
    /// The storage server, such as https://HOST:PORT
    #[arg(long = "storage", env = "FENCED_STORAGE", hide_env_values = true, value_name = "URL")]
    url: Option<String>,

    /// The authority of the storage server's certificate, as PEM. By default, those of the system
    #[arg(long = "storage-ca-file", env = "FENCED_STORAGE_CA_FILE", value_name = "FILE")]
    ca_file: Option<PathBuf>,

    /// The certificate that the client shows to the storage server, as PEM
    #[arg(long = "storage-cert-file", env = "FENCED_STORAGE_CERT_FILE", value_name = "FILE")]
    #[arg(requires = "key_file")]
    cert_file: Option<PathBuf>,

    /// The key of that certificate, as PEM
    #[arg(long = "storage-key-file", env = "FENCED_STORAGE_KEY_FILE", value_name = "FILE")]
    #[arg(requires = "cert_file")]
    key_file: Option<PathBuf>,

    /// The file of the bearer token for the storage server. By default, FENCED_STORAGE_TOKEN is the
    /// token
    #[arg(long = "storage-token-file", env = "FENCED_STORAGE_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl StorageServer {
    /// Makes a client of the server. It connects with its first request.
    pub(crate) fn client(&self) -> Result<Storage, Failure> {
        let url = self.url.as_deref().ok_or_else(|| {
            Failure::usage("no storage is named: set FENCED_STORAGE, or give --storage")
        })?;
        let mut storage = Storage::new(url).map_err(|error| Failure::usage(error.to_string()))?;
        if let Some(file) = &self.ca_file {
            let invalid = |error| invalid("--storage-ca-file", &error);
            storage = storage.trust(file).map_err(invalid)?;
        }
        if let (Some(certificate), Some(key)) = (&self.cert_file, &self.key_file) {
            let invalid = |error| invalid("--storage-cert-file, --storage-key-file", &error);
            storage = storage.client_certificate(certificate, key).map_err(invalid)?;
        }
        if let Some(file) = &self.token_file {
            let invalid = |error| invalid(&file.display().to_string(), &error);
            storage = storage.bearer_token(&read(file)?).map_err(invalid)?;
        } else if let Some(token) = env::var_os(TOKEN) {
            let invalid = |error| invalid(TOKEN, &error);
            storage = storage.bearer_token(token.to_string_lossy().trim()).map_err(invalid)?;
        }
        Ok(storage)
    }
}

fn read(token_file: &Path) -> Result<String, Failure> {
    let token = fs::read_to_string(token_file).map_err(|error| {
        Failure::usage(format!(
            "--storage-token-file: can't read {}: {error}",
            token_file.display()
        ))
    })?;
    Ok(token.trim().to_owned())
}

fn invalid(origin: &str, error: &InvalidStorageSetting) -> Failure {
    Failure::usage(format!("{origin}: {error}"))
}

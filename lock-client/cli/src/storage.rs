//! The storage server, as an argument.

use clap::Args;
use lock_client::storage::Storage;

use crate::failure::Failure;

#[derive(Args, Debug)]
pub(crate) struct StorageServer {
    /// The storage server, such as http://HOST:PORT
    #[arg(long = "storage", env = "FENCED_STORAGE", hide_env_values = true, value_name = "URL")]
    url: Option<String>,
}

impl StorageServer {
    /// Makes a client of the server. It connects with its first request.
    pub(crate) fn client(&self) -> Result<Storage, Failure> {
        let url = self.url.as_deref().ok_or_else(|| {
            Failure::Usage("no storage is named: set FENCED_STORAGE, or give --storage".into())
        })?;
        Storage::new(url)
            .map_err(|error| Failure::Usage(format!("{error}; a URL looks like http://HOST:PORT")))
    }
}

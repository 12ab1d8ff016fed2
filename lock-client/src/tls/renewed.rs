//! Certificates that are read again for each new connection, because they are renewed on disk.

use std::{
    env, fs,
    sync::{Arc, Mutex},
};

use rustls::ClientConfig;

use super::{InvalidSettings, Settings};

/// The certificates that a URL names, or those that the system trusts.
pub(crate) struct Certificates {
    settings: Settings,
    /// The last good ones, and what the files held.
    last: Mutex<(Vec<Vec<u8>>, Arc<ClientConfig>)>,
}

impl Certificates {
    /// Reads the files.
    pub(crate) fn read(settings: Settings) -> Result<Self, InvalidSettings> {
        let last = Mutex::new((contents(&settings), Arc::new(settings.read()?)));
        Ok(Self { settings, last })
    }

    /// Returns what a new connection needs. Files that can't be used leave the last good certificates as
    /// they are, and the log says so.
    pub(crate) fn current(&self) -> Arc<ClientConfig> {
        let contents = contents(&self.settings);
        let mut last = self.last.lock().expect("nothing panics while it holds this");
        if last.0 != contents {
            match self.settings.read() {
                Ok(config) => *last = (contents, Arc::new(config)),
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(
                        error,
                        "certificates can't be read again; the last ones are used"
                    );
                }
            }
        }
        last.1.clone()
    }
}

/// Reads all files. A missing one is as good as empty.
fn contents(settings: &Settings) -> Vec<Vec<u8>> {
    let mut files: Vec<_> = settings.files().into_iter().flatten().map(str::to_owned).collect();
    files.extend(env::var("SSL_CERT_FILE"));
    files.iter().map(|file| fs::read(file).unwrap_or_default()).collect()
}

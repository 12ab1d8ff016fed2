//! The certificates of encrypted connections, read again for each new one.

use std::{
    fs,
    sync::{Arc, Mutex},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use rustls::ClientConfig;
use zookeeper_client::{Error, TlsCa, TlsCerts, TlsIdentity, TlsOptions};

use crate::tls::{InvalidSettings, Settings, choose_provider};

/// The certificates that a URL names, or those that the system trusts.
pub(super) struct Certificates {
    settings: Settings,
    /// Those that could be used last.
    last: Mutex<Usable>,
}

/// Certificates that can be used.
#[derive(Clone)]
struct Usable {
    /// What the files held.
    files: [Option<String>; 3],
    options: TlsOptions,
    config: Arc<ClientConfig>,
}

impl Certificates {
    /// Reads the files that a URL names.
    pub(super) fn read(settings: Settings) -> Result<Self, InvalidSettings> {
        choose_provider();
        let last = Mutex::new(Usable::read(&settings)?);
        Ok(Self { settings, last })
    }

    /// What the client of ZooKeeper needs for its next connection.
    pub(super) fn options(&self) -> TlsOptions {
        self.refreshed().options
    }

    /// What a connection without that client needs.
    pub(super) fn config(&self) -> Arc<ClientConfig> {
        self.refreshed().config
    }

    /// Reads the files again, and keeps the last good ones.
    fn refreshed(&self) -> Usable {
        let mut last = self.last.lock().expect("nothing panics while it holds this");
        let files = files(&self.settings);
        let read = match files {
            Ok(files) if files == last.files => return last.clone(),
            Ok(_) => Usable::read(&self.settings),
            Err(error) => Err(error),
        };
        match read {
            Ok(usable) => *last = usable,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "certificates can't be read again; the last ones are used");
            }
        }
        last.clone()
    }
}

impl Usable {
    fn read(settings: &Settings) -> Result<Self, InvalidSettings> {
        // It reports what is wrong with a file.
        let config = Arc::new(settings.read()?);
        let files = files(settings)?;
        let [authority, certificate, key] = &files;
        let unusable = |error: Error| InvalidSettings::new(error.to_string());
        let authority = match authority {
            Some(authority) => authority.clone(),
            None => system_authorities(),
        };
        let mut options = TlsOptions::new();
        if !authority.is_empty() {
            let mut certificates =
                TlsCerts::builder().with_ca(TlsCa::from_pem(&authority).map_err(unusable)?);
            if let (Some(certificate), Some(key)) = (certificate, key) {
                let identity = TlsIdentity::from_pem(certificate, key).map_err(unusable)?;
                certificates = certificates.with_identity(identity);
            }
            options = options.with_certs(certificates.build().map_err(unusable)?);
        }
        Ok(Self { files, options, config })
    }
}

fn files(settings: &Settings) -> Result<[Option<String>; 3], InvalidSettings> {
    let mut contents = [None, None, None];
    for (content, file) in contents.iter_mut().zip(settings.files()) {
        let Some(file) = file else { continue };
        let unreadable = |error| InvalidSettings::new(format!("can't read {file}: {error}"));
        *content = Some(String::from_utf8_lossy(&fs::read(file).map_err(unreadable)?).into_owned());
    }
    Ok(contents)
}

/// The system's authorities, as PEM. Without any, each connection fails with an unknown issuer.
fn system_authorities() -> String {
    let certificates = rustls_native_certs::load_native_certs().certs;
    let pem = certificates.iter().map(|certificate| {
        let text = BASE64_STANDARD.encode(certificate);
        format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
    });
    pem.collect()
}

//! Certificates in files, which are read again for each new connection.

use std::sync::{Arc, Mutex};

#[cfg(any(feature = "etcd", feature = "zookeeper"))]
use rustls::ClientConfig;
use rustls::RootCertStore;

use super::{Identity, InvalidSettings, PemFile, Settings};
#[cfg(any(feature = "etcd", feature = "zookeeper"))]
use super::{system_authorities, trusting};

/// The certificates of encrypted connections. Their files are read again for each new connection,
/// because they are renewed on disk.
#[derive(Clone)]
pub(crate) struct Certificates {
    settings: Settings,
    /// The last good ones.
    last: Arc<Mutex<Arc<Files>>>,
}

/// What the files contained when they were read.
pub(crate) struct Files {
    /// The authority, the client's certificate, and its key.
    pub(crate) pem: [Option<PemFile>; 3],
    #[cfg_attr(
        not(any(feature = "etcd", feature = "zookeeper")),
        expect(dead_code, reason = "the `redis` crate parses the files itself")
    )]
    parsed: (Option<Arc<RootCertStore>>, Option<Identity>),
}

impl Certificates {
    /// Reads the files.
    ///
    /// # Errors
    /// [`InvalidSettings`] if one can't be used.
    pub(crate) fn open(settings: Settings) -> Result<Self, InvalidSettings> {
        let files = Files::read(&settings)?;
        Ok(Self { settings, last: Arc::new(Mutex::new(Arc::new(files))) })
    }

    /// Reads the files again. If that fails, the last good ones are kept: a file may be replaced at
    /// this moment.
    pub(crate) fn read(&self) -> Arc<Files> {
        let read = Files::read(&self.settings);
        let mut last = self.last.lock().expect("nothing panics while it holds this");
        match read {
            Ok(files) if files.pem == last.pem => {}
            Ok(files) => {
                tracing::info!(files = ?self.settings, "new certificates are used from now on");
                *last = Arc::new(files);
            }
            Err(error) => {
                tracing::warn!(
                    %error,
                    "the certificates could not be read again: the last good ones are used"
                );
            }
        }
        last.clone()
    }
}

impl Files {
    fn read(settings: &Settings) -> Result<Self, InvalidSettings> {
        let read = |file: &Option<String>| file.as_ref().map(PemFile::read).transpose();
        let authority =
            read(&settings.authority).map_err(|error| InvalidSettings::authority(&error))?;
        let certificate =
            read(&settings.certificate).map_err(|error| InvalidSettings::certificate(&error))?;
        let key = read(&settings.key).map_err(|error| InvalidSettings::key(&error))?;
        let roots = authority.as_ref().map(PemFile::authorities).transpose();
        let roots = roots.map_err(|error| InvalidSettings::authority(&error))?.map(Arc::new);
        let identity = match (&certificate, &key) {
            (Some(certificate), Some(key)) => {
                let chain = certificate.certificates();
                let chain = chain.map_err(|error| InvalidSettings::certificate(&error))?;
                Some(key.identity(chain).map_err(|error| InvalidSettings::key(&error))?)
            }
            (None, None) => None,
            _ => return Err(InvalidSettings::incomplete()),
        };
        Ok(Self { pem: [authority, certificate, key], parsed: (roots, identity) })
    }

    /// The settings of a connection. Without a named authority, the system's are read.
    #[cfg(any(feature = "etcd", feature = "zookeeper"))]
    pub(crate) fn config(&self) -> ClientConfig {
        let (roots, identity) = self.parsed.clone();
        let config = trusting(roots.unwrap_or_else(|| system_authorities().into()));
        match identity {
            Some(identity) => config.with_client_cert_resolver(identity),
            None => config.with_no_client_auth(),
        }
    }
}

//! Certificates in files, which are read again for each new connection.

use std::sync::{Arc, Mutex};

#[cfg(any(feature = "etcd", feature = "zookeeper"))]
use rustls::ClientConfig;
use rustls::RootCertStore;

use super::{
    Identity, PemFile, Settings,
    settings::{incomplete, unusable_authority, unusable_certificate, unusable_key},
};
#[cfg(any(feature = "etcd", feature = "zookeeper"))]
use super::{system_authorities, trusting};
use crate::service_url::InvalidUrl;

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
    /// [`InvalidUrl`] if one can't be used.
    pub(crate) fn read(settings: Settings) -> Result<Self, InvalidUrl> {
        #[cfg(feature = "zookeeper")]
        super::choose_provider();
        let files = Files::read(&settings)?;
        Ok(Self { settings, last: Arc::new(Mutex::new(Arc::new(files))) })
    }

    /// Reads the files again. If that fails, the last good ones are kept: a file may be replaced at
    /// this moment.
    pub(crate) fn current(&self) -> Arc<Files> {
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
    fn read(settings: &Settings) -> Result<Self, InvalidUrl> {
        let read = |file: &Option<String>| file.as_ref().map(PemFile::read).transpose();
        let authority = read(&settings.authority).map_err(|error| unusable_authority(&error))?;
        let certificate =
            read(&settings.certificate).map_err(|error| unusable_certificate(&error))?;
        let key = read(&settings.key).map_err(|error| unusable_key(&error))?;
        let roots = authority.as_ref().map(PemFile::authorities).transpose();
        let roots = roots.map_err(|error| unusable_authority(&error))?.map(Arc::new);
        let identity = match (&certificate, &key) {
            (Some(certificate), Some(key)) => {
                let chain = certificate.certificates();
                let chain = chain.map_err(|error| unusable_certificate(&error))?;
                Some(key.identity(chain).map_err(|error| unusable_key(&error))?)
            }
            (None, None) => None,
            _ => return Err(incomplete()),
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

#[cfg(all(test, feature = "tls"))]
mod tests {
    use std::{fs, io, path::Path};

    use testbed::{Authority, Certificate};
    use tracing_subscriber::fmt::MakeWriter;

    use super::*;

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Log {
        fn take(&self) -> String {
            String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap()
        }
    }

    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl MakeWriter<'_> for Log {
        type Writer = Self;

        fn make_writer(&self) -> Self {
            self.clone()
        }
    }

    #[test]
    fn files_are_read_again_and_the_last_good_ones_are_kept() {
        let log = Log::default();
        let subscriber = tracing_subscriber::fmt().with_writer(log.clone()).finish();
        let _logging = tracing::subscriber::set_default(subscriber);
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new().unwrap();
        let file = |name: &str| folder.path().join(name).display().to_string();
        let settings = Settings {
            authority: Some(file("ca.pem")),
            certificate: Some(file("c.pem")),
            key: Some(file("c.key")),
        };
        let copy = |from: &Path, name: &str| fs::copy(from, file(name)).unwrap();
        let [one, other] = [(); 2].map(|()| authority.sign_for_loopback().unwrap());
        copy(&authority.ca_file(), "ca.pem");
        copy(&one.certificate, "c.pem");
        copy(&one.key, "c.key");
        let certificates = Certificates::read(settings).unwrap();
        let has = |files: &Files, expected: &Certificate| {
            let [_, certificate, _] = &files.pem;
            certificate.as_ref().unwrap().bytes() == fs::read(&expected.certificate).unwrap()
        };
        let first = certificates.current();
        assert!(has(&first, &one) && Arc::ptr_eq(&first, &certificates.current()));
        assert_eq!(log.take(), "");

        // A certificate without its key, and a file that is gone, as in the middle of a renewal.
        copy(&other.certificate, "c.pem");
        assert!(Arc::ptr_eq(&first, &certificates.current()));
        let kept = log.take();
        assert!(kept.contains("the last good ones") && kept.contains("not the key"), "{kept}");
        fs::remove_file(file("ca.pem")).unwrap();
        assert!(Arc::ptr_eq(&first, &certificates.current()));
        assert!(log.take().contains("can't read"));

        copy(&authority.ca_file(), "ca.pem");
        copy(&other.key, "c.key");
        let second = certificates.current();
        assert!(!Arc::ptr_eq(&first, &second) && has(&second, &other));
        assert!(log.take().contains("new certificates are used from now on"));
    }
}

//! The certificates of encrypted connections, which are read again for each new connection.

use std::sync::{Arc, Mutex};

#[cfg(any(feature = "etcd", feature = "zookeeper"))]
use rustls::ClientConfig;
use rustls::RootCertStore;

#[cfg(any(feature = "etcd", feature = "zookeeper"))]
use super::trusting;
use super::{Identity, PemFile, Settings, SystemAuthorities, settings::incomplete};
use crate::service_url::InvalidUrl;

/// The certificates of encrypted connections. They are read again for each new connection, because they
/// are renewed on disk.
#[derive(Clone)]
pub(crate) struct Certificates {
    settings: Settings,
    /// The last good ones.
    last: Arc<Mutex<Arc<Files>>>,
}

/// What the files contained when they were read.
pub(crate) struct Files {
    authorities: Authorities,
    /// The client's certificate, and its key.
    pub(crate) identity: Option<[PemFile; 2]>,
    #[cfg_attr(
        not(any(feature = "etcd", feature = "zookeeper")),
        expect(dead_code, reason = "the other clients parse the files themselves")
    )]
    parsed: (Arc<RootCertStore>, Option<Identity>),
}

/// The certificates that are trusted.
#[derive(PartialEq, Eq)]
enum Authorities {
    Named(PemFile),
    OfTheSystem(SystemAuthorities),
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
        match read.and_then(|files| files.after(&last)) {
            Ok(files) if files == **last => {}
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

impl PartialEq for Files {
    fn eq(&self, other: &Self) -> bool {
        (&self.authorities, &self.identity) == (&other.authorities, &other.identity)
    }
}

impl Files {
    fn read(settings: &Settings) -> Result<Self, InvalidUrl> {
        let [authority, certificate, key] = settings.each();
        let authorities = match authority.file {
            Some(file) => Authorities::Named(PemFile::read(file).map_err(authority.unusable())?),
            None => Authorities::OfTheSystem(SystemAuthorities::read()),
        };
        let roots = match &authorities {
            Authorities::Named(file) => file.authorities().map_err(authority.unusable())?,
            Authorities::OfTheSystem(system) => system.roots(),
        };
        let identity = match (certificate.file, key.file) {
            (Some(certificate_file), Some(key_file)) => Some([
                PemFile::read(certificate_file).map_err(certificate.unusable())?,
                PemFile::read(key_file).map_err(key.unusable())?,
            ]),
            (None, None) => None,
            _ => return Err(incomplete(certificate, key)),
        };
        let parsed = identity.as_ref().map(|[certificate_file, key_file]| {
            let chain = certificate_file.certificates().map_err(certificate.unusable())?;
            key_file.identity(chain).map_err(key.unusable())
        });
        Ok(Self { authorities, identity, parsed: (Arc::new(roots), parsed.transpose()?) })
    }

    /// Returns these, unless fewer of the system's authorities could be read than for the last ones.
    fn after(self, last: &Self) -> Result<Self, InvalidUrl> {
        if let (Authorities::OfTheSystem(now), Authorities::OfTheSystem(last)) =
            (&self.authorities, &last.authorities)
        {
            now.check_after(last)?;
        }
        Ok(self)
    }

    /// The certificates that are trusted, as PEM.
    #[cfg(any(feature = "mariadb", feature = "postgres", feature = "tls", feature = "zookeeper"))]
    pub(crate) fn authorities(&self) -> Vec<u8> {
        match &self.authorities {
            Authorities::Named(file) => file.bytes().to_vec(),
            Authorities::OfTheSystem(system) => system.pem(),
        }
    }

    /// The settings of a connection.
    #[cfg(any(feature = "etcd", feature = "zookeeper"))]
    pub(crate) fn config(&self) -> ClientConfig {
        let (roots, identity) = self.parsed.clone();
        match identity {
            Some(identity) => trusting(roots).with_client_cert_resolver(identity),
            None => trusting(roots).with_no_client_auth(),
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
        let settings =
            Settings::new(["ca.pem", "c.pem", "c.key"].map(|name| (name, Some(file(name)))));
        let copy = |from: &Path, name: &str| fs::copy(from, file(name)).unwrap();
        let [one, other] = [(); 2].map(|()| authority.sign_for_loopback().unwrap());
        copy(&authority.ca_file(), "ca.pem");
        copy(&one.certificate, "c.pem");
        copy(&one.key, "c.key");
        let certificates = Certificates::read(settings).unwrap();
        let has = |files: &Files, expected: &Certificate| {
            let [certificate, _] = files.identity.as_ref().unwrap();
            certificate.bytes() == fs::read(&expected.certificate).unwrap()
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

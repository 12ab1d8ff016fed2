//! The certificates of encrypted connections, which are read again for each new connection.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rustls::ClientConfig;
use rustls::RootCertStore;

use super::trusting;
use super::{Identity, PemFile, Settings, SystemAuthorities, settings::incomplete};
use crate::clock::Moment;
use crate::service_url::InvalidUrl;

/// How often [`Certificates::recent`] reads the files at most.
const READ_INTERVAL: Duration = Duration::from_secs(1);

/// The certificates of encrypted connections. They are read again for each new connection, because they
/// are renewed on disk.
#[derive(Clone)]
pub(crate) struct Certificates {
    settings: Settings,
    last: Arc<Mutex<Last>>,
}

/// The last good ones.
struct Last {
    files: Arc<Files>,
    read: Moment,
}

/// What the files contained when they were read.
pub(crate) struct Files {
    trusted: (Authorities, Arc<RootCertStore>),
    identity: Option<(IdentityFiles, Identity)>,
}

/// The client's certificate, and its key.
type IdentityFiles = [PemFile; 2];

/// The certificates that are trusted.
#[derive(Clone, PartialEq, Eq)]
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
        super::choose_provider();
        let trusted = Files::read_trusted(&settings, None)?;
        let files = Files { trusted, identity: Files::read_identity(&settings)? };
        let last = Last { files: Arc::new(files), read: Moment::now() };
        Ok(Self { settings, last: Arc::new(Mutex::new(last)) })
    }

    /// Reads the files again. If that fails, the last good ones are kept: a file may be replaced at
    /// this moment. The authorities and the client's certificate don't wait for each other.
    pub(crate) fn current(&self) -> Arc<Files> {
        self.last().read_again(&self.settings)
    }

    /// The same for what happens at each request in an outage: reads them once a second at most, because
    /// the system's authorities are many.
    pub(crate) fn recent(&self) -> Arc<Files> {
        let mut last = self.last();
        if last.read.elapsed() < READ_INTERVAL {
            return last.files.clone();
        }
        last.read_again(&self.settings)
    }

    fn last(&self) -> MutexGuard<'_, Last> {
        self.last.lock().expect("nothing panics while it holds this")
    }
}

impl Last {
    fn read_again(&mut self, settings: &Settings) -> Arc<Files> {
        let Files { trusted, identity } = &*self.files;
        let files = Files {
            trusted: Files::read_trusted(settings, Some(&trusted.0)).unwrap_or_else(kept(trusted)),
            identity: Files::read_identity(settings).unwrap_or_else(kept(identity)),
        };
        if files != *self.files {
            tracing::info!(files = ?settings, "new certificates are used from now on");
            self.files = Arc::new(files);
        }
        self.read = Moment::now();
        self.files.clone()
    }
}

/// Logs why files could not be read, and returns what they contained last.
fn kept<T: Clone>(last: &T) -> impl FnOnce(InvalidUrl) -> T {
    move |error| {
        tracing::warn!(
            %error,
            "the certificates could not be read again: the last good ones are used"
        );
        last.clone()
    }
}

impl PartialEq for Files {
    fn eq(&self, other: &Self) -> bool {
        (&self.trusted.0, self.identity()) == (&other.trusted.0, other.identity())
    }
}

impl Files {
    fn read_trusted(
        settings: &Settings,
        last: Option<&Authorities>,
    ) -> Result<(Authorities, Arc<RootCertStore>), InvalidUrl> {
        let [authority, ..] = settings.each();
        if let Some(file) = authority.file {
            let file = PemFile::read(file).map_err(authority.unusable())?;
            let roots = file.authorities().map_err(authority.unusable())?;
            return Ok((Authorities::Named(file), Arc::new(roots)));
        }
        let system = match (SystemAuthorities::read(), last) {
            (system, Some(Authorities::OfTheSystem(last))) => system.after(last),
            (system, _) => system,
        };
        let roots = Arc::new(system.roots());
        Ok((Authorities::OfTheSystem(system), roots))
    }

    fn read_identity(settings: &Settings) -> Result<Option<(IdentityFiles, Identity)>, InvalidUrl> {
        let [_, certificate, key] = settings.each();
        let (certificate_file, key_file) = match (certificate.file, key.file) {
            (Some(certificate_file), Some(key_file)) => (certificate_file, key_file),
            (None, None) => return Ok(None),
            _ => return Err(incomplete(certificate, key)),
        };
        let certificate_file = PemFile::read(certificate_file).map_err(certificate.unusable())?;
        let key_file = PemFile::read(key_file).map_err(key.unusable())?;
        let chain = certificate_file.certificates().map_err(certificate.unusable())?;
        let identity = key_file.identity(chain).map_err(key.unusable())?;
        Ok(Some(([certificate_file, key_file], identity)))
    }

    /// The client's certificate, and its key.
    pub(crate) fn identity(&self) -> Option<&IdentityFiles> {
        self.identity.as_ref().map(|(files, _)| files)
    }

    /// The certificates that are trusted, as PEM.
    pub(crate) fn authorities(&self) -> Vec<u8> {
        match &self.trusted.0 {
            Authorities::Named(file) => file.bytes().to_vec(),
            Authorities::OfTheSystem(system) => system.pem(),
        }
    }

    /// The settings of a connection.
    pub(crate) fn config(&self) -> ClientConfig {
        let trusting = trusting(self.trusted.1.clone());
        match &self.identity {
            Some((_, identity)) => trusting.with_client_cert_resolver(identity.clone()),
            None => trusting.with_no_client_auth(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;
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
            let [certificate, _] = files.identity().unwrap();
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

        // The certificate is renewed while the authority can't be read.
        copy(&other.key, "c.key");
        let second = certificates.current();
        assert!(!Arc::ptr_eq(&first, &second) && has(&second, &other));
        assert_eq!(second.authorities(), fs::read(authority.ca_file()).unwrap());
        let renewed = log.take();
        assert!(renewed.contains("can't read"), "{renewed}");
        assert!(renewed.contains("new certificates are used from now on"), "{renewed}");
        copy(&authority.ca_file(), "ca.pem");
        assert!(Arc::ptr_eq(&second, &certificates.current()));
        assert_eq!(log.take(), "");
    }

    #[test]
    fn files_are_read_once_a_second_at_most() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        let [first, second] = [(); 2].map(|()| Authority::new().unwrap());
        fs::copy(first.ca_file(), &file).unwrap();
        let settings = [("ca", Some(file.display().to_string())), ("c", None), ("k", None)];
        let (begun, certificates) =
            (Moment::now(), Certificates::read(Settings::new(settings)).unwrap());
        fs::copy(second.ca_file(), &file).unwrap();
        let is_renewed =
            || certificates.recent().authorities() == fs::read(second.ca_file()).unwrap();
        assert!(!is_renewed() || begun.elapsed() >= READ_INTERVAL);
        sleep(READ_INTERVAL);
        assert!(is_renewed());
    }
}

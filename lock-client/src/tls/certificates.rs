//! The certificates of encrypted connections, which are read again for each new connection.

use std::{
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use rustls::RootCertStore;

use super::{Authorities, Identity, PemFile};
use crate::{
    clock::Moment,
    mutex::Locked,
    service_url::{InvalidUrl, ServiceUrl, UrlSettings},
};

/// The name of a setting, and the file that it names.
type NamedFile = (&'static str, Option<String>);

/// The settings that name files of certificates.
#[derive(Clone, Debug)]
pub(crate) struct NamedFiles {
    /// The authority to trust instead of the system's.
    pub(crate) authority: NamedFile,
    pub(crate) certificate: NamedFile,
    pub(crate) key: NamedFile,
}

impl NamedFiles {
    pub(crate) fn all(&self) -> [&NamedFile; 3] {
        [&self.authority, &self.certificate, &self.key]
    }
}

/// How long a part of the system's authorities is the same until it counts as all that can be read. A file is
/// written in less time.
const LASTING: Duration = Duration::from_secs(10);
/// How often [`Certificates::recent`] reads the files at most.
const READ_INTERVAL: Duration = Duration::from_secs(1);

/// The certificates of encrypted connections. They are read again for each new connection, because they
/// are renewed on disk.
#[derive(Clone)]
pub(crate) struct Certificates {
    named: NamedFiles,
    last: Arc<Mutex<Last>>,
}

struct Last {
    files: Arc<Files>,
    read: Moment,
    /// The part of the system's authorities that could be read since, and since when it is the same.
    part: Option<(Authorities, Moment)>,
}

#[derive(PartialEq, Eq)]
pub(crate) struct Files {
    authorities: Authorities,
    identity: Option<[PemFile; 2]>,
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.named.fmt(f)
    }
}

impl Certificates {
    /// Parses the URL of a service whose scheme ends with an `s` if connections are encrypted, and reads its
    /// certificates, which are its only settings.
    pub(crate) fn parse_url(
        url: &str,
        scheme: &str,
        default_port: u16,
    ) -> Result<(ServiceUrl, Option<Self>), InvalidUrl> {
        let rest = url.strip_prefix(scheme).unwrap_or_default();
        let is_encrypted = rest.starts_with("s://");
        if !is_encrypted && !rest.starts_with("://") {
            let reason = format!("it does not begin with {scheme}:// or {scheme}s://");
            return Err(InvalidUrl::new(reason));
        }
        let parts = ServiceUrl::parse(url, default_port)?;
        let named = named_files(&parts.settings)?;
        parts.settings.check_known(&named.all().map(|(name, _)| *name))?;
        if !is_encrypted && named.all().iter().any(|(_, file)| file.is_some()) {
            return Err(InvalidUrl::new(format!("certificates are for {scheme}s URLs")));
        }
        let certificates = is_encrypted.then(|| Self::read(named)).transpose()?;
        Ok((parts, certificates))
    }

    /// Reads the files.
    ///
    /// # Errors
    /// [`InvalidUrl`] if one can't be used.
    pub(crate) fn read(named: NamedFiles) -> Result<Self, InvalidUrl> {
        super::choose_provider();
        let ((authorities, _), identity) = (read_authorities(&named)?, read_identity(&named)?);
        let files = Arc::new(Files { authorities, identity });
        let last = Last { files, read: Moment::now(), part: None };
        Ok(Self { named, last: Arc::new(Mutex::new(last)) })
    }

    /// Reads the files again. If that fails, the last good ones are kept: a file may be replaced at
    /// this moment. The authorities and the client's certificate don't wait for each other.
    pub(crate) fn current(&self) -> Arc<Files> {
        self.read_after(Duration::ZERO)
    }

    /// The same for what happens at each request in an outage: reads them once a second at most, because
    /// the system's authorities are many.
    pub(crate) fn recent(&self) -> Arc<Files> {
        self.read_after(READ_INTERVAL)
    }

    fn read_after(&self, interval: Duration) -> Arc<Files> {
        let mut last = self.last.locked();
        if last.read.elapsed() < interval {
            return last.files.clone();
        }
        let before = last.files.clone();
        let authorities = read_authorities(&self.named)
            .and_then(|(read, error)| last.check(read, error, Moment::now()));
        let files = Files {
            authorities: authorities.unwrap_or_else(kept(&before.authorities)),
            identity: read_identity(&self.named).unwrap_or_else(kept(&before.identity)),
        };
        if files != *before {
            tracing::info!(files = ?self.named, "new certificates are used from now on");
            last.files = Arc::new(files);
        }
        last.read = Moment::now();
        last.files.clone()
    }
}

impl Last {
    /// Checks whether authorities that were read now can replace the last ones, as a whole.
    ///
    /// A file of the system's may be half written, or empty before it is written. So a part of the last
    /// ones can't replace them at once, but only when it lasts: a file may be unreadable for good, and what
    /// is removed from the others must not stay trusted.
    fn check(
        &mut self,
        read: Authorities,
        error: Option<String>,
        now: Moment,
    ) -> Result<Authorities, InvalidUrl> {
        let last = &self.files.authorities;
        let reason = match error {
            Some(error) if !read.includes(last) => error,
            None if read.is_empty() && !last.is_empty() => "there are none".to_owned(),
            _ => {
                self.part = None;
                return Ok(read);
            }
        };
        match &self.part {
            Some((part, since)) if *part == read => {
                if *since + LASTING <= now && !read.is_empty() {
                    return Ok(read);
                }
            }
            _ => self.part = Some((read, now)),
        }
        Err(InvalidUrl::new(format!("the system's authorities: {reason}")))
    }
}

/// Logs why files could not be read again, and returns what they contained last.
fn kept<T: Clone>(last: &T) -> impl FnOnce(InvalidUrl) -> T {
    move |error| {
        tracing::warn!(
            %error,
            "the certificates could not be read again: the last good ones are used"
        );
        last.clone()
    }
}

/// Takes the files from the settings of a URL.
pub(crate) fn named_files(settings: &UrlSettings) -> Result<NamedFiles, InvalidUrl> {
    let named = |name| Ok((name, settings.get_once(name)?.map(str::to_owned)));
    Ok(NamedFiles {
        authority: named("tls-ca")?,
        certificate: named("tls-cert")?,
        key: named("tls-key")?,
    })
}

/// Reads the authorities; and if not all of the system's could be read, why.
fn read_authorities(named: &NamedFiles) -> Result<(Authorities, Option<String>), InvalidUrl> {
    match &named.authority {
        (name, Some(file)) => Ok((Authorities::from_file(&PemFile::read(name, file)?)?, None)),
        (_, None) => Ok(Authorities::of_the_system()),
    }
}

fn read_identity(named: &NamedFiles) -> Result<Option<[PemFile; 2]>, InvalidUrl> {
    let NamedFiles { certificate: (certificate, certificate_file), key: (key, key_file), .. } =
        named;
    let (certificate, key) = match (certificate_file, key_file) {
        (Some(certificate_file), Some(key_file)) => {
            (PemFile::read(certificate, certificate_file)?, PemFile::read(key, key_file)?)
        }
        (None, None) => return Ok(None),
        _ => return Err(InvalidUrl::new(format!("{certificate} and {key} belong together"))),
    };
    key.identity(certificate.certificates()?)?;
    Ok(Some([certificate, key]))
}

impl Files {
    pub(crate) fn identity(&self) -> Option<&[PemFile; 2]> {
        self.identity.as_ref()
    }

    pub(crate) fn authorities(&self) -> Vec<u8> {
        self.authorities.pem()
    }

    pub(super) fn roots(&self) -> RootCertStore {
        self.authorities.roots()
    }

    pub(super) fn certified(&self) -> Option<Identity> {
        let [certificate, key] = self.identity.as_ref()?;
        let identity = certificate.certificates().and_then(|chain| key.identity(chain));
        Some(identity.expect("they were checked when they were read"))
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File},
        path::Path,
        thread::sleep,
    };

    use testbed::{Authority, Certificate};

    use super::*;
    use crate::tls::authorities::tests::read_as_the_system;

    #[test]
    fn files_are_read_again_and_the_last_good_ones_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name).display().to_string();
        let log = File::options().create(true).append(true).open(file("log")).unwrap();
        let subscriber = tracing_subscriber::fmt().with_writer(log).finish();
        let _logging = tracing::subscriber::set_default(subscriber);
        let take_log = || {
            let text = fs::read_to_string(file("log")).unwrap();
            fs::write(file("log"), "").unwrap();
            text
        };
        let authority = Authority::new().unwrap();
        let [authority_file, certificate, key] =
            ["ca.pem", "c.pem", "c.key"].map(|name| (name, Some(file(name))));
        let named = NamedFiles { authority: authority_file, certificate, key };
        let copy = |from: &Path, name: &str| fs::copy(from, file(name)).unwrap();
        let [one, other] = [(); 2].map(|()| authority.sign_for_loopback().unwrap());
        copy(&authority.ca_file(), "ca.pem");
        copy(&one.certificate, "c.pem");
        copy(&one.key, "c.key");
        let certificates = Certificates::read(named).unwrap();

        let has = |files: &Files, expected: &Certificate| {
            let [certificate, _] = files.identity().unwrap();
            certificate.bytes() == fs::read(&expected.certificate).unwrap()
        };
        let first = certificates.current();
        assert!(has(&first, &one) && Arc::ptr_eq(&first, &certificates.current()));
        assert_eq!(take_log(), "");

        // A certificate without its key, and a file that is gone, as in the middle of a renewal.
        copy(&other.certificate, "c.pem");
        assert!(Arc::ptr_eq(&first, &certificates.current()));
        let kept = take_log();
        assert!(kept.contains("the last good ones") && kept.contains("not the key"), "{kept}");
        fs::remove_file(file("ca.pem")).unwrap();
        assert!(Arc::ptr_eq(&first, &certificates.current()));
        assert!(take_log().contains("can't read"));

        // The certificate is renewed while the authority can't be read.
        copy(&other.key, "c.key");
        let second = certificates.current();
        assert!(has(&second, &other) && second.authorities == first.authorities);
        let renewed = take_log();
        assert!(renewed.contains("can't read"), "{renewed}");
        assert!(renewed.contains("new certificates are used from now on"), "{renewed}");
        copy(&authority.ca_file(), "ca.pem");
        assert!(Arc::ptr_eq(&second, &certificates.current()));
        assert_eq!(take_log(), "");
    }

    #[test]
    fn files_are_read_once_a_second_at_most() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        let [first, second] = [(); 2].map(|()| Authority::new().unwrap());
        fs::copy(first.ca_file(), &file).unwrap();
        let path = file.display().to_string();
        let named = NamedFiles {
            authority: ("ca", Some(path.clone())),
            certificate: ("c", None),
            key: ("k", None),
        };
        let (begun, certificates) = (Moment::now(), Certificates::read(named).unwrap());
        fs::copy(second.ca_file(), &file).unwrap();
        let renewed = Authorities::from_file(&PemFile::read("ca", &path).unwrap()).unwrap();
        let is_renewed = || certificates.recent().authorities == renewed;
        assert!(!is_renewed() || begun.elapsed() >= READ_INTERVAL);
        sleep(READ_INTERVAL);
        assert!(is_renewed());
    }

    #[test]
    fn part_of_the_systems_authorities_replaces_the_last_ones_only_if_it_lasts() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        let [one, other] = [(); 2].map(|()| fs::read(Authority::new().unwrap().ca_file()).unwrap());
        let both = [&one[..], &other].concat();
        let read = |bytes: &[u8]| {
            fs::write(&file, bytes).unwrap();
            read_as_the_system(&file)
        };
        let client = |bytes: &[u8]| Last {
            files: Arc::new(Files { authorities: read(bytes).0, identity: None }),
            read: Moment::now(),
            part: None,
        };
        let now = Moment::now();
        let check = |last: &mut Last, bytes: &[u8], now| {
            let (authorities, error) = read(bytes);
            last.check(authorities, error, now).ok()
        };

        // A file that is half written, and one that is empty for however long, replace nothing.
        let mut last = client(&both);
        for half in [&both[..both.len() - 40], &one[..100], b""] {
            assert!(check(&mut last, half, now).is_none(), "{} bytes", half.len());
        }
        assert!(check(&mut last, b"", now + LASTING).is_none());
        // Neither if another part was unreadable before.
        let unreadable = &one[..100];
        let mut last = client(&[&both[..], unreadable].concat());
        assert!(check(&mut last, &[&one[..], &other[..100]].concat(), now).is_none());
        // All that could be read before, and one more, is used at once.
        let mut last = client(&one);
        let more = check(&mut last, &[&both[..], unreadable].concat(), now).unwrap();
        assert_eq!(more.roots().len(), 2);

        // One that is removed is trusted no more: at once if all the others can be read, and otherwise
        // after a while. Both are controls for each other.
        let mut last = client(&both);
        assert!(check(&mut last, &other, now) == Some(read(&other).0));
        let left = [&other[..], unreadable].concat();
        assert!(check(&mut last, &left, now).is_none());
        assert!(check(&mut last, &left, now + LASTING) == Some(read(&other).0));
    }
}

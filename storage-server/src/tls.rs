//! TLS: the server's certificate, and the authority of its clients.

use std::{
    convert::Infallible,
    fmt,
    future::pending,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustls::{
    RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem::PemObject},
    server::{NoServerSessionStorage, WebPkiClientVerifier, danger::ClientCertVerifier},
};
use tokio::{
    io::{AsyncReadExt, Join, Take, join},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    time::sleep,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::task::AbortOnDropHandle;
use x509_cert::{Certificate, der::Decode};

use crate::{
    guarded_file::{self, Guard},
    reread::{READ_INTERVAL, read_without_blocking, reread},
};

/// How many bytes a client may send until its connection is encrypted. They are held in memory. A
/// chain of certificates fits.
const MAX_HANDSHAKE_BYTES: u64 = 32 << 10;
/// How many bytes rustls holds for a client that does not read.
const SEND_BUFFER_BYTES: usize = 16 << 10;

/// The files of TLS, as PEM.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The server's certificate, and those between it and the authority.
    pub certificate: PathBuf,
    /// The key of the server's certificate.
    pub key: PathBuf,
    /// Whether clients have certificates, too.
    pub client_certificates: ClientCertificates,
}

/// Whether clients have certificates.
#[derive(Clone, Debug)]
pub enum ClientCertificates {
    /// They are not asked for any.
    None,
    /// They may have one of the authorities in this file.
    Optional(PathBuf),
    /// They must have one of the authorities in this file.
    Required(PathBuf),
}

/// A file of TLS can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the TLS file {} can't be used: {reason}", path.display())]
pub struct TlsFileError {
    path: PathBuf,
    reason: String,
}

impl TlsFileError {
    fn new(path: &Path, reason: impl fmt::Display) -> Self {
        Self { path: path.to_owned(), reason: reason.to_string() }
    }
}

/// An encrypted connection.
pub(crate) type Encrypted = TlsStream<Join<Take<OwnedReadHalf>, OwnedWriteHalf>>;

/// How to encrypt connections.
#[derive(Clone, Debug)]
pub struct Tls {
    current: watch::Receiver<Current>,
    _task: Arc<AbortOnDropHandle<()>>,
}

/// What the files say.
#[derive(Debug)]
struct Current {
    /// Of the last files that were not broken.
    config: Arc<ServerConfig>,
    /// Which certificates of clients it accepts; `None` if clients have none.
    clients: Option<Arc<dyn ClientCertVerifier>>,
    /// When the certificate expires, or the first one between it and the authority.
    expiry: Option<Duration>,
    /// Whether it had expired when it was taken over. The log has that already.
    had_expired: bool,
    /// What is wrong with the files now.
    fault: Option<TlsFileError>,
}

impl Tls {
    /// Encrypts connections with the certificate in these files.
    ///
    /// The files are read again every few seconds. New connections have the new certificate, and
    /// others go on. While a file is broken, all of the files from before stay in force.
    ///
    /// # Errors
    /// If a file can't be read or has no certificate or key, or if the key is of another certificate.
    pub async fn from_files(files: TlsFiles) -> Result<Self, TlsFileError> {
        let read = {
            let files = files.clone();
            move || files.read()
        };
        let contents = read_without_blocking(read.clone()).await?;
        let certificate = files.certificate.clone();
        let (sender, current) = watch::channel(files.parse(&contents)?);
        let take_over = move |contents: Result<Contents, _>| match contents
            .and_then(|contents| files.parse(&contents))
        {
            Ok(current) => {
                tracing::info!("the TLS files were read again");
                sender.send_replace(current);
            }
            Err(fault) => {
                tracing::error!("{fault}. The certificate from before stays in force");
                sender.send_modify(|current| current.fault = Some(fault));
            }
        };
        let expiring = current.clone();
        let task = tokio::spawn(async move {
            tokio::select! {
                () = reread(Ok(contents), read, take_over) => {}
                never = log_expiry(expiring, &certificate) => match never {},
            }
        });
        Ok(Self { current, _task: Arc::new(AbortOnDropHandle::new(task)) })
    }

    /// What is wrong with the files at this moment.
    pub(crate) fn fault(&self) -> Option<String> {
        self.current.borrow().fault.as_ref().map(TlsFileError::to_string)
    }

    /// When the certificate in force expires, or the first one between it and the authority, as Unix time.
    /// `None` if they can't be read.
    pub(crate) fn expiry(&self) -> Option<Duration> {
        self.current.borrow().expiry
    }

    /// Agrees with a client on how to encrypt its connection.
    ///
    /// # Errors
    /// If they don't agree, or the connection is lost.
    pub(crate) async fn handshake(&self, stream: TcpStream) -> io::Result<Encrypted> {
        let acceptor = TlsAcceptor::from(self.current.borrow().config.clone());
        let (reader, writer) = stream.into_split();
        let limited = join(reader.take(MAX_HANDSHAKE_BYTES), writer);
        let handshake = acceptor.accept_with(limited, |connection| {
            connection.set_buffer_limit(Some(SEND_BUFFER_BYTES));
        });
        let mut encrypted =
            handshake.into_fallible().await.map_err(|(error, stream)| {
                match stream.reader().limit() {
                    0 => io::Error::other(rustls::Error::General("it is too long".to_owned())),
                    _ => error,
                }
            })?;
        encrypted.get_mut().0.reader_mut().set_limit(u64::MAX);
        Ok(encrypted)
    }
}

impl Tls {
    /// Waits until the files have changed and don't accept a client's certificate any more, such as after its
    /// authority was removed.
    pub(crate) async fn reject_client(&self, certificates: &[CertificateDer<'static>]) {
        let Some((own, between)) = certificates.split_first() else { return pending().await };
        let mut current = self.current.clone();
        while current.changed().await.is_ok() {
            let clients = current.borrow_and_update().clients.clone();
            let accepts = |clients: Arc<dyn ClientCertVerifier>| {
                clients.verify_client_cert(own, between, UnixTime::now()).is_ok()
            };
            if !clients.is_some_and(accepts) {
                return;
            }
        }
        pending().await
    }
}

/// What is in the files.
#[derive(Clone, PartialEq, Eq)]
struct Contents {
    certificate: Vec<u8>,
    key: Vec<u8>,
    /// The authorities of clients; empty if clients have no certificates.
    authorities: Vec<u8>,
}

impl TlsFiles {
    fn read(&self) -> Result<Contents, TlsFileError> {
        let read = |path: &Path, guard| {
            guarded_file::read(path, guard).map_err(|error| TlsFileError::new(path, error))
        };
        Ok(Contents {
            certificate: read(&self.certificate, Guard::NoOtherWriters)?,
            key: read(&self.key, Guard::NoOtherReaders)?,
            authorities: match &self.client_certificates {
                ClientCertificates::None => Vec::new(),
                ClientCertificates::Optional(path) | ClientCertificates::Required(path) => {
                    read(path, Guard::NoOtherWriters)?
                }
            },
        })
    }

    fn parse(&self, contents: &Contents) -> Result<Current, TlsFileError> {
        // The provider is named, because a program with two of them has no default.
        let provider = Arc::new(ring::default_provider());
        let verifier = |path| {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path, &contents.authorities)? {
                roots.add(certificate).map_err(|error| TlsFileError::new(path, error))?;
            }
            Ok(WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone()))
        };
        let config = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .expect("ring has the ciphers of all versions");
        let clients = match &self.client_certificates {
            ClientCertificates::None => None,
            ClientCertificates::Optional(path) => {
                Some(verifier(path)?.allow_unauthenticated().build())
            }
            ClientCertificates::Required(path) => Some(verifier(path)?.build()),
        };
        let clients = clients.map(|clients| clients.expect("there are authorities"));
        let config = match &clients {
            None => config.with_no_client_auth(),
            Some(clients) => config.with_client_cert_verifier(clients.clone()),
        };
        let chain = certificates(&self.certificate, &contents.certificate)?;
        let expiry = chain.iter().filter_map(expiry).min();
        let had_expired = expiry.is_some_and(has_passed);
        if had_expired {
            log_expired(&self.certificate);
        }
        let key = PrivateKeyDer::from_pem_slice(&contents.key).map_err(|_| {
            TlsFileError::new(&self.key, "it has no private key as PEM without a passphrase")
        })?;
        provider.key_provider.load_private_key(key.clone_key()).map_err(|error| {
            let usable = "RSA of 2048 to 4096 bits, ECDSA P-256 or P-384, or Ed25519";
            let reason = format!("{error}; use {usable}");
            TlsFileError::new(&self.key, reason)
        })?;
        let mut config = config.with_single_cert(chain, key).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                let certificate = self.certificate.display();
                let reason = format!("it is not the key of the certificate in {certificate}");
                TlsFileError::new(&self.key, reason)
            }
            error => TlsFileError::new(&self.certificate, error),
        })?;
        if clients.is_some() {
            // A resumed session has the certificate of the first one, which may have expired since.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Current { config: Arc::new(config), clients, expiry, had_expired, fault: None })
    }
}

fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
    match CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>() {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        _ => Err(TlsFileError::new(path, "it has no certificate as PEM")),
    }
}

/// When a certificate expires, as Unix time.
fn expiry(certificate: &CertificateDer<'_>) -> Option<Duration> {
    let certificate = Certificate::from_der(certificate).ok()?;
    Some(certificate.tbs_certificate().validity().not_after.to_unix_duration())
}

fn has_passed(time: Duration) -> bool {
    SystemTime::now().duration_since(UNIX_EPOCH).is_ok_and(|now| now >= time)
}

/// Logs when the certificate in force expires while the server runs. The clock may be set meanwhile, so it
/// is looked at again and again.
async fn log_expiry(current: watch::Receiver<Current>, certificate: &Path) -> Infallible {
    let mut logged = None;
    loop {
        sleep(READ_INTERVAL).await;
        let (expiry, had_expired) = {
            let current = current.borrow();
            (current.expiry, current.had_expired)
        };
        if !had_expired && logged != expiry && expiry.is_some_and(has_passed) {
            log_expired(certificate);
            logged = expiry;
        }
    }
}

fn log_expired(certificate: &Path) {
    tracing::warn!("the certificate in {} has expired", certificate.display());
}

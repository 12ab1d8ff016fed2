//! The certificates of encrypted connections to a database.
//!
//! The driver reads their files for each connection. It is given what this crate has read, so that the last
//! good ones are kept.

use crate::{
    service_url::InvalidUrl,
    tls::{Certificates, NamedFiles},
};

/// Reads the files. `None` if the driver reads none, or finds the certificates in the URL itself.
///
/// # Errors
/// [`InvalidUrl`] if one can't be used.
pub(crate) fn read(
    mut named: NamedFiles,
    is_verified: bool,
) -> Result<Option<Certificates>, InvalidUrl> {
    let is_pem = |file: &str| file.trim_start().starts_with("-----BEGIN");
    if named.all().iter().any(|(_, file)| file.as_deref().is_some_and(is_pem)) {
        return Ok(None);
    }
    let has_identity = named.certificate.1.is_some() && named.key.1.is_some();
    if !is_verified && !has_identity {
        return Ok(None);
    }
    if !is_verified {
        named.authority.1 = None;
    }
    Certificates::read(named).map(Some)
}

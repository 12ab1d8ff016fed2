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
    named: NamedFiles,
    is_verified: bool,
) -> Result<Option<Certificates>, InvalidUrl> {
    let mut files = named.iter().filter_map(|(_, file)| file.as_deref());
    if files.any(|file| file.trim_start().starts_with("-----BEGIN")) {
        return Ok(None);
    }
    let [(authority, trusted), certificate, key] = named;
    let has_identity = certificate.1.is_some() && key.1.is_some();
    if !is_verified && !has_identity {
        return Ok(None);
    }
    let authority = (authority, trusted.filter(|_| is_verified));
    Certificates::read([authority, certificate, key]).map(Some)
}

//! The digests that a client sends with a body: `Content-Digest` (RFC 9530), and `Content-MD5` (RFC 1864),
//! which Terraform sends. A body that does not match was changed on its way.

use axum::http::{HeaderMap, HeaderName};
use base64::prelude::{BASE64_STANDARD, Engine};
use md5::Md5;
use sha2::{Digest, Sha256, Sha512};

use super::problem::Problem;

static CONTENT_DIGEST: HeaderName = HeaderName::from_static("content-digest");
static CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");

/// Rejects a body that does not match each of its digests.
pub(super) fn require_match(headers: &HeaderMap, body: &[u8]) -> Result<(), Problem> {
    for digest in headers.get_all(&CONTENT_MD5) {
        compare(&CONTENT_MD5, digest.as_bytes(), &Md5::digest(body))?;
    }
    for line in headers.get_all(&CONTENT_DIGEST) {
        for (algorithm, digest) in entries(line.as_bytes()) {
            match algorithm {
                b"md5" => compare(&CONTENT_DIGEST, digest, &Md5::digest(body))?,
                b"sha-256" => compare(&CONTENT_DIGEST, digest, &Sha256::digest(body))?,
                b"sha-512" => compare(&CONTENT_DIGEST, digest, &Sha512::digest(body))?,
                // The RFC lets a recipient ignore algorithms that it doesn't know.
                _ => {}
            }
        }
    }
    Ok(())
}

/// The entries of a line such as `sha-256=:47DE…=:, sha-512=:z4Ph…=:`.
fn entries(line: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    line.split(|byte| *byte == b',').filter_map(|entry| {
        let equals = entry.iter().position(|byte| *byte == b'=')?;
        let (algorithm, digest) = (entry[..equals].trim_ascii(), entry[equals + 1..].trim_ascii());
        let quoted = digest.strip_prefix(b":").and_then(|digest| digest.strip_suffix(b":"));
        Some((algorithm, quoted.unwrap_or(b"not between colons")))
    })
}

fn compare(header: &HeaderName, sent: &[u8], computed: &[u8]) -> Result<(), Problem> {
    if BASE64_STANDARD.decode(sent).is_ok_and(|sent| sent == computed) {
        return Ok(());
    }
    Err(Problem::malformed_request(format!(
        "the body does not match its {header}: it was changed on its way, or the header is wrong. \
         Nothing was changed: send the request again"
    )))
}

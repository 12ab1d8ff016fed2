//! The ids by which the logs of several programs are compared.

use axum::http::{HeaderMap, HeaderName, HeaderValue};

use super::request::single;

/// The longest id of a client that is kept.
const MAX_BYTES: usize = 128;

pub(super) static X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
static TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The id of a request, which is visible ASCII.
pub(super) struct RequestId(String);

impl RequestId {
    /// Takes the client's id. Makes one if there is none, or if it is too long or has other characters.
    pub(super) fn from_headers(headers: &HeaderMap) -> Self {
        let sent = single(headers, &X_REQUEST_ID).ok().flatten();
        let sent = sent.filter(|id| (1..=MAX_BYTES).contains(&id.len()));
        let sent = sent.filter(|id| id.iter().all(u8::is_ascii_graphic));
        Self(match sent {
            Some(id) => String::from_utf8_lossy(id).into_owned(),
            None => format!("{:032x}", fastrand::u128(..)),
        })
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn header(&self) -> HeaderValue {
        HeaderValue::from_str(&self.0).expect("it is visible ASCII")
    }
}

/// The id of the trace that the request belongs to (W3C Trace Context, section 3.2).
pub(super) fn trace_id(headers: &HeaderMap) -> Option<&str> {
    let header = std::str::from_utf8(single(headers, &TRACEPARENT).ok()??).ok()?;
    let mut parts = header.split('-');
    let mut hex = |digits: usize| {
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        parts.next().filter(|part| part.len() == digits && part.bytes().all(is_hex))
    };
    let (version, trace, parent, _flags) = (hex(2)?, hex(32)?, hex(16)?, hex(2)?);
    // A later version may have further parts.
    let is_known = version != "ff" && (version != "00" || parts.next().is_none());
    let is_zero = |id: &str| id.bytes().all(|byte| byte == b'0');
    (is_known && !is_zero(trace) && !is_zero(parent)).then_some(trace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_id_is_taken_from_a_valid_header_only() {
        let trace = "0af7651916cd43dd8448eb211c80319c";
        let of = |header: &str| {
            let headers = [(TRACEPARENT.clone(), HeaderValue::from_str(header).unwrap())];
            trace_id(&HeaderMap::from_iter(headers)).map(str::to_owned)
        };
        for valid in [
            format!("00-{trace}-b7ad6b7169203331-01"),
            format!("cc-{trace}-b7ad6b7169203331-01-later"),
        ] {
            assert_eq!(of(&valid).as_deref(), Some(trace), "{valid}");
        }
        for invalid in [
            String::new(),
            trace.to_owned(),
            format!("00-{trace}-b7ad6b7169203331"),
            format!("00-{trace}-b7ad6b7169203331-01-more"),
            format!("ff-{trace}-b7ad6b7169203331-01"),
            format!("00-{trace}-0000000000000000-01"),
            format!("00-{}-b7ad6b7169203331-01", "0".repeat(32)),
            format!("00-{}-b7ad6b7169203331-01", trace.to_uppercase()),
            format!("00-{trace}x-b7ad6b7169203331-01"),
        ] {
            assert_eq!(of(&invalid), None, "{invalid}");
        }
        assert_eq!(trace_id(&HeaderMap::new()), None);
    }
}

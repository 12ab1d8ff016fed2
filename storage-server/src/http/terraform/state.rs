//! What an upload must have to be a state.

use serde::{Deserialize, de::IgnoredAny};

use super::DEFAULT_METHODS;
use crate::http::problem::Problem;

/// The member of an upload that tells a lock from a state.
#[derive(Deserialize)]
struct Uploaded {
    #[serde(rename = "ID")]
    id: Option<IgnoredAny>,
}

/// Rejects an upload that is no JSON object, or a lock. With `TF_HTTP_LOCK_METHOD=POST`, Terraform sends
/// its lock as an upload.
pub(super) fn require_state(bytes: &[u8]) -> Result<(), Problem> {
    let no_state = |reason: &str| {
        let detail = format!("the body is no state, because it is no JSON object: {reason}");
        Problem::malformed_request(detail)
    };
    let json = str::from_utf8(bytes).map_err(|error| no_state(&error.to_string()))?;
    // serde takes an array for a struct, too.
    if !json.trim_ascii_start().starts_with('{') {
        return Err(no_state("it does not begin with a brace"));
    }
    let uploaded: Uploaded =
        serde_json::from_str(json).map_err(|error| no_state(&error.to_string()))?;
    match uploaded.id {
        Some(_) => Err(Problem::malformed_request(format!(
            "the body is a lock, and no state. {DEFAULT_METHODS}"
        ))),
        None => Ok(()),
    }
}

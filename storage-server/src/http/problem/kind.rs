//! The problem types, each of which has a page of its own.

use axum::http::StatusCode;

/// A problem type: what all problems of this type have in common.
#[derive(Debug)]
pub(in crate::http) struct Kind {
    pub(in crate::http) slug: &'static str,
    pub(in crate::http) status: StatusCode,
    pub(in crate::http) title: &'static str,
    pub(in crate::http) explanation: &'static str,
}

macro_rules! kinds {
    ($($name:ident = $slug:literal, $status:ident, $title:literal, $explanation:literal;)*) => {
        $(pub(super) static $name: Kind = Kind {
            slug: $slug,
            status: StatusCode::$status,
            title: $title,
            explanation: $explanation,
        };)*
        /// All problem types.
        pub(in crate::http) static KINDS: &[&Kind] = &[$(&$name),*];
    };
}

kinds! {
    MALFORMED_TOKEN = "malformed-token", BAD_REQUEST, "The fencing token is malformed",
        "The header Fencing-Token was sent more than once, or its value is not a token: a whole \
         number from 1 to 999999999999999 in plain digits, without a sign, spaces, decimals or \
         leading zeros. Send the token exactly as you got it with the lock.";
    MALFORMED_HOLDER = "malformed-holder", BAD_REQUEST, "The holder is malformed",
        "The header Fencing-Holder was sent more than once, or its value is not a holder: up to 128 \
         characters of visible ASCII, without spaces.";
    MALFORMED_SEQUENCE = "malformed-sequence", BAD_REQUEST, "The sequence number is malformed",
        "The header Fencing-Sequence was sent more than once, or its value is not a whole number from \
         1 to 999999999999999 in plain digits, without a sign, spaces, decimals or leading zeros.";
    MALFORMED_NAME = "malformed-name", BAD_REQUEST, "The resource's name is malformed",
        "A name is 1 to 512 bytes of UTF-8 without control characters. No segment between slashes \
         may be empty, '.' or '..', because clients and proxies rewrite such paths to another \
         resource. Slashes may be sent as they are; percent-encode all other reserved characters.";
    MALFORMED_REQUEST = "malformed-request", BAD_REQUEST, "The request is malformed",
        "A header, the query or the body can't be parsed. The detail says which.";
    NOT_FOUND = "not-found", NOT_FOUND, "There is nothing here",
        "The resource has no value or no fence, or the server does not serve this path. A fenced \
         read has claimed the resource even if it has no value.";
    METHOD_NOT_ALLOWED = "method-not-allowed", METHOD_NOT_ALLOWED, "The method is not allowed here",
        "The path exists, but does not support this method. The header Allow lists the methods \
         that it supports.";
    SLOW_BODY = "slow-body", REQUEST_TIMEOUT, "The body came too slowly",
        "For 5 seconds no byte of the body came, or fewer than 64 KiB each second after the first \
         10 seconds. While memory is short, the server waits for 1 second only. The \
         operation did not take effect, and never will: try again.";
    HEAD_TOO_LARGE = "head-too-large", REQUEST_HEADER_FIELDS_TOO_LARGE,
        "The request has too many headers",
        "A request may have at most 100 headers. The operation did not take effect.";
    WRONG_HOST = "wrong-host", MISDIRECTED_REQUEST, "The request is for another host",
        "The server listens only on this machine, and the request's Host is not localhost or a \
         loopback address. A page on the web could let its own name resolve to this machine, and so \
         have a browser send its requests here. A proxy in front of the server must send \
         'Host: localhost'.";
    HOLDER_CONFLICT = "holder-conflict", CONFLICT, "The token belongs to another holder",
        "The same token was already accepted from another holder: the lock's counter went backwards \
         and issued the token twice. Nothing was changed. If you have claimed this resource before, \
         another client has been let in since: discard what you have read, and start again by \
         acquiring the lock. If not, get a higher token for your lock (reissue) and claim with it.";
    SEQUENCE_TOO_OLD = "sequence-too-old", CONFLICT, "The sequence number is too old",
        "A write with a higher number (Fencing-Sequence) was already answered under this token and \
         holder, and the server has no answer to this one. It did not take effect now, and never will. \
         If outcome is none, no earlier try has taken effect either. If outcome is unknown, the server \
         has forgotten the answer: get a higher token for your lock, and make a fenced read with it.";
    STALE_TOKEN = "stale-token", PRECONDITION_FAILED, "The token is stale",
        "A higher token was already accepted for this resource, or an operator has raised its fence. \
         Nothing was changed. If this was a repeated write (Fencing-Sequence), its first try may have \
         taken effect all the same. Don't send the request again. If you have claimed this resource \
         before, another client has been let in since: discard what you have read, and start again by \
         acquiring the lock. If not, get a token above highest_token for your lock (reissue) and \
         claim with it.";
    UNAUTHENTICATED = "unauthenticated", UNAUTHORIZED, "The client is unknown",
        "The server has an auth file, and the request has no bearer token or client certificate of an \
         identity in it. Send the header 'Authorization: Bearer TOKEN' once, with the token that \
         'storage-server auth new' has printed. With this header, a certificate does not count.";
    FORBIDDEN = "forbidden", FORBIDDEN, "The client may not do this",
        "The server knows the client's identity, and none of its scopes has both the permission and a \
         prefix of the name. The answer says nothing about the resource. A fenced read needs the \
         permissions read and claim. A list needs a parameter 'prefix' within the scope.";
    TOKEN_TOO_HIGH = "token-too-high", FORBIDDEN, "The fencing token is too high",
        "The token is so far above the resource's fence that it would lock out the lock's other \
         clients. Nothing was changed. The member ceiling is the highest token that you may send for \
         this resource now. If your lock service really issues such tokens, ask the server's \
         operator to raise the ceiling (token-ceiling).";
    VERSION_MISMATCH = "version-mismatch", PRECONDITION_FAILED, "The version is another",
        "If-Match or If-None-Match was not met by the value's version, so the value was not \
         changed. The token was accepted, and has claimed the resource.";
    TRANSACTION_REJECTED = "transaction-rejected", CONFLICT,
        "A token of the transaction was rejected",
        "At least one write has a stale token, or one that belongs to another holder. Nothing was \
         changed, and no fence has advanced. The member writes has the decision on each write, and \
         conditions on each condition. Don't send the transaction again. Discard what you have read, \
         and start again by acquiring the locks whose tokens were rejected.";
    CONDITION_NOT_MET = "condition-not-met", PRECONDITION_FAILED,
        "A condition of the transaction was not met",
        "A resource has another version than the transaction requires. All tokens would have been \
         accepted, but nothing was changed, and no fence has advanced. The member conditions has the \
         version of each resource. Read the resources again, and send a new transaction.";
    NOT_JSON = "not-json", UNSUPPORTED_MEDIA_TYPE, "The body is not declared as JSON",
        "Transactions and states of Terraform need the header 'Content-Type: application/json'. A \
         browser asks the server before it sends such a request for a page of another origin.";
    SEQUENCE_REUSED = "sequence-reused", UNPROCESSABLE_ENTITY, "The sequence number is taken",
        "The number (Fencing-Sequence) was sent with another method, value, content type or condition \
         under this token and holder. Nothing was changed. A repeated write must be the same to the \
         byte, and each other write needs a higher number.";
    STATE_LOCKED = "state-locked", LOCKED, "The state is locked",
        "Another run of Terraform or OpenTofu holds the lock of the state, and nothing was changed. The \
         members are the lock as its client sent it, with the beginning of its ID only. Wait, for example with -lock-timeout=10m: the lock \
         is released at the end of the run, or expires. If you know that the run is dead, release its \
         lock with 'terraform force-unlock ID'.";
    STATE_LOCK_LOST = "state-lock-lost", CONFLICT, "The lock of the state was lost",
        "The ID in the request is not that of the state's lock. The lock was released, or it expired \
         and another run has acquired it since. Or another client has claimed the state under a higher \
         token. Nothing was changed. If this was an upload, Terraform \
         reports 'HTTP error: 409' and leaves the state in errored.tfstate. Don't push that file, although \
         Terraform suggests it: it would undo what the other run has recorded. What this run has done in the \
         cloud is done, and the present state doesn't know it. So run 'terraform plan', and compare it \
         with errored.tfstate: import what exists and is missing in the state, or delete it by hand.";
    VALUE_TOO_LARGE = "value-too-large", PAYLOAD_TOO_LARGE, "The value is too large",
        "The body has more bytes than the server's limit (--max-value-bytes).";
    ENCODED_VALUE = "encoded-value", UNSUPPORTED_MEDIA_TYPE, "The value is encoded",
        "Values are stored and served as they are sent, and a Content-Encoding is not kept. Send \
         the value without one.";
    TOKEN_REQUIRED = "token-required", PRECONDITION_REQUIRED, "A fencing token is required",
        "Writes, deletes and claims need the header Fencing-Token, with the token that came with \
         the lock. Without it, the server could not recognise a late writer. For the same reason, \
         Terraform's upload of a state needs the ID of a lock: set lock_address and unlock_address in \
         the backend, and don't use -lock=false.";
    TOO_MANY_REQUESTS = "too-many-requests", TOO_MANY_REQUESTS, "There are too many requests",
        "The server limits how many requests each identity may send a second, on average, and how many \
         at once (--requests-per-second). Without an identity, the client's address counts. The operation did \
         not take effect, and never will: try again after the time in the header Retry-After.";
    NO_TRANSACTIONS = "no-transactions", NOT_IMPLEMENTED,
        "The store has no transactions",
        "The server keeps its resources in object storage, which changes one resource at a time. Nothing \
         was changed. A transaction on one resource works. For several, the server needs SQLite or \
         PostgreSQL.";
    VERSION_NOT_REACHED = "version-not-reached", SERVICE_UNAVAILABLE,
        "The version is not there yet",
        "The request asks for a version (If-Version-At-Least), and what was read is older. The replica \
         lags behind its primary: try again after the time in the header Retry-After, or read without \
         the header. Without a replica, the database has lost the version, as in a restore from a \
         backup or a failover to an asynchronous replica.";
    UNAVAILABLE = "unavailable", SERVICE_UNAVAILABLE, "The server can't decide now",
        "The database can't be reached, the resource stays locked there, too many operations are \
         queued, or too many bytes are in flight. If outcome is none, the operation did not take \
         effect and never will: try again. If outcome is unknown, the operation may have taken \
         effect, or still may. Before anything else, get a higher token and make a fenced read with \
         it. The read shows whether the operation took effect, and prevents it from doing so later.";
}

//! The file of identities.

use std::{
    collections::HashSet,
    fs::OpenOptions,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::identity::Identity;
use crate::{
    guarded_file::{self, Guard},
    toml_error::line_and_message,
};

/// The auth file can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the auth file {} can't be used: {reason}", path.display())]
pub struct AuthFileError {
    path: PathBuf,
    reason: String,
}

impl AuthFileError {
    fn new(path: &Path, reason: impl ToString) -> Self {
        Self { path: path.to_owned(), reason: reason.to_string() }
    }
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default, rename = "identity")]
    identities: Vec<Identity>,
}

/// Reads the file's text.
///
/// # Errors
/// If it can't be read, or every user of the machine may write to it.
pub(super) fn read(path: &Path) -> Result<String, AuthFileError> {
    let bytes = guarded_file::read(path, Guard::NoOtherWriters);
    bytes.and_then(text).map_err(|error| AuthFileError::new(path, error))
}

/// Parses the file's text.
///
/// # Errors
/// If it has an unknown key, a name or a token twice, or no identity at all: a file that is just being
/// written is empty for a moment, and must not lock all clients out.
pub(super) fn parse(path: &Path, text: &str) -> Result<Vec<Arc<Identity>>, AuthFileError> {
    let identities = parse_document(text).map_err(|reason| AuthFileError::new(path, reason))?;
    if identities.is_empty() {
        let reason = "it has no identity; `storage-server auth new` makes one";
        return Err(AuthFileError::new(path, reason));
    }
    Ok(identities.into_iter().map(Arc::new).collect())
}

/// Adds an identity at the end of the file, which is created if it is missing. Returns its entry.
///
/// The file is written in place, so that its owner and permissions stay as they are.
///
/// # Errors
/// If the file is broken, already has the name, or can't be written.
pub(crate) fn append(path: &Path, identity: Identity) -> Result<String, AuthFileError> {
    let append = || -> io::Result<String> {
        let mut options = OpenOptions::new();
        let mut file = options.read(true).append(true).create(true).mode(0o600).open(path)?;
        // Two commands could otherwise add the same name.
        file.lock()?;
        let text = text(guarded_file::read_open(&file, Guard::NoOtherWriters)?)?;
        let entry = toml::to_string(&Document { identities: vec![identity] })
            .expect("an identity can be written as TOML");
        let empty_line = match text.as_bytes().last() {
            None => "",
            Some(b'\n') => "\n",
            Some(_) => "\n\n",
        };
        let entry = format!("{empty_line}{entry}");
        parse_document(&format!("{text}{entry}")).map_err(io::Error::other)?;
        let written = file.write_all(entry.as_bytes()).and_then(|()| file.sync_all());
        // A part of an entry would break the file.
        written.inspect_err(|_| drop(file.set_len(text.len() as u64)))?;
        Ok(entry)
    };
    append().map_err(|error| AuthFileError::new(path, error))
}

fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|_| io::Error::other("it is not UTF-8"))
}

fn parse_document(text: &str) -> Result<Vec<Identity>, String> {
    let document: Document =
        toml::from_str(text).map_err(|error| line_and_message(text, &error))?;
    let (mut names, mut hashes, mut certificates) =
        (HashSet::new(), HashSet::new(), HashSet::new());
    for Identity { name, token_sha256, certificate_san, .. } in &document.identities {
        if name.is_empty() || name.chars().any(char::is_control) {
            return Err(format!("{name:?} is not a name"));
        }
        if !names.insert(name) {
            return Err(format!("the name {name:?} is there twice"));
        }
        if token_sha256.is_none() && certificate_san.is_none() {
            return Err(format!("{name:?} has neither token-sha256 nor certificate-san"));
        }
        if token_sha256.is_some_and(|hash| !hashes.insert(String::from(hash))) {
            return Err(format!("the token of {name:?} belongs to another identity, too"));
        }
        if certificate_san.as_ref().is_some_and(|san| !certificates.insert(san)) {
            return Err(format!(
                "the certificate-san of {name:?} belongs to another identity, too"
            ));
        }
    }
    Ok(document.identities)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::access::{bearer::TokenHash, ceiling::Ceiling, identity::Permission};

    const ONE: &str = r#"
        [[identity]]
        name = "orders"
        token-sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

        [[identity.scope]]
        prefixes = ["orders/"]
        allow = ["read", "write"]
        token-ceiling = "1d"

        [[identity.scope]]
        prefixes = ["public/", "shared/"]
        allow = ["read"]
    "#;

    const SAN: &str = "certificate-san = \"spiffe://example.org/orders\"";

    /// The same identity, with this line in the place of its token.
    fn without_token(line: &str) -> String {
        let keeps = |kept: &&str| !kept.contains("token-sha256");
        let lines: Vec<_> = ONE.lines().filter(keeps).collect();
        lines.join("\n").replacen("[[identity]]", &format!("[[identity]]\n{line}"), 1)
    }

    fn ceiling(identity: &Identity, permission: Permission, name: &str) -> Option<u64> {
        let token = identity.ceiling(permission, name, Ceiling::Token("7".parse().unwrap()));
        token.map(fence::Token::as_u64)
    }

    #[test]
    fn scopes_add_up() {
        let identities = parse_document(ONE).unwrap();
        let [orders] = &identities[..] else { panic!("{identities:?}") };
        assert!(ceiling(orders, Permission::Write, "orders/1") > Some(1_700_000_000_000));
        assert_eq!(ceiling(orders, Permission::Read, "shared/1"), Some(7), "the server's own");
        for (permission, name) in [
            (Permission::Write, "shared/1"),
            (Permission::Claim, "orders/1"),
            (Permission::Read, "orders"),
            (Permission::Read, "Orders/1"),
            (Permission::Read, ""),
        ] {
            assert_eq!(ceiling(orders, permission, name), None, "{permission} {name}");
        }
        assert!(!orders.operates());
    }

    #[test]
    fn broken_files_are_rejected_with_a_reason() {
        let hash = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
        let cases = [
            (format!("{ONE}{ONE}"), "\"orders\" is there twice"),
            (format!("{ONE}{}", ONE.replace("\"orders\"", "\"b\"")), "token of \"b\" belongs"),
            (ONE.replace("name", "nickname"), "line 3: unknown field `nickname`"),
            (ONE.replace("prefixes", "prefix"), "unknown field `prefix`"),
            (format!("listen = 1\n{ONE}"), "line 1: unknown field `listen`"),
            (ONE.replace("\"write\"", "\"wirte\""), "unknown variant `wirte`"),
            (ONE.replace("1d", "soon"), "a token ceiling is"),
            (ONE.replace(hash, "12"), "64 hexadecimal digits"),
            (ONE.replace("\"orders\"", "\"\""), "is not a name"),
            (without_token(""), "\"orders\" has neither token-sha256 nor certificate-san"),
            (without_token("certificate-san = \"*.example.org\""), "a DNS name or a URI"),
            (
                without_token("certificate-san = \"orders\"\ncertificate-san = \"b\""),
                "duplicate key",
            ),
            (
                format!(
                    "{0}{1}",
                    without_token(SAN),
                    without_token(SAN).replace("\"orders\"", "\"b\"")
                ),
                "certificate-san of \"b\" belongs",
            ),
            (ONE.replace("]]", "]"), "line"),
        ];
        for (text, reason) in cases {
            let error = parse_document(&text).unwrap_err();
            assert!(error.contains(reason), "{reason:?} is in {error:?}");
        }
        let empty = parse(Path::new("auth.toml"), "# nobody yet").unwrap_err();
        assert!(empty.to_string().contains("auth.toml can't be used: it has no identity"));
    }

    #[test]
    fn entry_is_added_behind_all_others() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("auth.toml");
        let identity = |name: &str, number: u8| Identity {
            name: name.to_owned(),
            token_sha256: Some(TokenHash::from_token(&[number])),
            certificate_san: None,
            scopes: parse_document(ONE).unwrap().pop().unwrap().scopes,
        };
        append(&path, identity("a", 1)).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        append(&path, identity("b \"", 2)).unwrap();
        let before = read(&path).unwrap().trim_end().to_owned();
        std::fs::write(&path, &before).unwrap();
        append(&path, identity("c", 3)).unwrap();
        let identities = parse(&path, &read(&path).unwrap()).unwrap();
        let names: Vec<_> = identities.iter().map(|identity| identity.name.as_str()).collect();
        assert_eq!(names, ["a", "b \"", "c"]);

        let twice = append(&path, identity("a", 4)).unwrap_err();
        assert!(twice.to_string().contains("\"a\" is there twice"), "{twice}");
        assert_eq!(parse(&path, &read(&path).unwrap()).unwrap().len(), 3, "nothing was added");
    }
}

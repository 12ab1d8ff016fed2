//! The names of the objects of a resource.

use ::object_store::path::{Path, PathPart};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::name::ResourceName;

/// The bytes that a name is percent-encoded in: all except letters, digits and these three. None
/// of them needs another encoding in a URL, and no file system forbids them.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_');
/// The longest part of a path. File systems behind some stores permit 255 bytes.
const LONGEST_PART: usize = 200;
/// The first part of the paths of long names. No other name has it, because a tilde is encoded.
pub(super) const LONG_NAMES: &str = "~";
pub(super) const REGISTER: &str = "fence.register";

/// Where the objects of a resource are. No two of them are an object and a folder of one name,
/// because stores on file systems reject that.
#[derive(Clone, Debug)]
pub(super) struct Paths {
    pub(super) register: Path,
    /// The folder of the values that are objects of their own.
    pub(super) values: Path,
}

impl Paths {
    pub(super) fn new(prefix: &Path, resource: &ResourceName) -> Self {
        let folder = parts(resource).iter().fold(prefix.clone(), |folder, part| {
            // A path would encode the percent signs and the tilde once more.
            let part = PathPart::parse(part).expect("an encoded part has no slash");
            folder.join(part)
        });
        // Base64 for URLs has no dots: no part of a long name is one of these.
        Self { register: folder.clone().join(REGISTER), values: folder.join("fence.values") }
    }

    pub(super) fn value(&self, file: &str) -> Path {
        self.values.clone().join(file)
    }
}

fn parts(resource: &ResourceName) -> Vec<String> {
    let encoded = utf8_percent_encode(resource.as_str(), ENCODED).to_string();
    if encoded.len() <= LONGEST_PART {
        return vec![encoded];
    }
    let encoded = URL_SAFE_NO_PAD.encode(resource.as_str());
    let mut parts = vec![LONG_NAMES.to_owned()];
    let mut rest = encoded.as_str();
    while rest.len() > LONGEST_PART {
        let (part, others) = rest.split_at(LONGEST_PART);
        parts.push(part.to_owned());
        rest = others;
    }
    parts.push(rest.to_owned());
    parts
}

/// The resource whose objects are in the folder of these parts below the prefix. `None` if the folder is
/// no resource's.
pub(super) fn resource(folder: &[&str]) -> Option<ResourceName> {
    let name: Vec<u8> = match folder {
        [LONG_NAMES, parts @ ..] => URL_SAFE_NO_PAD.decode(parts.concat()).ok()?,
        [part] => percent_decode_str(part).collect(),
        _ => return None,
    };
    // Others may have put folders here whose names only look similar.
    let name = ResourceName::try_from(name).ok()?;
    (parts(&name) == folder).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn register(name: &str) -> String {
        Paths::new(&Path::from("my/prefix"), &name.parse().unwrap()).register.to_string()
    }

    #[test]
    fn names_are_readable_and_cannot_leave_their_folder() {
        assert_eq!(register("alice"), "my/prefix/alice/fence.register");
        assert_eq!(register("order/42"), "my/prefix/order%2F42/fence.register");
        assert_eq!(register("a%2Fb"), "my/prefix/a%252Fb/fence.register");
        assert_eq!(register("~"), "my/prefix/%7E/fence.register");
        assert_eq!(register("..."), "my/prefix/.../fence.register");
        assert_eq!(register("żółw"), "my/prefix/%C5%BC%C3%B3%C5%82w/fence.register");
    }

    #[test]
    fn folders_are_those_of_the_names_that_made_them() {
        for name in ["alice", "order/42", "a%2Fb", "~", "...", "żółw", &"/a".repeat(256)[1..]] {
            let name: ResourceName = name.parse().unwrap();
            let parts = parts(&name);
            let parts: Vec<_> = parts.iter().map(String::as_str).collect();
            assert_eq!(resource(&parts), Some(name));
        }
        for foreign in [&["order%2f42"][..], &["a b"], &["%00"], &["a", "b"], &["~"], &["~", "YQ"]]
        {
            assert_eq!(resource(foreign), None, "{foreign:?}");
        }
    }

    #[test]
    fn longest_names_fit_into_a_key_and_differ() {
        let names = [
            "x".repeat(512),
            format!("{}y", "x".repeat(511)),
            "🐢".repeat(128),
            "/a".repeat(256)[1..].to_owned(),
            "x".repeat(201),
            "ż".repeat(75),
            "ż".repeat(76),
        ];
        let mut registers: Vec<_> = names.iter().map(|name| register(name)).collect();
        for register in &registers {
            assert!(register.starts_with("my/prefix/~/"), "{register}");
            assert!(register.len() < 800, "{register}");
            assert!(register.split('/').all(|part| part.len() <= LONGEST_PART), "{register}");
        }
        registers.sort();
        registers.dedup();
        assert_eq!(registers.len(), names.len());
        assert!(!register(&"x".repeat(200)).contains('~'));
    }
}

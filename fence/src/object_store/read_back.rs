//! What a register says about a conditional write whose answer was lost or ambiguous.

use super::state::State;

/// What is known about a write after the register was read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadBack {
    /// The write was applied.
    Applied,
    /// The register is still as the writer had read it. The write may still be under way. The same
    /// bytes under the same condition may be sent again: only one of the two can be applied.
    MayStillLand,
    /// Another write took the place of this one. This one was not applied, and never will be: its
    /// condition can't hold again.
    NeverLands,
    /// Others have written too often since. This write may have been applied before them.
    Unknown,
}

/// Compares the register with a write that was sent when the register had the version `read`. Version
/// 0 is that of a register that does not exist yet. The register has this version, or a later one.
pub(super) fn read_back(read: u64, sent: &State, seen: Option<&State>) -> ReadBack {
    let Some(seen) = seen.filter(|seen| seen.version != read) else {
        return ReadBack::MayStillLand;
    };
    match seen.write_id_at(read + 1) {
        Some(write_id) if write_id == sent.write_id => ReadBack::Applied,
        // It does not matter who wrote it, and with which token.
        Some(_) => ReadBack::NeverLands,
        None => ReadBack::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::state::{KNOWN_WRITES, Value},
        *,
    };
    use crate::{Fence, Holder, Token};

    #[test]
    fn only_the_place_of_the_write_proves_its_outcome() {
        let fence = |token| Fence { token: Token::new(token).unwrap(), holder: Holder::EMPTY };
        let after =
            |before: Option<&State>, token| State::after(before, Some(&fence(token)), Value::None);
        let first = after(None, 33);
        let existing = after(Some(&first), 33);
        for before in [None, Some(&existing)] {
            let read = before.map_or(0, |before| before.version);
            let sent = after(before, 33);
            assert_eq!(read_back(read, &sent, before), ReadBack::MayStillLand);
            for (mut seen, expected) in [
                (sent.clone(), ReadBack::Applied),
                (after(before, 33), ReadBack::NeverLands),
                (after(before, 34), ReadBack::NeverLands),
            ] {
                for _ in 0..KNOWN_WRITES {
                    assert_eq!(read_back(read, &sent, Some(&seen)), expected);
                    seen = after(Some(&seen), 34);
                }
                assert_eq!(read_back(read, &sent, Some(&seen)), ReadBack::Unknown);
            }
        }
    }
}

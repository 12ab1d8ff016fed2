//! Versions of servers.

/// The numbers of a version such as `3.5.13-rc.1`, as far as they are numbers; `None` if not even the first two are.
pub(crate) fn numbers(version: &str) -> Option<Vec<u32>> {
    let numbers = version.split(['.', '-', '+']).map_while(|number| number.parse().ok());
    Some(numbers.collect()).filter(|numbers: &Vec<_>| numbers.len() >= 2)
}

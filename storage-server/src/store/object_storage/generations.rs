//! A map that forgets what was not used for long.

use std::{collections::HashMap, mem};

use fence::ResourceName;

/// What a map keeps for a resource.
pub(super) trait Kept {
    /// About how many bytes it has.
    fn bytes(&self) -> usize;
}

/// What is kept for resources. When the younger of two generations is full, it becomes the older one, and the
/// older one is forgotten.
#[derive(Debug)]
pub(super) struct Generations<V> {
    young: HashMap<ResourceName, V>,
    young_bytes: usize,
    old: HashMap<ResourceName, V>,
    /// How many bytes a generation has at most.
    most_bytes: usize,
}

impl<V: Kept> Generations<V> {
    pub(super) fn new(most_bytes: usize) -> Self {
        Self { young: HashMap::new(), young_bytes: 0, old: HashMap::new(), most_bytes }
    }

    pub(super) fn get(&self, resource: &ResourceName) -> Option<&V> {
        self.young.get(resource).or_else(|| self.old.get(resource))
    }

    pub(super) fn take(&mut self, resource: &ResourceName) -> Option<V> {
        match self.young.remove(resource) {
            Some(value) => {
                self.young_bytes -= bytes(resource, &value);
                Some(value)
            }
            None => self.old.remove(resource),
        }
    }

    pub(super) fn put(&mut self, resource: &ResourceName, value: V) {
        self.young_bytes += bytes(resource, &value);
        if let Some(replaced) = self.young.insert(resource.clone(), value) {
            self.young_bytes -= bytes(resource, &replaced);
        }
        if self.young_bytes >= self.most_bytes {
            self.young_bytes = 0;
            self.old = mem::take(&mut self.young);
        }
    }
}

fn bytes<V: Kept>(resource: &ResourceName, value: &V) -> usize {
    resource.as_str().len() + value.bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Kept for usize {
        fn bytes(&self) -> usize {
            *self
        }
    }

    fn name(number: usize) -> ResourceName {
        format!("{number:04}").parse().unwrap()
    }

    #[test]
    fn what_is_put_often_outlives_what_is_not() {
        let mut kept = Generations::new(100);
        for number in 0..30 {
            kept.put(&name(0), 6);
            kept.put(&name(number), 6);
        }
        assert_eq!(kept.get(&name(0)), Some(&6));
        assert_eq!(kept.get(&name(29)), Some(&6), "the last one");
        assert_eq!(kept.get(&name(1)), None, "the control");
        // What is replaced or taken counts no more.
        for _ in 0..100 {
            assert_eq!(kept.take(&name(29)), Some(6));
            kept.put(&name(29), 6);
        }
        assert_eq!(kept.get(&name(0)), Some(&6));
        // The larger, the fewer.
        for number in 1..3 {
            kept.put(&name(number), 1000);
        }
        assert_eq!(kept.get(&name(0)), None);
    }
}

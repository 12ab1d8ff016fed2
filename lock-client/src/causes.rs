//! The causes of an error.

use std::{error::Error, io, iter::successors};

type Cause<'a> = &'a (dyn Error + 'static);

/// An error and its causes. The error in an I/O error is no source of it.
pub(crate) fn causes<'a>(error: Cause<'a>) -> impl Iterator<Item = Cause<'a>> {
    successors(Some(error), |&error| {
        let inner = error.downcast_ref::<io::Error>().and_then(|error| error.get_ref());
        inner.map(|inner| inner as Cause<'a>).or_else(|| error.source())
    })
}

pub(crate) fn innermost(error: Cause<'_>) -> Cause<'_> {
    causes(error).last().expect("it begins with the error itself")
}

pub(crate) fn has_cause<T: Error + 'static>(error: Cause<'_>) -> bool {
    causes(error).any(|cause| cause.is::<T>())
}

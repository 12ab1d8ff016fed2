//! The offset of the clock.

use std::{
    env,
    fs::File,
    os::fd::AsRawFd,
    ptr,
    sync::atomic::{AtomicI64, AtomicPtr, Ordering},
};

use libc::{c_char, c_int};

use crate::vdso;

const SIZE: usize = size_of::<i64>();

/// The address at which the file is mapped; null if it is not, or not yet.
static OFFSET_MS: AtomicPtr<AtomicI64> = AtomicPtr::new(ptr::null_mut());

/// Has the loader map the file before `main`. Callers that are still earlier get the true time.
#[used]
#[unsafe(link_section = ".init_array")]
static MAP: extern "C" fn(c_int, *const *const c_char) = map;

/// Returns the offset at this moment, in milliseconds.
pub(crate) fn millis() -> i64 {
    // SAFETY: it is null, or points to a mapping of `SIZE` bytes that is aligned to a page and
    // stays.
    let offset = unsafe { OFFSET_MS.load(Ordering::Acquire).as_ref() };
    offset.map_or(0, |offset| offset.load(Ordering::Relaxed))
}

/// The arguments are those of the program, in the C library of GNU.
extern "C" fn map(count: c_int, arguments: *const *const c_char) {
    let Some(path) = env::var_os("FENCED_CLOCK_OFFSET_FILE") else { return };
    let Ok(file) = File::open(path) else { return };
    // To read a mapping beyond the end of its file would kill the process.
    if !file.metadata().is_ok_and(|metadata| metadata.len() >= SIZE as u64) {
        return;
    }
    // SAFETY: it is a new mapping of an open file, at an address that the kernel chooses.
    let mapped = unsafe {
        libc::mmap(ptr::null_mut(), SIZE, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0)
    };
    if mapped != libc::MAP_FAILED {
        OFFSET_MS.store(mapped.cast(), Ordering::Release);
        if cfg!(target_env = "gnu") {
            // SAFETY: the loader calls this with them, before the program begins.
            unsafe { vdso::replace(count, arguments) };
        }
    }
}

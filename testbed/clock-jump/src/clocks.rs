//! The functions that replace those of the C library which return the time. Each asks the kernel.
//! None looks up the function that it replaces: that could allocate, and the caller may be the
//! allocator.

use libc::{
    CLOCK_REALTIME, CLOCK_REALTIME_COARSE, SYS_clock_gettime, c_int, clockid_t, time_t, timespec,
    timeval,
};

use crate::offset;

const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// `struct timezone`: minutes west of Greenwich, and a kind of summer time.
type TimeZone = [c_int; 2];

/// `clock_gettime(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int {
    // SAFETY: the kernel checks the pointer, and returns -1 if it is bad.
    let answer = unsafe { libc::syscall(SYS_clock_gettime, clock, time) };
    if answer != 0 {
        return -1;
    }
    if matches!(clock, CLOCK_REALTIME | CLOCK_REALTIME_COARSE) {
        // SAFETY: the kernel has just written to it.
        unsafe { *time = shifted(*time, offset::millis()) };
    }
    0
}

/// `gettimeofday(2)`. The time zone is zero, as in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn gettimeofday(time: *mut timeval, zone: *mut TimeZone) -> c_int {
    if !time.is_null() {
        let now = now();
        let now = timeval { tv_sec: now.tv_sec, tv_usec: now.tv_nsec / 1000 };
        // SAFETY: the caller passes a pointer to such a value.
        unsafe { time.write(now) };
    }
    if !zone.is_null() {
        // SAFETY: the caller passes a pointer to such a value.
        unsafe { zone.write(TimeZone::default()) };
    }
    0
}

/// `time(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn time(time: *mut time_t) -> time_t {
    let now = now().tv_sec;
    if !time.is_null() {
        // SAFETY: the caller passes a pointer to such a value.
        unsafe { time.write(now) };
    }
    now
}

fn now() -> timespec {
    let mut now = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid. The call can't fail, because every kernel has this clock.
    unsafe { clock_gettime(CLOCK_REALTIME, &raw mut now) };
    now
}

fn shifted(time: timespec, millis: i64) -> timespec {
    let nanos = time.tv_nsec + millis.rem_euclid(1000) * 1_000_000;
    let seconds = millis.div_euclid(1000) + nanos / NANOS_PER_SECOND;
    timespec { tv_sec: time.tv_sec.saturating_add(seconds), tv_nsec: nanos % NANOS_PER_SECOND }
}

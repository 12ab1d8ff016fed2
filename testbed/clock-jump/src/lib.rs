//! A library to be preloaded (`LD_PRELOAD`) into a process, whose wall clock it shifts while it runs,
//! as if an operator, or a wrong NTP server, had set it. The monotonic clocks go on as they are.
//!
//! The file named by the environment's `FENCED_CLOCK_OFFSET_FILE` tells by how much: milliseconds, an
//! `i64` in the machine's byte order. Whoever writes these 8 bytes at once has the clock jump. Without
//! the file it is not shifted.
//!
//! Made for redis-server, whose allocator reads the clock while it sets itself up: so what stands in
//! for the C library's functions allocates nothing, looks nothing up, and can't panic. Linux only.

#[cfg(target_os = "linux")]
mod clocks;
#[cfg(target_os = "linux")]
mod offset;

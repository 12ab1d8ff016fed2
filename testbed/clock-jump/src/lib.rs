//! A library that shifts the wall clock of a running process into which it is preloaded
//! (`LD_PRELOAD`), as if an operator or a wrong NTP server had set the clock. The monotonic clocks
//! stay as they are.
//!
//! The offset is in the file that the environment's `FENCED_CLOCK_OFFSET_FILE` names: an `i64` of
//! milliseconds, in the machine's byte order. The clock jumps when these 8 bytes are written at
//! once. Without the file, the clock is not shifted.
//!
//! The allocator of redis-server reads the clock before it is ready. So the
//! functions here, which replace those of the C library, don't allocate, don't look up symbols, and
//! can't panic. Linux only.
//!
//! Programs in Go ask the kernel's library instead. It is replaced before they begin. A static program
//! loads no library, and keeps the machine's clock.

#[cfg(target_os = "linux")]
mod clocks;
#[cfg(target_os = "linux")]
mod offset;
#[cfg(target_os = "linux")]
mod vdso;

//! Programs in Go do not ask the C library for the time. They find `clock_gettime` in a library that the
//! kernel maps into each process (`vdso(7)`). The image here stands in for that library, and names our
//! function.
//!
//! It has what Go's runtime reads (`runtime/vdso_linux.go`), and no more: it lacks the magic number of
//! ELF, so that other readers turn it down. Go's `syscall.Gettimeofday` keeps the machine's clock.

use std::{
    mem::{self, offset_of},
    ptr,
};

use libc::{
    AT_NULL, AT_SYSINFO_EHDR, Elf64_Ehdr, Elf64_Phdr, Elf64_Sym, PT_DYNAMIC, PT_LOAD, c_char, c_int,
};

use crate::clocks::clock_gettime;

/// The name that Go looks up. It depends on the architecture.
const NAME: &[u8] =
    if cfg!(target_arch = "aarch64") { b"__kernel_clock_gettime" } else { b"__vdso_clock_gettime" };
/// A global function (`STB_GLOBAL`, `STT_FUNC`).
const GLOBAL_FUNCTION: u8 = 1 << 4 | 2;

/// The kinds of entries of the dynamic section. Each has the place of one part.
const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_VERDEF: u64 = 0x6fff_fffc;

/// An ELF file in memory. All places are counted from its first byte.
#[repr(C)]
struct Image {
    header: Elf64_Ehdr,
    segments: [Elf64_Phdr; 2],
    /// The last one is zero.
    dynamic: [[u64; 2]; 5],
    /// The first one is nobody's.
    symbols: [Elf64_Sym; 2],
    /// The count of buckets, the count of symbols, the one bucket, and a link for each symbol.
    hash: [u32; 5],
    /// The version of the file itself (`VER_FLG_BASE`), of 20 bytes. The symbols have none. Without any,
    /// Go reads a null pointer.
    version: [u16; 10],
    /// The first one is empty.
    names: [u8; 32],
}

/// An entry of the list that the kernel passes to a program behind its environment (`getauxval(3)`).
#[repr(C)]
struct Auxiliary {
    kind: u64,
    value: u64,
}

/// Tells a program in Go to read the clock of this library.
///
/// # Safety
/// These are the arguments that the kernel has passed to the program, which has not begun, and their
/// count.
pub(crate) unsafe fn replace(count: c_int, arguments: *const *const c_char) {
    // SAFETY: the environment begins behind the null pointer that ends the arguments.
    let mut end = unsafe { arguments.offset(count as isize + 1) };
    // SAFETY: the environment ends with a null pointer, too.
    while !unsafe { end.read() }.is_null() {
        // SAFETY: this is not its end.
        end = unsafe { end.add(1) };
    }
    // SAFETY: the list begins behind that end.
    let mut next = unsafe { end.add(1) }.cast_mut().cast::<Auxiliary>();
    loop {
        // SAFETY: nobody reads the list before the program begins, and it ends with `AT_NULL`.
        let entry = unsafe { &mut *next };
        match entry.kind {
            AT_NULL => return,
            AT_SYSINFO_EHDR => entry.value = ptr::from_ref(image()).addr() as u64,
            _ => {}
        }
        // SAFETY: this is not its end.
        next = unsafe { next.add(1) };
    }
}

/// Makes the image, which stays.
fn image() -> &'static Image {
    // SAFETY: zero is a value of each of its numbers.
    let image = Box::leak(Box::new(unsafe { mem::zeroed::<Image>() }));
    let begin = ptr::from_ref(image).addr() as u64;
    image.header.e_phoff = offset_of!(Image, segments) as u64;
    image.header.e_phnum = 2;
    image.segments[0].p_type = PT_LOAD;
    image.segments[1].p_type = PT_DYNAMIC;
    image.segments[1].p_offset = offset_of!(Image, dynamic) as u64;
    image.dynamic = [
        [DT_STRTAB, offset_of!(Image, names) as u64],
        [DT_SYMTAB, offset_of!(Image, symbols) as u64],
        [DT_HASH, offset_of!(Image, hash) as u64],
        [DT_VERDEF, offset_of!(Image, version) as u64],
        [0, 0],
    ];
    let function = clock_gettime as *const () as u64;
    image.symbols[1] = Elf64_Sym {
        st_name: 1,
        st_info: GLOBAL_FUNCTION,
        st_other: 0,
        st_shndx: 1,
        // The sum of both wraps around to the function.
        st_value: function.wrapping_sub(begin),
        st_size: 0,
    };
    image.hash = [1, 2, 1, 0, 0];
    image.version[1] = 1;
    image.names[1..=NAME.len()].copy_from_slice(NAME);
    image
}

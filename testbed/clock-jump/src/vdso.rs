//! The clock of programs in Go, which ask no C library. They look up `clock_gettime` in an image of a
//! library that the kernel maps into each process (`vdso(7)`). Here is another image, which has the
//! function of this library in its place.
//!
//! It has what Go's runtime reads (`runtime/vdso_linux.go`), and no more.

use std::{
    mem::{self, offset_of},
    ptr,
};

use libc::{
    AT_NULL, AT_SYSINFO_EHDR, Elf64_Ehdr, Elf64_Phdr, Elf64_Sym, PT_DYNAMIC, PT_LOAD, c_char,
};

use crate::clocks::clock_gettime;

/// The name of the function. That of the kernel's depends on the architecture.
const NAME: &[u8] =
    if cfg!(target_arch = "aarch64") { b"__kernel_clock_gettime" } else { b"__vdso_clock_gettime" };
/// A global function (`STB_GLOBAL`, `STT_FUNC`).
const GLOBAL_FUNCTION: u8 = 1 << 4 | 2;

/// The kinds of entries of the dynamic section. Each has the place of one part.
const NAMES: u64 = 5;
const SYMBOLS: u64 = 6;
const HASH: u64 = 4;
const VERSIONS: u64 = 0x6fff_fffc;

/// An ELF file in memory. All places are counted from its first byte.
#[repr(C)]
struct Image {
    header: Elf64_Ehdr,
    segments: [Elf64_Phdr; 2],
    /// The last one is zero.
    dynamic: [[u64; 2]; 5],
    /// The first one is nobody's.
    symbols: [Elf64_Sym; 2],
    /// The number of buckets, that of symbols, the one bucket, and what follows each symbol in it.
    hash: [u32; 5],
    /// The version of the file itself (`VER_FLG_BASE`). The symbols have none.
    versions: [u16; 10],
    /// The first one is empty.
    names: [u8; 32],
}

/// An entry of the list that the kernel passes to a program behind its environment (`getauxval(3)`).
#[repr(C)]
struct Auxiliary {
    kind: u64,
    value: u64,
}

unsafe extern "C" {
    /// The variables of the environment (`environ(7)`). Until the program begins, they are where the
    /// kernel has put them.
    static environ: *const *const c_char;
}

/// Tells a program in Go to read the clock of this library.
///
/// # Safety
/// The program has not begun, and has one thread.
pub(crate) unsafe fn replace() {
    // SAFETY: no other thread changes it.
    let mut end = unsafe { environ };
    // SAFETY: the environment ends with a null pointer.
    while !unsafe { end.read() }.is_null() {
        // SAFETY: this is not its end.
        end = unsafe { end.add(1) };
    }
    // SAFETY: the list begins behind that end.
    let mut entry = unsafe { end.add(1) }.cast_mut().cast::<Auxiliary>();
    // SAFETY: there is no other thread, and the list ends with `AT_NULL`.
    while let Some(Auxiliary { kind, value }) = unsafe { entry.as_mut() } {
        match *kind {
            AT_NULL => return,
            AT_SYSINFO_EHDR => *value = ptr::from_ref(image()).addr() as u64,
            _ => {}
        }
        // SAFETY: this is not its end.
        entry = unsafe { entry.add(1) };
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
        [NAMES, offset_of!(Image, names) as u64],
        [SYMBOLS, offset_of!(Image, symbols) as u64],
        [HASH, offset_of!(Image, hash) as u64],
        [VERSIONS, offset_of!(Image, versions) as u64],
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
    image.versions[1] = 1;
    image.names[1..=NAME.len()].copy_from_slice(NAME);
    image
}

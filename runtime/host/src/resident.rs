//! Returns memory that only the start of this process needed: code that runs once (arguments, schemas, discovery at the
//! API server) would otherwise stay mapped as long as the process lives, and the allocator would keep freed memory.

use std::fs;

use qosm_model::unit::Bytes;

/// Resident memory of this process, before and after [`release_unused_memory`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Released {
    /// Resident memory before the release.
    pub before: Bytes,
    /// Resident memory after it.
    pub after: Bytes,
}

/// Unmaps the code and constants of this program and its libraries, and makes the allocator return free pages. The
/// kernel maps pages again from the page cache when they are used, several at a time, so only unused pages stay
/// unmapped.
pub fn release_unused_memory() -> Released {
    let before = resident();
    sys::unmap_constant_segments();
    sys::trim_heap();
    Released { before, after: resident() }
}

/// Resident memory as the kernel counts it; 0 if it is unknown.
#[expect(clippy::disallowed_methods, reason = "of this very process, whichever directories it was handed")]
fn resident() -> Bytes {
    let text = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0);
    Bytes(pages.saturating_mul(u64::try_from(rustix::param::page_size()).unwrap_or(4096)))
}

#[expect(
    unsafe_code,
    reason = "what the loader has mapped, and the allocator of the C library, are had in no other way"
)]
mod sys {
    use std::ffi::{c_int, c_void};

    use rustix::mm::{Advice, madvise};

    /// Calls `each_object` for the program and for each loaded library.
    pub(super) fn unmap_constant_segments() {
        // SAFETY: `each_object` only uses the arguments from `dl_iterate_phdr`; the data pointer is null.
        unsafe { libc::dl_iterate_phdr(Some(each_object), std::ptr::null_mut()) };
    }

    /// # Safety
    ///
    /// `info` must be the pointer that `dl_iterate_phdr` passes to its callback.
    unsafe extern "C" fn each_object(info: *mut libc::dl_phdr_info, _: usize, _: *mut c_void) -> c_int {
        // SAFETY: dl_iterate_phdr(3): `info` points to a valid structure until this returns, and `dlpi_phdr` to `dlpi_phnum` headers.
        let (base, headers) = unsafe {
            let info = &*info;
            (info.dlpi_addr, std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)))
        };
        let page = rustix::param::page_size();
        for header in headers {
            // A segment that was never writable equals the file: the loader applied no relocations to it.
            if header.p_type != libc::PT_LOAD || header.p_flags & libc::PF_W != 0 {
                continue;
            }
            let (Some(start), Ok(length)) = (base.checked_add(header.p_vaddr), usize::try_from(header.p_memsz)) else {
                continue;
            };
            let Ok(start) = usize::try_from(start) else { continue };
            let first = start / page * page;
            let Some(end) = start.checked_add(length).map(|end| end.next_multiple_of(page)) else { continue };
            // SAFETY: the range is a file mapping that was never written, so each page has the same content when it is
            // mapped again; if the kernel refuses the advice (as for the vDSO), nothing changes.
            unsafe { madvise(std::ptr::with_exposed_provenance_mut(first), end - first, Advice::LinuxDontNeed).ok() };
        }
        0
    }

    /// Returns free heap pages. Only glibc caches enough memory to make this worth a call.
    pub(super) fn trim_heap() {
        #[cfg(target_env = "gnu")]
        // SAFETY: malloc_trim(3) may be called at any time from any thread.
        unsafe {
            libc::malloc_trim(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_after_all_comes_back_as_it_was() {
        static CONSTANT: [u8; 64] = *b"a constant that is read before and after its page was unmapped..";
        let mut heap = vec![7_u8; 1 << 20];
        let before: u32 = CONSTANT.iter().copied().map(u32::from).sum();
        let released = release_unused_memory();
        assert_ne!(released.before, Bytes(0));
        assert_eq!(CONSTANT.iter().copied().map(u32::from).sum::<u32>(), before);
        heap.push(8);
        assert!(heap.iter().rev().skip(1).all(|&byte| byte == 7));
        assert_eq!("text: ".to_owned() + &format!("{:?}", Some(1)), "text: Some(1)", "code works too");
    }

    #[cfg(target_env = "gnu")]
    #[test]
    fn freed_memory_is_returned() {
        let small: Vec<Box<[u8; 512]>> = (0..65_536).map(|_| Box::new([1; 512])).collect();
        let full = resident();
        drop(small);
        let Released { after, .. } = release_unused_memory();
        assert!(after.0 + (16 << 20) < full.0, "{full:?} with 32 MiB in use, {after:?} without");
    }
}

//! What only the start of this process needed, given back: code that runs once (arguments, schemas, discovery at the API server) stays
//! mapped otherwise for as long as the process lives, and the allocator keeps what was freed.

use std::fs;

use qosm_model::unit::Bytes;

/// Resident memory of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Released {
    /// Before.
    pub before: Bytes,
    /// After.
    pub after: Bytes,
}

/// Unmaps the code and constants of this program and its libraries, and has the allocator return free pages. Pages that
/// are used again are mapped from the page cache on first use, some at a time, so that only unused ones stay away.
pub fn release_unused_memory() -> Released {
    let before = resident();
    sys::unmap_constant_segments();
    sys::trim_heap();
    Released { before, after: resident() }
}

/// As the kernel counts it; 0 where it is unknown.
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

    /// Calls back for the program and for each library that is loaded.
    pub(super) fn unmap_constant_segments() {
        // SAFETY: `each_object` takes what `dl_iterate_phdr` hands it, and no data of ours.
        unsafe { libc::dl_iterate_phdr(Some(each_object), std::ptr::null_mut()) };
    }

    /// # Safety
    ///
    /// `info` has to be what `dl_iterate_phdr` hands its callback.
    unsafe extern "C" fn each_object(info: *mut libc::dl_phdr_info, _: usize, _: *mut c_void) -> c_int {
        // SAFETY: dl_iterate_phdr(3): it points to a valid structure until this returns, and in it `dlpi_phdr` to `dlpi_phnum` headers.
        let (base, headers) = unsafe {
            let info = &*info;
            (info.dlpi_addr, std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)))
        };
        let page = rustix::param::page_size();
        for header in headers {
            // A segment that was never writable has only what is in the file: no relocation was applied to it.
            if header.p_type != libc::PT_LOAD || header.p_flags & libc::PF_W != 0 {
                continue;
            }
            let (Some(start), Ok(length)) = (base.checked_add(header.p_vaddr), usize::try_from(header.p_memsz)) else {
                continue;
            };
            let Ok(start) = usize::try_from(start) else { continue };
            let first = start / page * page;
            let Some(end) = start.checked_add(length).map(|end| end.next_multiple_of(page)) else { continue };
            // SAFETY: the range is a mapping of the file that was never written, so each page reads the same when it is mapped again;
            // an advice that the kernel does not take (the vDSO's) changes nothing.
            unsafe { madvise(std::ptr::with_exposed_provenance_mut(first), end - first, Advice::LinuxDontNeed).ok() };
        }
        0
    }

    /// Only glibc caches enough memory to make this worth a call.
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

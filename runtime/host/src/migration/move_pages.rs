//! The system call move_pages(2), which has no maintained safe wrapper, in the only unsafe code of this crate.

use std::io;

use rustix::process::Pid;

/// The pages that move_pages(2) may move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moving {
    /// Pages that only this process has mapped (`MPOL_MF_MOVE`).
    Own,
    /// Shared pages too; needs `CAP_SYS_NICE` (`MPOL_MF_MOVE_ALL`).
    Shared,
}

/// Queries the node of each page of a process. `status` receives a node, or a negative error number, for each address.
///
/// # Errors
///
/// Errors of the system call: `ESRCH` without such a process, `EPERM` without the right to access it.
pub(crate) fn query(pid: Pid, addresses: &[u64], status: &mut Vec<i32>) -> io::Result<()> {
    call(pid, addresses, None, status, Moving::Own)
}

/// Moves each page to the node at the same index. `status` receives the result for each page, or [`NO_STATUS`] if the
/// kernel gives none: after the first page of a batch that cannot be moved.
///
/// # Errors
///
/// As [`query`].
pub(crate) fn move_to(
    pid: Pid,
    addresses: &[u64],
    nodes: &[i32],
    status: &mut Vec<i32>,
    moving: Moving,
) -> io::Result<()> {
    call(pid, addresses, Some(nodes), status, moving)
}

/// `MPOL_MF_MOVE` and `MPOL_MF_MOVE_ALL` of include/uapi/linux/mempolicy.h, which the crate `libc` lacks.
const MOVE: libc::c_int = 1 << 1;
const MOVE_ALL: libc::c_int = 1 << 2;

/// The kernel returned no status for a page.
pub(crate) const NO_STATUS: i32 = i32::MIN;

#[expect(
    unsafe_code,
    reason = "move_pages(2) has no safe wrapper; what it is handed is checked in this function alone"
)]
fn call(pid: Pid, addresses: &[u64], nodes: Option<&[i32]>, status: &mut Vec<i32>, moving: Moving) -> io::Result<()> {
    let pages = addresses.iter().map(|&address| usize::try_from(address)).collect::<Result<Vec<_>, _>>();
    let pages = pages.map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    if nodes.is_some_and(|nodes| nodes.len() != pages.len()) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    status.clear();
    status.resize(pages.len(), NO_STATUS);
    let flags = match moving {
        Moving::Own => MOVE,
        Moving::Shared => MOVE_ALL,
    };
    let target = nodes.map_or(std::ptr::null(), <[i32]>::as_ptr);
    // SAFETY: the kernel reads `pages.len()` words at `pages` and, unless the pointer is null, as many at `target`, and writes
    // as many to `status`; all three have just that length, checked above, and live until the call returns. The addresses
    // in `pages` belong to another process and are not used as pointers in this one.
    let returned = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            pid.as_raw_pid(),
            pages.len(),
            pages.as_ptr(),
            target,
            status.as_mut_ptr(),
            flags,
        )
    };
    // A positive number counts pages that were not moved, from Linux 4.17 on; a query finds them.
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use rustix::process::getpid;

    use super::*;

    #[test]
    fn a_page_of_our_own_is_somewhere() {
        let page = rustix::param::page_size() as u64;
        let owned = vec![1_u8; 4 * rustix::param::page_size()];
        let address = (owned.as_ptr() as u64).next_multiple_of(page);
        let mut status = Vec::new();
        query(getpid(), &[address, 0], &mut status).unwrap();
        assert!(status[0] >= 0, "{status:?}");
        assert!(status[1] < 0, "nothing is mapped at 0: {status:?}");
        assert_eq!(owned.iter().map(|&byte| u64::from(byte)).sum::<u64>(), 4 * page);
    }

    #[test]
    fn lists_of_unequal_length_are_refused() {
        let mut status = Vec::new();
        let error = move_to(getpid(), &[4096, 8192], &[0], &mut status, Moving::Own).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}

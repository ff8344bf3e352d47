//! A deadline after which the kernel ends this process, even while it waits.

use std::time::Duration;

/// Has the kernel end this process by `SIGALRM` after `time` in whole seconds, at least one. The parent of a process that has
/// become another user may lack the right to end it.
#[expect(unsafe_code, reason = "signal(2) and alarm(2) have no safe wrapper")]
pub fn end_after(time: Duration) {
    let seconds = u32::try_from(time.as_secs()).unwrap_or(u32::MAX).max(1);
    // SAFETY: both calls take numbers alone. The disposition that is set is the kernel's own, so no code of this process runs on the
    // signal; the parent may have ignored it, and that is inherited.
    unsafe {
        libc::signal(libc::SIGALRM, libc::SIG_DFL);
        libc::alarm(seconds);
    }
}

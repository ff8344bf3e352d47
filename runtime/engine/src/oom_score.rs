//! OOM score: which process the kernel kills first when memory runs out.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::{Mutex, PoisonError};

/// The highest score, for compilers: a killed compiler can be started again.
const FIRST: &[u8] = b"1000";

/// The OOM score of this process. A process that has confined itself can open neither its own `oom_score_adj` nor a
/// child's. Since children inherit their parent's score, this process raises its own score while it starts a child.
#[derive(Debug)]
pub struct OomScore {
    file: Mutex<File>,
    own: Vec<u8>,
}

impl OomScore {
    /// Opens `/proc/self/oom_score_adj`; called before confinement.
    ///
    /// # Errors
    ///
    /// If the score cannot be read, or cannot be written back unchanged: it could not be restored then.
    #[expect(clippy::disallowed_methods, reason = "opened before the process confines itself")]
    pub fn open() -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open("/proc/self/oom_score_adj")?;
        let mut own = vec![0; 16];
        let read = file.read_at(&mut own, 0)?;
        own.truncate(read);
        file.write_all_at(&own, 0)?;
        Ok(Self { file: Mutex::new(file), own })
    }

    /// Runs `start` with the highest score, which the process started in it inherits. One call runs at a time, and the
    /// score is restored even if `start` panics.
    pub(crate) fn first<T>(&self, start: impl FnOnce() -> T) -> T {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let _back = Back { file: &file, own: &self.own };
        // The child's memory is limited even if its score cannot be raised.
        let _ = file.write_all_at(FIRST, 0);
        start()
    }
}

struct Back<'a> {
    file: &'a File,
    own: &'a [u8],
}

impl Drop for Back<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.file.write_all_at(self.own, 0) {
            tracing::error!(%error, "oom_score_adj cannot be restored");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::process::{Command, Stdio};

    use super::*;

    fn score(process: &str) -> String {
        std::fs::read_to_string(format!("/proc/{process}/oom_score_adj")).unwrap().trim().to_owned()
    }

    #[test]
    fn a_child_is_ended_before_its_parent_whose_score_stays() {
        let own = score("self");
        let kept = OomScore::open().unwrap();
        let mut child = kept.first(|| Command::new("cat").stdin(Stdio::piped()).spawn()).unwrap();
        assert_eq!(score(&child.id().to_string()), "1000");
        assert_eq!(score("self"), own);
        drop(child.stdin.take());
        child.wait().unwrap();
        let panicked = catch_unwind(AssertUnwindSafe(|| kept.first(|| unreachable!("as it is meant"))));
        assert!(panicked.is_err());
        assert_eq!(score("self"), own);
    }
}

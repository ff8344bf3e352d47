//! Which process the kernel kills first when memory runs out.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::{Mutex, PoisonError};

/// The highest score: a compiler that is killed is only started again.
const FIRST: &[u8] = b"1000";

/// This process's own score, by which the kernel chooses. A process that has confined itself reaches no such file any more, neither its
/// own nor a child's; but children are born with their parent's score, so it is raised for the moment in which one is started.
#[derive(Debug)]
pub struct OomScore {
    file: Mutex<File>,
    own: Vec<u8>,
}

impl OomScore {
    /// Opens it, before confinement.
    ///
    /// # Errors
    ///
    /// When it cannot be read, or not be written as it is: then it could not be put back.
    #[expect(clippy::disallowed_methods, reason = "opened before the process confines itself")]
    pub fn open() -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open("/proc/self/oom_score_adj")?;
        let mut own = vec![0; 16];
        let read = file.read_at(&mut own, 0)?;
        own.truncate(read);
        file.write_all_at(&own, 0)?;
        Ok(Self { file: Mutex::new(file), own })
    }

    /// Whatever process is started within is ended first. One at a time, and put back whatever happens.
    pub(crate) fn first<T>(&self, start: impl FnOnce() -> T) -> T {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let _back = Back { file: &file, own: &self.own };
        // A child that is not ended first is still bounded in memory.
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

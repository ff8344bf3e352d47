//! Memory of compilers, which together use no more than is available.
//!
//! A container's memory limit applies to the agent and its compilers together, and a kubelet has the kernel kill all of
//! them if the limit is exceeded. So each compiler gets a limit of its own, at which only that compiler fails.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use qosm_model::unit::Bytes;

use crate::oom_score::OomScore;

/// Returns the memory that is currently available below the limits of this process; `None` if unknown.
type Left = dyn Fn() -> Option<Bytes> + Send + Sync;

/// The memory that compilers share.
#[derive(Clone)]
pub struct Memory(Arc<Shared>);

struct Shared {
    left: Box<Left>,
    /// Raises the OOM score of compilers, so that the kernel kills them before this process.
    score: Option<OomScore>,
    /// The shares of running compilers.
    given: Mutex<Vec<Bytes>>,
    /// Notified when a share is returned.
    back: Condvar,
}

impl Memory {
    /// Share of one compiler when memory is plentiful. It suffices for a 16 MiB module; a smaller module that exceeds it
    /// is not meant to be compiled.
    pub const MAX: Bytes = Bytes(1 << 30);

    /// Memory that the program itself needs: a compiler that is started with less fails with an error.
    const MIN: Bytes = Bytes(96 << 20);

    /// Memory of which `left` returns the amount that is currently available.
    pub fn of(left: impl Fn() -> Option<Bytes> + Send + Sync + 'static) -> Self {
        Self::with(left, None)
    }

    /// Like [`Self::of`], for a process that confines itself. Its compilers cannot raise their own OOM score and are
    /// started with the raised score.
    pub fn of_confined(left: impl Fn() -> Option<Bytes> + Send + Sync + 'static, score: OomScore) -> Self {
        Self::with(left, Some(score))
    }

    fn with(left: impl Fn() -> Option<Bytes> + Send + Sync + 'static, score: Option<OomScore>) -> Self {
        Self(Arc::new(Shared { left: Box::new(left), score, given: Mutex::default(), back: Condvar::new() }))
    }

    /// Takes a compiler's share, which returns when it is dropped. With `alone`, no other compiler has a share at the
    /// same time. Waits until a share is available.
    pub(crate) fn take(&self, alone: bool) -> Share {
        let mut given = self.0.given.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = loop {
            if let Some(bytes) = share((self.0.left)(), &given, alone) {
                break bytes;
            }
            given = self.0.back.wait(given).unwrap_or_else(PoisonError::into_inner);
        };
        given.push(bytes);
        Share { of: Arc::clone(&self.0), bytes }
    }
}

/// The next compiler's share of what is left beside the given shares: half, so that further compilers get some. With
/// `alone` three quarters, since the agent needs memory for the compiler's output. `None` while there is too little and
/// another compiler will return its share; without others it is at least [`Memory::MIN`].
fn share(left: Option<Bytes>, given: &[Bytes], alone: bool) -> Option<Bytes> {
    if alone && !given.is_empty() {
        return None;
    }
    let Some(Bytes(left)) = left else { return Some(Memory::MAX) };
    // Memory that running compilers have already allocated is counted twice, which errs on the safe side.
    let free = left.saturating_sub(given.iter().map(|given| given.0).sum());
    let share = if alone { free / 4 * 3 } else { free / 2 };
    let is_enough = share >= Memory::MIN.0 || given.is_empty();
    is_enough.then(|| Bytes(share.clamp(Memory::MIN.0, Memory::MAX.0)))
}

impl Default for Memory {
    /// No limit is known, so that each compiler gets [`Memory::MAX`].
    fn default() -> Self {
        Self::of(|| None)
    }
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory").finish_non_exhaustive()
    }
}

/// The memory of one compiler.
pub(crate) struct Share {
    of: Arc<Shared>,
    bytes: Bytes,
}

impl Share {
    pub(crate) fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// Starts the compiler of this share, with a raised OOM score if there is one.
    pub(crate) fn start<T>(&self, start: impl FnOnce() -> T) -> T {
        match &self.of.score {
            Some(score) => score.first(start),
            None => start(),
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut given = self.of.given.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = given.iter().position(|given| *given == self.bytes) {
            given.swap_remove(place);
        }
        self.of.back.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn compilers_share_what_is_left_and_wait_where_it_is_too_little() {
        let mib = |mib: u64| Bytes(mib * MIB);
        for (left, given, first, alone) in [
            (None, &[] as &[u64], Some(1024), Some(1024)),
            (None, &[1024], Some(1024), None),
            (Some(8 << 10), &[], Some(1024), Some(1024)),
            (Some(8 << 10), &[1024, 1024], Some(1024), None),
            (Some(400), &[], Some(200), Some(300)),
            (Some(400), &[200], Some(100), None),
            // The second waits: 81 MiB are less than a compiler needs.
            (Some(324), &[], Some(162), Some(243)),
            (Some(324), &[162], None, None),
            // One compiler is tried in any case.
            (Some(20), &[], Some(96), Some(96)),
            (Some(20), &[96], None, None),
        ] {
            let given: Vec<Bytes> = given.iter().copied().map(mib).collect();
            assert_eq!(share(left.map(mib), &given, false), first.map(mib), "{left:?} {given:?}");
            assert_eq!(share(left.map(mib), &given, true), alone.map(mib), "{left:?} {given:?}, alone");
        }
    }

    #[test]
    fn shares_together_are_no_more_than_what_is_left() {
        for left in (Memory::MIN.0 / MIB..3000).step_by(7) {
            let mut given = Vec::new();
            // At most four modules are compiled at the same time.
            while let Some(one) = share(Some(Bytes(left * MIB)), &given, false).filter(|_| given.len() < 4) {
                given.push(one);
            }
            let sum: u64 = given.iter().map(|given| given.0 / MIB).sum();
            assert!(!given.is_empty() && sum <= left, "{left}: {given:?}");
        }
    }

    #[test]
    fn a_compiler_that_finds_too_little_waits_for_the_others() {
        for (left, one, two, alone) in [(400, 200, 100, 300), (324, 162, 162, 243)] {
            let memory = Memory::of(move || Some(Bytes(left * MIB)));
            let first = memory.take(false);
            assert_eq!(first.bytes().0 / MIB, one);
            std::thread::scope(|scope| {
                let second = scope.spawn(|| memory.take(false).bytes().0 / MIB);
                let last = scope.spawn(|| memory.take(true).bytes().0 / MIB);
                if two < one {
                    assert_eq!(second.join().ok(), Some(two), "it takes nothing while the last one waits");
                    drop(first);
                    assert_eq!(last.join().ok(), Some(alone));
                } else {
                    drop(first);
                    assert_eq!(second.join().ok(), Some(two));
                    assert_eq!(last.join().ok(), Some(alone));
                }
            });
        }
    }
}

//! What this thread has allocated, and the most that it had at a time.
#![expect(unsafe_code, reason = "an allocator is one by an unsafe trait; this one hands everything on to the system's")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

thread_local! {
    static NOW: Cell<usize> = const { Cell::new(0) };
    static MAX: Cell<usize> = const { Cell::new(0) };
}

fn add(bytes: usize) {
    // A thread that ends frees what it had after its counters have gone.
    let _ = NOW.try_with(|now| {
        now.set(now.get().saturating_add(bytes));
        let _ = MAX.try_with(|most| most.set(most.get().max(now.get())));
    });
}

fn remove(bytes: usize) {
    let _ = NOW.try_with(|now| now.set(now.get().saturating_sub(bytes)));
}

// SAFETY: each call is the system allocator's, with the caller's own arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        remove(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // While it moves, both are there.
        add(size);
        remove(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.realloc(at, layout, size) }
    }
}

/// What something gives, and how much more than before the thread had allocated at most while it ran.
pub(crate) fn most_while<R>(run: impl FnOnce() -> R) -> (R, usize) {
    let before = NOW.get();
    MAX.set(before);
    let given = run();
    (given, MAX.get().saturating_sub(before))
}

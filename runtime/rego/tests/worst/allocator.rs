//! Counts the bytes that this thread has allocated, and their maximum.
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
    // A thread that ends frees memory after its counters are destroyed.
    let _ = NOW.try_with(|now| {
        now.set(now.get().saturating_add(bytes));
        let _ = MAX.try_with(|most| most.set(most.get().max(now.get())));
    });
}

fn remove(bytes: usize) {
    let _ = NOW.try_with(|now| now.set(now.get().saturating_sub(bytes)));
}

// SAFETY: each call is passed to the system allocator with the caller's arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller upholds the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        remove(layout.size());
        // SAFETY: the caller upholds the contract.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // During a move both allocations exist.
        add(size);
        remove(layout.size());
        // SAFETY: the caller upholds the contract.
        unsafe { System.realloc(at, layout, size) }
    }
}

/// Returns the result of `run`, and the maximum of bytes that the thread allocated during it beyond those before.
pub(crate) fn most_while<R>(run: impl FnOnce() -> R) -> (R, usize) {
    let before = NOW.get();
    MAX.set(before);
    let given = run();
    (given, MAX.get().saturating_sub(before))
}

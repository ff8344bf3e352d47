//! Averages of use: each pod, the node, the system beside the pods, and host applications.
//!
//! A mean weights windows by their measured length, so gaps and uneven evaluations do not distort it. Time is the sum of the evaluations'
//! windows, which a monotonic clock measures; setting the wall clock has no effect.
//!
//! The SDK's `RecentRate` keeps one entry per evaluation and cannot be saved, and its `Ewma` has no distribution and does not tell how long
//! it has measured. Using them here would need more code than they replace.

pub mod histogram;
pub mod peak;
pub mod tracker;
pub mod window;

use crate::strategy::MemoryView;

/// Memory in use, in parts. All amounts in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Anonymous memory, shared memory and kernel memory.
    pub without_cache: u64,
    /// Page cache that was used recently.
    pub hot_cache: u64,
    /// Page cache that was not used recently.
    pub cold_cache: u64,
}

impl MemoryUse {
    /// From the counters of a memory cgroup: `memory.current`, and `active_file` and `inactive_file` of `memory.stat`. The kernel's `file`
    /// is not used, since it counts shared memory, which cannot be dropped.
    pub fn of_cgroup(usage_bytes: u64, active_file_bytes: u64, inactive_file_bytes: u64) -> Self {
        // The counters are read one after another, so the parts may exceed the whole.
        let hot_cache = active_file_bytes.min(usage_bytes);
        let cold_cache = inactive_file_bytes.min(usage_bytes - hot_cache);
        Self { without_cache: usage_bytes - hot_cache - cold_cache, hot_cache, cold_cache }
    }

    /// From `/proc/meminfo` of the node: `MemTotal`, `MemAvailable`, `MemFree` and `Active(file)`.
    pub fn of_node(total_bytes: u64, available_bytes: u64, free_bytes: u64, active_file_bytes: u64) -> Self {
        let without_cache = total_bytes.saturating_sub(available_bytes);
        let cache = total_bytes.saturating_sub(free_bytes).saturating_sub(without_cache);
        let hot_cache = active_file_bytes.min(cache);
        Self { without_cache, hot_cache, cold_cache: cache - hot_cache }
    }

    /// The memory that counts as used.
    pub fn view(self, view: MemoryView) -> u64 {
        let hot = self.without_cache.saturating_add(self.hot_cache);
        match view {
            MemoryView::WithoutPageCache => self.without_cache,
            MemoryView::WithHotPageCache => hot,
            MemoryView::WithPageCache => hot.saturating_add(self.cold_cache),
        }
    }

    /// Applies a function to each pair of parts.
    #[must_use]
    pub(crate) fn with(self, other: Self, function: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            without_cache: function(self.without_cache, other.without_cache),
            hot_cache: function(self.hot_cache, other.hot_cache),
            cold_cache: function(self.cold_cache, other.cold_cache),
        }
    }
}

/// The measurements of one evaluation's window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// CPU time used within the window, in microseconds.
    pub cpu_usec: u64,
    /// Memory at the end of the window.
    pub memory: MemoryUse,
}

impl Sample {
    /// The sums, saturating.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            cpu_usec: self.cpu_usec.saturating_add(other.cpu_usec),
            memory: self.memory.with(other.memory, u64::saturating_add),
        }
    }

    /// The differences, at least 0 in each part.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self {
            cpu_usec: self.cpu_usec.saturating_sub(other.cpu_usec),
            memory: self.memory.with(other.memory, u64::saturating_sub),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_view_counts_its_part_of_the_page_cache() {
        let memory = MemoryUse { without_cache: 100, hot_cache: 20, cold_cache: 3 };
        for (view, bytes) in
            [(MemoryView::WithoutPageCache, 100), (MemoryView::WithHotPageCache, 120), (MemoryView::WithPageCache, 123)]
        {
            assert_eq!(memory.view(view), bytes);
        }
    }

    #[test]
    fn counters_become_parts_that_sum_up_to_the_use() {
        for (usage, active, inactive, parts) in [
            (100, 20, 30, (50, 20, 30)),
            (100, 0, 0, (100, 0, 0)),
            (100, 80, 30, (0, 80, 20)),
            (100, 130, 30, (0, 100, 0)),
            (0, 1, 1, (0, 0, 0)),
        ] {
            let memory = MemoryUse::of_cgroup(usage, active, inactive);
            assert_eq!((memory.without_cache, memory.hot_cache, memory.cold_cache), parts);
            assert_eq!(memory.view(MemoryView::WithPageCache), usage);
        }
        for (total, available, free, active, parts) in [
            (1000, 600, 100, 200, (400, 200, 300)),
            (1000, 600, 100, 900, (400, 500, 0)),
            (1000, 100, 300, 50, (900, 0, 0)),
            (1000, 2000, 0, 100, (0, 100, 900)),
        ] {
            let memory = MemoryUse::of_node(total, available, free, active);
            assert_eq!((memory.without_cache, memory.hot_cache, memory.cold_cache), parts, "{available} {free}");
        }
    }
}

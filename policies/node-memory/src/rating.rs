//! Makes batch pods wait for free memory before others do, on kernels without a watermark per group (`memory.wmark_min_adj`).
//!
//! A burst of allocations of batch pods pushes the node below the watermark `min`, where every process reclaims for itself, including
//! latency-sensitive ones; neither background reclaim of the node nor of a group starts early enough. Alibaba's kernel gives batch pods a
//! mark of their own between `min` and `low`. On other kernels, `memory.high` of the tier comes closest: below their mark, batch pods are
//! bound to what they use less what is missing up to the watermark `high`, so that they wait and reclaim their own memory. At `high`, where
//! the kernel's reclaim has caught up, the bound ends. It also ends when the node has not been short for some time: the kernel's reclaim
//! stops when one zone has enough, and the sum of all zones may stay below `high`.

use crate::config::Rating;

/// Smallest bound of batch pods, in bytes; also the unit of messages.
const MIB: u64 = 1 << 20;
/// Maximum cut of the bound at a time, in percent.
const CUT_PERCENT: u64 = 5;
/// Maximum time that batch pods wait after free memory was last below their mark, in microseconds.
const CALM_USEC: u64 = 10_000_000;

/// The inputs of a decision. Amounts are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inputs {
    /// Free memory of the node.
    pub free: u64,
    /// The kernel's watermarks: `min`, …
    pub min: u64,
    /// … `low` …
    pub low: u64,
    /// … and `high`.
    pub high: u64,
    /// Memory use of the tier besteffort.
    pub used: u64,
    /// Percent of the time in which some process of the node waited for memory; `None` if unknown.
    pub stall_percent: Option<u64>,
    /// Length of the measurement window, in microseconds.
    pub window_usec: u64,
}

/// State while batch pods wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// `memory.high` of the tier, in bytes.
    pub bound: u64,
    /// Minimum of the bound, in bytes.
    pub least: u64,
    /// Time since free memory was last below their mark, in microseconds.
    pub calm_usec: u64,
}

impl Waiting {
    /// The state after a window in which free memory was not below their mark; `None` if the wait is over.
    #[must_use]
    pub fn after(self, window_usec: u64) -> Option<Self> {
        let calm_usec = self.calm_usec.saturating_add(window_usec);
        (calm_usec < CALM_USEC).then_some(Self { calm_usec, ..self })
    }
}

/// The mark of batch pods, in bytes.
pub fn mark(config: &Rating, inputs: &Inputs) -> u64 {
    let way = u128::from(inputs.low.saturating_sub(inputs.min)) * u128::from(config.be_percent) / 100;
    inputs.min.saturating_add(u64::try_from(way).unwrap_or(u64::MAX))
}

/// Decides whether batch pods wait, and with which bound. The reason is empty if the bound stays.
pub fn decide(config: &Rating, inputs: &Inputs, before: Option<Waiting>) -> Option<(Waiting, String)> {
    let Inputs { free, low, high, used, stall_percent, window_usec, .. } = *inputs;
    let mark = mark(config, inputs);
    // The kernel counts batch pods that wait at their own bound as waiting for memory, so pressure is ignored while they are bound.
    let stalls = stall_percent.filter(|stalled| *stalled >= config.stall_percent && free < low && before.is_none());
    let is_short = free <= mark || stalls.is_some();
    if free >= high.max(low) {
        return None;
    }
    if !is_short {
        // The kernel has not caught up yet, but the node is not short any more: the bound stays.
        return Some((before?.after(window_usec)?, String::new()));
    }
    let why = match stalls {
        Some(stalled) if free > mark => format!(
            "{} MiB are free, less than the mark low of {} MiB, and processes wait for memory in {stalled} % of the time: batch waits until \
             {} MiB are free",
            free / MIB,
            low / MIB,
            high / MIB
        ),
        _ => format!(
            "free memory fell to {} MiB, the mark of batch is {} MiB: it waits until {} MiB are free",
            free / MIB,
            mark / MIB,
            high / MIB
        ),
    };
    let least = before.map_or(percent(used, config.least_percent), |before| before.least);
    let from = before.map_or(used, |before| before.bound.min(used));
    let bound = from.saturating_sub(high.saturating_sub(free).min(percent(from, CUT_PERCENT))).max(least);
    // A bound of 0 would mean the opposite.
    Some((Waiting { bound: bound.max(MIB), least, calm_usec: 0 }, why))
}

fn percent(of: u64, percent: u64) -> u64 {
    u64::try_from(u128::from(of) * u128::from(percent) / 100).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn config() -> Rating {
        Rating { enable: true, ..Rating::default() }
    }

    fn inputs(free_mib: u64) -> Inputs {
        Inputs {
            free: free_mib * MIB,
            min: 600 * MIB,
            low: 1600 * MIB,
            high: 2600 * MIB,
            used: 20 * GIB,
            stall_percent: Some(0),
            window_usec: 1_000_000,
        }
    }

    #[test]
    fn the_mark_of_batch_lies_between_min_and_low() {
        assert_eq!(mark(&config(), &inputs(0)), 1100 * MIB);
        assert_eq!(mark(&Rating { be_percent: 1, ..config() }, &inputs(0)), 610 * MIB);
    }

    #[test]
    fn batch_waits_from_its_mark_on_until_the_kernel_has_caught_up() {
        let config = config();
        assert_eq!(decide(&config, &inputs(1101), None), None);
        let (first, why) = decide(&config, &inputs(1100), None).unwrap();
        // The missing 1.5 GiB exceed a twentieth of the use, which limits the cut.
        assert_eq!(first.bound, 20 * GIB - 20 * GIB / 20);
        assert_eq!(
            why,
            "free memory fell to 1100 MiB, the mark of batch is 1100 MiB: it waits until 2600 MiB are free"
        );
        // More is free than their mark, but not enough: the bound stays.
        let (second, _) = decide(&config, &inputs(2599), Some(first)).unwrap();
        assert_eq!(second.bound, first.bound);
        assert_eq!(decide(&config, &inputs(2600), Some(second)), None);
    }

    #[test]
    fn batch_waits_no_longer_than_ten_seconds_where_free_memory_stays_below_the_mark_high() {
        let config = config();
        let (first, _) = decide(&config, &inputs(1100), None).unwrap();
        let calm = |seconds: u32, mut waiting: Waiting| {
            for _ in 0..seconds {
                waiting = decide(&config, &inputs(1101), Some(waiting))?.0;
            }
            Some(waiting)
        };
        let nine = calm(9, first).unwrap();
        assert_eq!(nine.bound, first.bound);
        assert_eq!(calm(1, nine), None);
        // When the node is short again, the time starts again, and more is cut from what is left.
        let (again, _) = decide(&config, &inputs(1100), Some(nine)).unwrap();
        assert!(again.bound < first.bound && calm(9, again).is_some());
        assert_eq!(again.least, first.least);
    }

    #[test]
    fn what_is_missing_is_taken_and_no_more() {
        let near = Inputs { used: 100 * GIB, ..inputs(1100) };
        let (waiting, _) = decide(&config(), &near, None).unwrap();
        assert_eq!(waiting.bound, 100 * GIB - 1500 * MIB);
    }

    #[test]
    fn batch_is_left_half_of_what_it_used() {
        let config = config();
        let (mut waiting, _) = decide(&config, &inputs(500), None).unwrap();
        for _ in 0..100 {
            let used = Inputs { used: waiting.bound, ..inputs(500) };
            (waiting, _) = decide(&config, &used, Some(waiting)).unwrap();
        }
        assert_eq!(waiting.bound, 10 * GIB);
    }

    #[test]
    fn pressure_counts_below_the_mark_low() {
        let config = config();
        let stalled = |free, percent| Inputs { stall_percent: percent, ..inputs(free) };
        assert_eq!(decide(&config, &stalled(1599, Some(9)), None), None);
        assert_eq!(decide(&config, &stalled(1600, Some(90)), None), None);
        assert_eq!(decide(&config, &stalled(1599, None), None), None);
        let (_, why) = decide(&config, &stalled(1599, Some(10)), None).unwrap();
        assert!(why.contains("1599 MiB are free, less than the mark low of 1600 MiB") && why.contains("10 %"), "{why}");
    }

    #[test]
    fn waiting_of_batch_itself_is_no_reason_to_have_it_wait_longer() {
        let config = config();
        let stalled = Inputs { stall_percent: Some(90), ..inputs(1500) };
        let (first, _) = decide(&config, &stalled, None).unwrap();
        let (second, _) = decide(&config, &stalled, Some(first)).unwrap();
        assert_eq!((second.bound, second.calm_usec), (first.bound, 1_000_000));
    }

    #[test]
    fn where_batch_uses_nothing_its_bound_is_not_nothing() {
        let (waiting, _) = decide(&config(), &Inputs { used: 0, ..inputs(100) }, None).unwrap();
        assert_eq!(waiting.bound, MIB);
    }
}

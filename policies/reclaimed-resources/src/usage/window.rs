//! A mean over a sliding window, in a bounded number of slots.

use std::collections::VecDeque;

use super::{MemoryUse, Sample};

/// The measurements of one slot of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Slot {
    /// Number of the slot: time divided by the length of a slot.
    index: u64,
    /// How much of the slot was measured, in microseconds.
    covered_usec: u64,
    /// CPU time used in the slot, in microseconds.
    cpu_usec: u64,
    /// Bytes times microseconds for each part of the memory.
    memory: [u128; 3],
}

/// A mean over some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mean {
    /// How much time was measured, in microseconds.
    pub covered_usec: u64,
    /// CPU use in thousandths of a CPU, rounded up.
    pub cpu_milli: u64,
    /// Memory in bytes, rounded up.
    pub memory: MemoryUse,
}

/// A sliding window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    slot_usec: u64,
    most: usize,
    /// Sorted, oldest first; each index occurs once.
    slots: VecDeque<Slot>,
    /// Slots below this index have been handed out by [`Window::take_closed`].
    taken: u64,
}

impl Window {
    /// A window of `span_usec` in `slots` slots, plus one for the partial slot. Values below 1 count as 1.
    pub fn over(span_usec: u64, slots: usize) -> Self {
        let slots = slots.max(1);
        let parts = u64::try_from(slots).unwrap_or(u64::MAX);
        Self { slot_usec: span_usec.div_ceil(parts).max(1), most: slots + 1, slots: VecDeque::new(), taken: 0 }
    }

    /// Length of a slot, in microseconds.
    pub fn slot_usec(&self) -> u64 {
        self.slot_usec
    }

    /// Adds the measurements of the window that ends now. A window of length 0 is ignored; of a long one only the part within reach counts.
    /// CPU time is spread evenly over the window; memory counts with its value at the end.
    pub fn add(&mut self, now_usec: u64, window_usec: u64, sample: &Sample) {
        if window_usec == 0 {
            return;
        }
        let start = now_usec.saturating_sub(window_usec);
        let last = now_usec.saturating_sub(1) / self.slot_usec;
        let reach = u64::try_from(self.most).unwrap_or(u64::MAX);
        let first = (start / self.slot_usec).max((last + 1).saturating_sub(reach));
        // Computed so that the parts add up to exactly the whole.
        let until = |moment: u64| scale(sample.cpu_usec, moment.saturating_sub(start).min(window_usec), window_usec);
        let MemoryUse { without_cache, hot_cache, cold_cache } = sample.memory;
        for index in first..=last {
            let from = start.max(index.saturating_mul(self.slot_usec));
            let to = now_usec.min((index + 1).saturating_mul(self.slot_usec));
            let part = to.saturating_sub(from);
            let slot = self.slot(index);
            slot.covered_usec = slot.covered_usec.saturating_add(part);
            slot.cpu_usec = slot.cpu_usec.saturating_add(until(to) - until(from));
            for (sum, bytes) in slot.memory.iter_mut().zip([without_cache, hot_cache, cold_cache]) {
                *sum = sum.saturating_add(u128::from(bytes) * u128::from(part));
            }
        }
        self.forget(last);
    }

    fn slot(&mut self, index: u64) -> &mut Slot {
        let at = self.slots.partition_point(|slot| slot.index < index);
        if self.slots.get(at).is_none_or(|slot| slot.index != index) {
            self.slots.insert(at, Slot { index, ..Slot::default() });
        }
        &mut self.slots[at]
    }

    /// Drops slots that are out of reach of slot `last`.
    fn forget(&mut self, last: u64) {
        let reach = u64::try_from(self.most).unwrap_or(u64::MAX);
        while self.slots.front().is_some_and(|slot| slot.index.saturating_add(reach) <= last) {
            self.slots.pop_front();
        }
    }

    /// The mean over the last `span_usec`, rounded up to whole slots; `None` if nothing was measured in that time.
    pub fn mean(&self, now_usec: u64, span_usec: u64) -> Option<Mean> {
        let mut sum = Slot::default();
        for slot in self.within(now_usec, span_usec) {
            sum.covered_usec = sum.covered_usec.saturating_add(slot.covered_usec);
            sum.cpu_usec = sum.cpu_usec.saturating_add(slot.cpu_usec);
            for (sum, part) in sum.memory.iter_mut().zip(slot.memory) {
                *sum = sum.saturating_add(part);
            }
        }
        sum.mean()
    }

    /// Calls a function with the mean of each slot that has ended since the last call.
    pub fn take_closed(&mut self, now_usec: u64, mut each: impl FnMut(&Mean)) {
        let open = now_usec / self.slot_usec;
        for slot in self.slots.iter().filter(|slot| (self.taken..open).contains(&slot.index)) {
            if let Some(mean) = slot.mean() {
                each(&mean);
            }
        }
        self.taken = self.taken.max(open);
    }

    fn within(&self, now_usec: u64, span_usec: u64) -> impl Iterator<Item = &Slot> {
        let from = now_usec.saturating_sub(span_usec);
        self.slots.iter().filter(move |slot| (slot.index + 1).saturating_mul(self.slot_usec) > from)
    }

    /// The mean of each slot and the time since its end, oldest first, for the saved state.
    pub(crate) fn aged(&self, now_usec: u64) -> impl Iterator<Item = (u64, Mean)> {
        self.slots.iter().filter_map(move |slot| {
            let end = (slot.index + 1).saturating_mul(self.slot_usec);
            Some((now_usec.saturating_sub(end), slot.mean()?))
        })
    }

    /// Adds a mean that ended `age_usec` ago; it is dropped if it is older than the window.
    pub(crate) fn restore(&mut self, now_usec: u64, age_usec: u64, mean: &Mean) {
        let Some(end) = now_usec.checked_sub(age_usec) else { return };
        let index = end.saturating_sub(1) / self.slot_usec;
        let last = now_usec.saturating_sub(1) / self.slot_usec;
        let covered = mean.covered_usec.min(self.slot_usec);
        let MemoryUse { without_cache, hot_cache, cold_cache } = mean.memory;
        let slot = self.slot(index);
        slot.covered_usec = slot.covered_usec.saturating_add(covered);
        slot.cpu_usec = slot.cpu_usec.saturating_add(scale(mean.cpu_milli, covered, 1000));
        for (sum, bytes) in slot.memory.iter_mut().zip([without_cache, hot_cache, cold_cache]) {
            *sum = sum.saturating_add(u128::from(bytes) * u128::from(covered));
        }
        self.taken = self.taken.max(index + 1);
        self.forget(last);
    }
}

impl Slot {
    fn mean(&self) -> Option<Mean> {
        let covered = u128::from(self.covered_usec);
        if covered == 0 {
            return None;
        }
        let fit = |value: u128| u64::try_from(value).unwrap_or(u64::MAX);
        let [without_cache, hot_cache, cold_cache] = self.memory.map(|sum| fit(sum.div_ceil(covered)));
        Some(Mean {
            covered_usec: self.covered_usec,
            cpu_milli: fit((u128::from(self.cpu_usec) * 1000).div_ceil(covered)),
            memory: MemoryUse { without_cache, hot_cache, cold_cache },
        })
    }
}

/// `amount × part ÷ whole`, rounded down. `whole` is not 0.
fn scale(amount: u64, part: u64, whole: u64) -> u64 {
    qosm_sdk::scale(amount, part, whole)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000;

    fn sample(cpu_usec: u64, bytes: u64) -> Sample {
        Sample { cpu_usec, memory: MemoryUse { without_cache: bytes, ..MemoryUse::default() } }
    }

    /// Adds windows of (seconds, thousandths of a CPU, bytes), starting at time 0.
    fn filled(window: &mut Window, parts: &[(u64, u64, u64)]) -> u64 {
        let mut now = 0;
        for (seconds, milli, bytes) in parts {
            now += seconds * SECOND;
            window.add(now, seconds * SECOND, &sample(milli * seconds * 1000, *bytes));
        }
        now
    }

    fn mean(window: &Window, now: u64, seconds: u64) -> Option<(u64, u64, u64)> {
        let mean = window.mean(now, seconds * SECOND)?;
        Some((mean.covered_usec / SECOND, mean.cpu_milli, mean.memory.without_cache))
    }

    #[test]
    fn the_mean_goes_by_time() {
        // 300 s in slots of 60 s.
        for (parts, expected) in [
            (&[] as &[_], None),
            (&[(1, 500, 10)], Some((1, 500, 10))),
            (&[(1, 1000, 10), (9, 0, 20)], Some((10, 100, 19))),
            (&[(60, 1000, 10), (60, 3000, 30)], Some((120, 2000, 20))),
            (&[(1, 1, 1), (1, 0, 0), (1, 0, 0)], Some((3, 1, 1))),
            (&[(100, 5000, 5), (300, 1000, 1)], Some((340, 1471, 2))),
            (&[(60, 5000, 5), (360, 1000, 1)], Some((300, 1000, 1))),
            (&[(3600, 2000, 7)], Some((300, 2000, 7))),
        ] {
            let mut window = Window::over(300 * SECOND, 5);
            let now = filled(&mut window, parts);
            assert_eq!(mean(&window, now, 300), expected, "{parts:?}");
        }
    }

    #[test]
    fn gaps_do_not_count_and_what_is_old_goes() {
        let mut window = Window::over(300 * SECOND, 5);
        filled(&mut window, &[(60, 1000, 10)]);
        for (now, expected) in
            [(60, Some((60, 1000, 10))), (359, Some((60, 1000, 10))), (360, None), (u64::MAX / SECOND, None)]
        {
            assert_eq!(mean(&window, now * SECOND, 300), expected, "{now}");
        }
        window.add(300 * SECOND, 10 * SECOND, &sample(30 * SECOND, 40));
        assert_eq!(mean(&window, 300 * SECOND, 300), Some((70, 1286, 15)), "230 s in between were not measured");
        window.add(300 * SECOND, 0, &sample(9 * SECOND, 9));
        assert_eq!(mean(&window, 300 * SECOND, 10), Some((10, 3000, 40)), "a window without length says nothing");
    }

    #[test]
    fn a_slot_that_ended_is_handed_out_once() {
        let mut window = Window::over(300 * SECOND, 5);
        let take = |window: &mut Window, now: u64| {
            let mut seen = Vec::new();
            window.take_closed(now, |mean| seen.push(mean.cpu_milli));
            seen
        };
        for (seconds, milli, closed) in [
            (30, 1000, vec![]),
            (60, 2000, vec![1500]),
            (119, 3000, vec![]),
            (240, 4000, vec![3017, 4000, 4000]),
            (241, 1, vec![]),
        ] {
            let window_usec = seconds * SECOND - window.slots.back().map_or(0, |_| window_end(&window));
            window.add(seconds * SECOND, window_usec, &sample(window_usec * milli / 1000, 0));
            assert_eq!(take(&mut window, seconds * SECOND), closed, "{seconds}");
        }
    }

    /// End of the last window, for windows without gaps that start at 0.
    fn window_end(window: &Window) -> u64 {
        window.slots.iter().map(|slot| slot.covered_usec).sum()
    }

    #[test]
    fn what_was_kept_comes_back_at_its_age() {
        let mut window = Window::over(300 * SECOND, 5);
        let now = filled(&mut window, &[(60, 1000, 10), (60, 3000, 30), (60, 2000, 50)]);
        let kept: Vec<_> = window.aged(now).collect();
        for (downtime, expected) in
            [(0, (180, 2000, 30)), (120, (180, 2000, 30)), (180, (120, 2500, 40)), (240, (60, 2000, 50))]
        {
            let later = 12_000 * SECOND;
            let mut restored = Window::over(300 * SECOND, 5);
            for (age, mean) in &kept {
                restored.restore(later, age + downtime * SECOND, mean);
            }
            assert_eq!(mean(&restored, later, 300), Some(expected), "{downtime}");
            let mut closed = 0;
            restored.take_closed(later, |_| closed += 1);
            assert_eq!(closed, 0, "what was handed out before is not handed out again");
        }
    }

    proptest! {
        #[test]
        fn the_mean_stays_among_its_samples_and_the_slots_are_bounded(
            parts in proptest::collection::vec((1..400_000_000_u64, 0..64_000_u64, 0..1_u64 << 40), 1..40), slots in 1..12_usize,
        ) {
            let mut window = Window::over(300 * SECOND, slots);
            let (mut now, mut least, mut most, mut bytes) = (0, u64::MAX, 0, 0);
            for (usec, milli, memory) in parts {
                now += usec;
                window.add(now, usec, &sample(usec * milli / 1000, memory));
                (least, most, bytes) = (least.min(milli), most.max(milli), bytes.max(memory));
                let mean = window.mean(now, 300 * SECOND).unwrap();
                // CPU time is rounded down to a microsecond, the mean rounded up to a thousandth.
                prop_assert!(mean.cpu_milli + 1 + 1_000_000 / mean.covered_usec >= least && mean.cpu_milli <= most + 1);
                prop_assert!(mean.memory.without_cache <= bytes);
                prop_assert!(window.slots.len() <= slots + 1);
                prop_assert!(window.slots.iter().all(|slot| slot.covered_usec <= window.slot_usec));
            }
        }

        #[test]
        fn it_does_not_matter_in_how_many_windows_something_is_measured(
            cuts in proptest::collection::vec(1..20_000_000_u64, 1..20), milli in 0..10_u64,
        ) {
            let [mut whole, mut parted] = [(); 2].map(|()| Window::over(300 * SECOND, 5));
            let total: u64 = cuts.iter().sum();
            whole.add(total, total, &sample(total * milli, 5));
            let mut now = 0;
            for cut in cuts {
                now += cut;
                parted.add(now, cut, &sample(cut * milli, 5));
            }
            prop_assert_eq!(whole.mean(now, 300 * SECOND), parted.mean(now, 300 * SECOND));
        }

        #[test]
        fn any_times_are_taken_without_panic(now: u64, window: u64, cpu: u64, bytes: u64, span: u64, slots in 0..9_usize) {
            let mut seen = Window::over(span, slots);
            seen.add(now, window, &sample(cpu, bytes));
            let _ = seen.mean(now, span);
        }
    }
}

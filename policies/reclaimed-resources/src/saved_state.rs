//! The saved state: averages, peaks and the last publication. With it, amounts neither jump nor disappear when the agent restarts or the
//! module is updated.
//!
//! The format is a version byte followed by LEB128 numbers. A pod takes at most about 350 bytes, 70 of them for its averages. If not
//! everything fits, the peaks of some pods are left out first, then whole pods. Such a pod counts with its request until it has been
//! measured again, so less is published, never more.
//!
//! The host tells how old the saved state is. If the age is unknown, averages are dropped and peaks are kept.

use std::collections::BTreeMap;

use crate::amounts::Amounts;
use crate::class::PriorityClass;
use crate::decimal::Decimal;
use crate::node::ThirdParty;
use crate::publish::{Offer, Published};
use crate::state::State;
use crate::strategy::Strategy;
use crate::usage::MemoryUse;
use crate::usage::histogram::{BUCKETS, Histogram};
use crate::usage::peak::Peaks;
use crate::usage::tracker::{Tracked, Tracker};
use crate::usage::window::{Mean, Window};

/// Maximum size of a state that the host keeps.
pub const MAX_BYTES: usize = 65_536;
/// Layout that this version writes; other layouts are refused.
const VERSION: u8 = 3;
const SECOND_USEC: u64 = 1_000_000;
/// The longest window (a day), and the largest age that is accepted (a year).
const MAX_WINDOW_USEC: u64 = 86_400 * SECOND_USEC;
const MAX_AGE_USEC: u64 = 366 * 86_400 * SECOND_USEC;
/// Upper bound of the slots of a window.
const MAX_SLOTS: u64 = 256;
/// Upper bound of the names and zones that a node publishes.
const MAX_LIST: u64 = 4096;

/// Serializes the state to at most `max_bytes`.
pub fn encode(state: &State, max_bytes: usize) -> Vec<u8> {
    let tracker = &state.tracker;
    let now = tracker.now_usec;
    let mut out = Writer::default();
    out.bytes.push(VERSION);
    out.number(now);
    out.number(tracker.span_usec);
    out.number(tracker.longest_usec);
    out.option(tracker.measured_usec);
    out.number(state.is_hot.into());
    out.option(state.ratio.map(Decimal::nanos));
    out.amounts(state.reservation);
    out.number(state.third_party.is_some().into());
    if let Some(ThirdParty { batch, mid }) = state.third_party {
        out.amounts(batch);
        out.amounts(mid);
    }
    out.published(&state.published);
    let windows = [
        &tracker.node,
        &tracker.system.window,
        &tracker.prod.window,
        &tracker.host_prod,
        &tracker.host_mid,
        &tracker.stalled,
    ];
    for window in windows {
        out.window(window, now);
    }
    out.peaks(&tracker.system.peaks);
    out.peaks(&tracker.prod.peaks);

    let pods: Vec<_> = tracker.pods.iter().map(|(key, pod)| EncodedPod::new(*key, pod, now)).collect();
    // The number of pods may take five bytes.
    let mut left = max_bytes.saturating_sub(out.bytes.len() + 5);
    let mut kept: Vec<(&EncodedPod, bool)> = Vec::new();
    for pod in &pods {
        if let Some(rest) = left.checked_sub(pod.averages.len() + 1) {
            left = rest;
            kept.push((pod, false));
        }
    }
    for (pod, has_peaks) in &mut kept {
        if let Some(rest) = left.checked_sub(pod.peaks.len()) {
            left = rest;
            *has_peaks = true;
        }
    }
    out.number(u64::try_from(kept.len()).unwrap_or(0));
    for (pod, has_peaks) in kept {
        out.bytes.extend_from_slice(&pod.averages);
        out.number(has_peaks.into());
        if has_peaks {
            out.bytes.extend_from_slice(&pod.peaks);
        }
    }
    if out.bytes.len() <= max_bytes { out.bytes } else { Vec::new() }
}

/// Reads the state, which was saved `age_usec` ago; empty bytes give a new state. `None` if the bytes do not have this layout.
pub fn decode(bytes: &[u8], age_usec: Option<u64>) -> Option<State> {
    let Some((version, rest)) = bytes.split_first() else { return Some(State::default()) };
    if *version != VERSION {
        return None;
    }
    let mut from = Reader { rest };
    let downtime = age_usec.filter(|age| *age <= MAX_AGE_USEC);

    let saved_now = from.number()?;
    let now = saved_now.checked_add(downtime.unwrap_or(0)).filter(|now| *now < 1 << 62)?;
    let (span, longest) = (from.within(1, MAX_WINDOW_USEC)?, from.within(1, MAX_WINDOW_USEC)?);
    let strategy = Strategy {
        aggregate_seconds: span / SECOND_USEC,
        aggregate_durations: vec![longest / SECOND_USEC],
        ..Strategy::default()
    };
    let mut state = State { tracker: Tracker::new(&strategy), ..State::default() };
    let tracker = &mut state.tracker;
    tracker.now_usec = now;
    let measured = from.option()?.filter(|measured| *measured <= saved_now);
    tracker.measured_usec = measured.filter(|_| downtime.is_some());
    state.is_hot = from.flag()?;
    state.ratio = from.option()?.map(Decimal::from_nanos);
    state.reservation = from.amounts()?;
    if from.flag()? {
        state.third_party = Some(ThirdParty { batch: from.amounts()?, mid: from.amounts()? });
    }
    state.published = from.published()?;
    state.published.at_usec = state.published.at_usec.filter(|at| *at <= saved_now && downtime.is_some());
    let windows = [
        &mut tracker.node,
        &mut tracker.system.window,
        &mut tracker.prod.window,
        &mut tracker.host_prod,
        &mut tracker.host_mid,
        &mut tracker.stalled,
    ];
    for window in windows {
        from.window(window, now, downtime)?;
    }
    let gap = downtime.unwrap_or(0);
    tracker.system.peaks = from.peaks(gap)?;
    tracker.prod.peaks = from.peaks(gap)?;
    for _ in 0..from.number()? {
        let key = from.number()?;
        let priority = priority_of(from.number()?)?;
        let watched_usec = from.number()?;
        let mut window = Window::over(tracker.span_usec, crate::usage::tracker::POD_SLOTS);
        from.window(&mut window, now, downtime)?;
        let peaks = if from.flag()? { from.peaks(gap)? } else { Peaks::default() };
        tracker.pods.insert(key, Tracked { window, peaks, watched_usec, priority });
    }
    from.rest.is_empty().then_some(state)
}

/// A serialized pod in two parts; the second may be left out.
struct EncodedPod {
    averages: Vec<u8>,
    peaks: Vec<u8>,
}

impl EncodedPod {
    fn new(key: u64, pod: &Tracked, now_usec: u64) -> Self {
        let (mut averages, mut peaks) = (Writer::default(), Writer::default());
        averages.number(key);
        averages.number(match pod.priority {
            PriorityClass::None => 0,
            PriorityClass::Free => 1,
            PriorityClass::Batch => 2,
            PriorityClass::Mid => 3,
            PriorityClass::Prod => 4,
        });
        averages.number(pod.watched_usec);
        averages.window(&pod.window, now_usec);
        peaks.peaks(&pod.peaks);
        Self { averages: averages.bytes, peaks: peaks.bytes }
    }
}

fn priority_of(number: u64) -> Option<PriorityClass> {
    use PriorityClass::{Batch, Free, Mid, None, Prod};
    [None, Free, Batch, Mid, Prod].get(usize::try_from(number).ok()?).copied()
}

#[derive(Default)]
struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push(u8::try_from(number & 0x7f).unwrap_or(0) | 0x80);
            number >>= 7;
        }
        self.bytes.push(u8::try_from(number).unwrap_or(0));
    }

    fn option(&mut self, number: Option<u64>) {
        self.number(number.is_some().into());
        if let Some(number) = number {
            self.number(number);
        }
    }

    fn amounts(&mut self, amounts: Amounts) {
        self.number(amounts.cpu_milli);
        self.number(amounts.memory_bytes);
    }

    fn length(&mut self, length: usize) {
        self.number(u64::try_from(length).unwrap_or(0));
    }

    fn published(&mut self, published: &Published) {
        self.option(published.at_usec);
        self.length(published.offers.len());
        for (name, offer) in &published.offers {
            self.length(name.len());
            self.bytes.extend_from_slice(name.as_bytes());
            self.number(offer.amount);
        }
        self.length(published.zones.len());
        for (zone, amounts) in &published.zones {
            self.number((*zone).into());
            self.amounts(*amounts);
        }
        self.number(published.origin.is_some().into());
        if let Some(origin) = published.origin {
            self.amounts(origin);
        }
    }

    /// Ages and lengths are in milliseconds, memory in KiB, both rounded up.
    fn window(&mut self, window: &Window, now_usec: u64) {
        let slots: Vec<_> = window.aged(now_usec).collect();
        self.length(slots.len());
        for (age_usec, mean) in slots {
            self.number(age_usec.div_ceil(1000));
            self.number(mean.covered_usec.div_ceil(1000));
            self.number(mean.cpu_milli);
            let MemoryUse { without_cache, hot_cache, cold_cache } = mean.memory;
            for bytes in [without_cache, hot_cache, cold_cache] {
                self.number(bytes.div_ceil(1024));
            }
        }
    }

    fn peaks(&mut self, peaks: &Peaks) {
        for histogram in [&peaks.cpu, &peaks.memory] {
            self.number(histogram.since_usec());
            self.length(histogram.buckets().len());
            for (bucket, weight) in histogram.buckets() {
                self.number((*bucket).into());
                self.number(*weight);
            }
        }
    }
}

struct Reader<'b> {
    rest: &'b [u8],
}

impl Reader<'_> {
    fn number(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.rest.split_first()?;
            self.rest = rest;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return None;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn within(&mut self, least: u64, most: u64) -> Option<u64> {
        self.number().filter(|number| (least..=most).contains(number))
    }

    fn flag(&mut self) -> Option<bool> {
        Some(self.within(0, 1)? == 1)
    }

    #[expect(clippy::option_option, reason = "outside: whether it could be read; inside: whether there is one")]
    fn option(&mut self) -> Option<Option<u64>> {
        Some(if self.flag()? { Some(self.number()?) } else { None })
    }

    fn amounts(&mut self) -> Option<Amounts> {
        Some(Amounts::new(self.number()?, self.number()?))
    }

    fn published(&mut self) -> Option<Published> {
        let at_usec = self.option()?;
        let (mut offers, mut zones) = (BTreeMap::new(), BTreeMap::new());
        for _ in 0..self.within(0, MAX_LIST)? {
            let length = usize::try_from(self.within(1, 512)?).ok()?;
            let (name, rest) = self.rest.split_at_checked(length)?;
            self.rest = rest;
            let name = std::str::from_utf8(name).ok()?.to_owned();
            offers.insert(name, Offer { amount: self.number()?, reason: "published before the restart".into() });
        }
        for _ in 0..self.within(0, MAX_LIST)? {
            zones.insert(u32::try_from(self.number()?).ok()?, self.amounts()?);
        }
        let origin = if self.flag()? { Some(self.amounts()?) } else { None };
        Some(Published { at_usec, offers, zones, origin })
    }

    /// Reads a window into an empty one; its contents are dropped if the age of the state is unknown.
    fn window(&mut self, window: &mut Window, now_usec: u64, downtime_usec: Option<u64>) -> Option<()> {
        for _ in 0..self.within(0, MAX_SLOTS)? {
            let age_usec = self.number()?.checked_mul(1000)?;
            let covered_usec = self.number()?.checked_mul(1000)?;
            let cpu_milli = self.number()?;
            let mut bytes = || self.number()?.checked_mul(1024);
            let memory = MemoryUse { without_cache: bytes()?, hot_cache: bytes()?, cold_cache: bytes()? };
            if let Some(downtime) = downtime_usec {
                let age = age_usec.checked_add(downtime)?;
                window.restore(now_usec, age, &Mean { covered_usec, cpu_milli, memory });
            }
        }
        Some(())
    }

    fn peaks(&mut self, gap_usec: u64) -> Option<Peaks> {
        let mut histogram = || {
            let since_usec = self.number()?;
            let mut buckets = Vec::new();
            for _ in 0..self.within(0, u64::try_from(BUCKETS).ok()?)? {
                buckets.push((u16::try_from(self.number()?).ok()?, self.number()?));
            }
            Histogram::restore(buckets, since_usec)
        };
        let mut peaks = Peaks { cpu: histogram()?, memory: histogram()? };
        peaks.age(gap_usec);
        Some(peaks)
    }
}

#[cfg(test)]
mod tests;

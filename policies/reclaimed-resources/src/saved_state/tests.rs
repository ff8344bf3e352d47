use proptest::prelude::*;

use super::*;
use crate::strategy::{MemoryView, Strategy};
use crate::usage::Sample;
use crate::usage::tracker::{PodUsage, START_USEC, Usage, key};

const MINUTE: u64 = 60 * SECOND_USEC;
const VIEW: MemoryView = MemoryView::WithoutPageCache;

fn sample(milli: u64, usec: u64, kib: u64) -> Sample {
    let memory = MemoryUse { without_cache: kib * 1024, hot_cache: 2048, cold_cache: 1024 };
    Sample { cpu_usec: milli * usec / 1000, memory }
}

/// The state of a node with this many pods after this many minutes.
fn state(pods: u32, minutes: u64) -> State {
    let mut state = State::default();
    for minute in 0..minutes {
        let pod = |number: u32| PodUsage {
            uid: format!("pod-{number}"),
            priority: PriorityClass::Prod,
            sample: sample(100 + u64::from(number) + minute % 97 * 13, MINUTE, 1_000_000 + minute % 89 * 50_000),
        };
        let usage = Usage {
            node: sample(64_000, MINUTE, 200_000_000),
            pods: (0..pods).map(pod).collect(),
            memory_stalled_usec: Some(SECOND_USEC),
            ..Usage::default()
        };
        state.tracker.advance(MINUTE, Some(&usage), VIEW, |_| Some(PriorityClass::Prod));
    }
    state
}

fn full() -> State {
    let offer = |amount| Offer { amount, reason: "published before the restart".into() };
    State {
        published: Published {
            at_usec: Some(START_USEC),
            offers: BTreeMap::from([("kubernetes.io/batch-cpu".into(), offer(1000)), ("a.b/c".into(), offer(0))]),
            zones: BTreeMap::from([(0, Amounts::new(1, 2)), (7, Amounts::new(3, 4))]),
            origin: Some(Amounts::new(5, 6)),
        },
        reservation: Amounts::new(11, 12),
        third_party: Some(ThirdParty { batch: Amounts::new(7, 8), mid: Amounts::new(9, 10) }),
        ratio: Some(Decimal::hundredths(120)),
        is_hot: true,
        ..state(3, 10)
    }
}

#[test]
fn what_is_written_reads_back() {
    for state in [State::default(), state(0, 1), state(5, 30), full()] {
        let bytes = encode(&state, MAX_BYTES);
        let restored = decode(&bytes, Some(0)).unwrap();
        assert_eq!(encode(&restored, MAX_BYTES), bytes);
        let State { tracker, published, reservation, third_party, ratio, is_hot, .. } = restored;
        let same = (&state.published, state.reservation, state.third_party, state.ratio, state.is_hot);
        assert_eq!((&published, reservation, third_party, ratio, is_hot), same);
        let strategy = Strategy::default();
        assert_eq!(tracker.averages(&strategy, VIEW), state.tracker.averages(&strategy, VIEW));
        assert_eq!(tracker.memory_stalled_permille(), state.tracker.memory_stalled_permille());
        let pods = |tracker: &Tracker| {
            let pod = |key: &u64| (tracker.pod_usage(*key, Amounts::ZERO, &strategy, VIEW), tracker.pod_peak(*key, 0));
            tracker.pods.keys().map(pod).collect::<Vec<_>>()
        };
        assert_eq!(pods(&tracker), pods(&state.tracker));
    }
    assert_eq!(decode(&[], Some(1)), Some(State::default()));
}

#[test]
fn averages_age_by_the_time_in_between() {
    let state = full();
    let strategy = Strategy::default();
    let known = |state: &State| {
        let pod = state.tracker.pod_usage(key("pod-1"), Amounts::ZERO, &strategy, VIEW);
        (pod.is_some(), state.tracker.averages(&strategy, VIEW).is_some(), state.tracker.age_usec())
    };
    let bytes = encode(&state, MAX_BYTES);
    for (seconds, expected) in [
        (0, (true, true, Some(0))),
        (60, (true, true, Some(MINUTE))),
        (200, (true, true, Some(200 * SECOND_USEC))),
        (1000, (false, false, Some(1000 * SECOND_USEC))),
        (30 * 86_400, (false, false, Some(30 * 86_400 * SECOND_USEC))),
    ] {
        let restored = decode(&bytes, Some(seconds * SECOND_USEC)).unwrap();
        assert_eq!(known(&restored), expected, "{seconds}");
        assert_eq!(restored.published.at_usec, Some(START_USEC));
    }
    // Averages are dropped if their age is unknown or implausible.
    for age in [None, Some(u64::MAX), Some(MAX_AGE_USEC + 1)] {
        let restored = decode(&bytes, age).unwrap();
        assert_eq!(known(&restored), (false, false, None), "{age:?}");
        assert_eq!((restored.published.at_usec, restored.published.offers.len()), (None, 2));
        assert_eq!(restored.tracker.pods.len(), 3, "peaks stay");
        assert!(restored.tracker.pod_peak(key("pod-1"), 0).is_some());
    }
}

#[test]
fn peaks_decay_by_the_time_in_between() {
    let bytes = encode(&state(1, 100), MAX_BYTES);
    let peak = |seconds| decode(&bytes, Some(seconds * SECOND_USEC)).unwrap().tracker.pod_peak(key("pod-0"), 0);
    assert!(peak(0).is_some() && peak(86_400).is_some());
    assert_eq!(peak(300 * 86_400), None, "nothing is left after so many half-lives");
}

#[test]
fn it_never_outgrows_what_the_host_keeps() {
    for (pods, peaks) in [(150, 150), (250, 200), (500, 50), (900, 0)] {
        let state = state(pods, 200);
        let bytes = encode(&state, MAX_BYTES);
        assert!(bytes.len() <= MAX_BYTES, "{pods} pods take {}", bytes.len());
        let restored = decode(&bytes, Some(5)).unwrap();
        let kept = restored.tracker.pods.len();
        assert!(kept >= pods.min(550) as usize, "{kept} of {pods}");
        let with_peaks = restored.tracker.pods.values().filter(|pod| pod.peaks.peak().is_some()).count();
        assert!(with_peaks >= peaks, "peaks of {with_peaks} of {pods}");
    }
    let small = state(10, 20);
    for max_bytes in 0..3000 {
        let bytes = encode(&small, max_bytes);
        assert!(bytes.len() <= max_bytes);
        assert!(decode(&bytes, None).is_some(), "{max_bytes}");
    }
}

#[test]
fn a_pod_is_bounded() {
    let one = |pods| encode(&state(pods, 3000), usize::MAX).len();
    let each = (one(101) - one(1)) / 100;
    assert!(each <= 350, "{each} bytes");
}

#[test]
fn what_is_not_of_this_layout_is_not_read() {
    let bytes = encode(&full(), MAX_BYTES);
    let mut other = bytes.clone();
    other[0] = 1;
    let mut longer = bytes.clone();
    longer.push(0);
    let shorter = &bytes[..bytes.len() - 1];
    for bytes in [
        other.as_slice(),
        &longer,
        shorter,
        &[VERSION],
        &[VERSION, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2],
    ] {
        assert_eq!(decode(bytes, Some(5)), None);
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_panic(bytes: Vec<u8>, age: Option<u64>) {
        let _ = decode(&bytes, age);
    }

    #[test]
    fn a_changed_byte_is_read_without_panic(at in 0..2000_usize, byte: u8, age: Option<u64>) {
        let mut bytes = encode(&full(), MAX_BYTES);
        let length = bytes.len();
        bytes[at % length] = byte;
        if let Some(mut restored) = decode(&bytes, age) {
            restored.tracker.advance(MINUTE, None, VIEW, |_| Some(PriorityClass::Prod));
            let _ = restored.tracker.averages(&Strategy::default(), VIEW);
        }
    }

    #[test]
    fn numbers_read_back(number: u64) {
        let mut out = Writer::default();
        out.number(number);
        let mut from = Reader { rest: &out.bytes };
        prop_assert_eq!(from.number(), Some(number));
        prop_assert!(from.rest.is_empty());
    }
}

//! The second input of the profile `responsive`: latency-sensitive pods that wait for a CPU, or suddenly use much more.
//!
//! Pressure only ever reduces: the result never exceeds what the formula allows. While a latency-sensitive pod is short of CPU and batch
//! pods use a relevant share, the CPU of batch pods shrinks by a fraction at a time. Then it stays until all latency-sensitive pods have
//! been calm for a while, and grows again by the mode's own steps.

use std::fmt;

use qosm_sdk::{PodId, PressureScope, PressureTrigger, StalledResource};

use crate::CpuSet;
use crate::allowed::is_non_be;
use crate::config::Settings;
use crate::input::{INTERVAL_USEC, Inputs, Pod, Pressure};
use crate::state::State;

/// The trigger for early evaluations: tasks of a pod waited for 50 ms of 500 ms. The agent also raises it for the node's pods as a whole
/// when those outside the tier BestEffort suddenly use more CPU.
pub const EARLY_TICK: PressureTrigger = PressureTrigger {
    scope: PressureScope::Pod,
    resource: StalledResource::Cpu,
    full: false,
    stall_usec: 50_000,
    window_usec: 500_000,
};

/// Minimum time between two cuts, in microseconds: the effect of the first has to show before the second.
pub const CUT_INTERVAL_USEC: u64 = 500_000;

/// Minimum window of a pressure value, in microseconds: in a shorter one, a single wait is a large share.
pub const MIN_WINDOW_USEC: u64 = 100_000;

/// The latency-sensitive pod that waits longest, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The pod.
    pub pod: PodId,
    /// Time it waited, in microseconds.
    pub stalled_usec: u64,
    /// Length of the window, in microseconds; 0 if only the trigger reported the wait.
    pub window_usec: u64,
}

impl Waiting {
    /// Writes it in words; `name` maps a pod to its name.
    pub(crate) fn write(&self, f: &mut impl fmt::Write, name: &dyn Fn(PodId) -> String) -> fmt::Result {
        let pod = name(self.pod);
        match self.window_usec {
            0 => write!(f, "{pod} waits for a CPU"),
            window => write!(f, "{pod} waited for a CPU {} ms of {} ms", self.stalled_usec / 1_000, window / 1_000),
        }
    }
}

/// How pressure bounds the CPU of batch pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// No bound.
    Free,
    /// The CPU of batch pods may not grow. `None`: no pod waits, but the calm has not lasted long enough.
    Hold(Option<Waiting>),
    /// The CPU of batch pods shrinks, since this pod waits.
    Cut(Waiting),
    /// The CPU of batch pods shrinks, since latency-sensitive pods suddenly use more.
    Risen,
}

impl Bound {
    /// Evaluates all latency-sensitive pods. `be_micro_cpu` is the use of batch pods, `capacity_milli` the capacity of the node.
    pub(crate) fn now(
        state: &mut State,
        settings: &Settings,
        inputs: &Inputs,
        be_micro_cpu: u64,
        capacity_milli: u64,
        now_usec: u64,
    ) -> Self {
        let batch = inputs.in_force.batch_cpus();
        let sensitive = || {
            let sensitive = |pod: &&Pod| pod.is_active && is_non_be(pod.class, pod.kube_qos);
            inputs.pods.iter().filter(sensitive).filter(|pod| meets(pod, batch.as_ref()))
        };
        let waiting = sensitive().filter(|pod| is_short(pod, settings)).map(wait).max_by(longer);
        let is_to_blame = u128::from(be_micro_cpu) * 100
            >= u128::from(capacity_milli) * 1_000 * u128::from(settings.be_share_percent);
        let may_cut =
            |state: &State| state.cut_at_usec.is_none_or(|at| now_usec.saturating_sub(at) >= CUT_INTERVAL_USEC);
        if let Some(waiting) = waiting {
            state.pressed_at_usec = Some(now_usec);
            return if is_to_blame && may_cut(state) { Self::Cut(waiting) } else { Self::Hold(Some(waiting)) };
        }
        let is_calm = |pod: &Pod| {
            !measured(pod)
                .is_some_and(|pressure| pressure.stalled_usec() > 0 && pressure.is_at_least(settings.ls_calm_percent))
        };
        if state.pressed_at_usec.is_some() && !sensitive().all(is_calm) {
            // The pod is neither short nor calm: the calm period starts again.
            state.pressed_at_usec = Some(now_usec);
        }
        if inputs.has_load_risen && is_to_blame && may_cut(state) {
            return Self::Risen;
        }
        let calm_usec = u64::from(settings.calm_seconds).saturating_mul(1_000_000);
        match state.pressed_at_usec {
            Some(at) if now_usec.saturating_sub(at) < calm_usec => Self::Hold(None),
            _ => {
                state.pressed_at_usec = None;
                Self::Free
            }
        }
    }

    /// Applies the bound to an amount. `current` is what batch pods have now, `least` the smallest effective change; all in the same unit.
    pub fn apply(self, settings: &Settings, allowed: i64, current: i64, least: i64) -> i64 {
        match self {
            Self::Free => allowed,
            Self::Hold(_) => allowed.min(current),
            Self::Cut(_) | Self::Risen => {
                let cut = current.saturating_mul(i64::from(settings.cut_percent)) / 100;
                allowed.min(current.saturating_sub(cut.max(least)))
            }
        }
    }
}

/// Whether batch pods may run where the pod runs. A pod with CPUs of its own waits for its own tasks only, however few batch pods there
/// are.
fn meets(pod: &Pod, batch: Option<&CpuSet>) -> bool {
    pod.limited_to.is_empty() || batch.is_none_or(|batch| pod.limited_to.iter().any(|cpu| batch.contains(cpu)))
}

/// The pod's pressure; `None` if its window is too short.
fn measured(pod: &Pod) -> Option<Pressure> {
    pod.pressure.filter(|pressure| pressure.window_usec >= MIN_WINDOW_USEC)
}

/// Whether tasks of a pod wait long enough to act. The trigger also counts for pods without a known window, unless the pod was
/// throttled: the kernel does not tell how much of the wait the pod's own quota caused.
fn is_short(pod: &Pod, settings: &Settings) -> bool {
    let is_throttled = pod.pressure.is_some_and(|pressure| pressure.throttled_usec > 0);
    pod.is_alarmed && !is_throttled
        || measured(pod).is_some_and(|pressure| pressure.is_at_least(settings.ls_stall_percent))
}

fn wait(pod: &Pod) -> Waiting {
    let (stalled_usec, window_usec) =
        pod.pressure.map_or((0, 0), |pressure| (pressure.stalled_usec(), pressure.window_usec));
    Waiting { pod: pod.id, stalled_usec, window_usec }
}

/// Orders by share of the window; of equal shares, the smaller pod id is the greater.
fn longer(one: &Waiting, other: &Waiting) -> std::cmp::Ordering {
    let share = |waiting: &Waiting, window: u64| u128::from(waiting.stalled_usec) * u128::from(window.max(1));
    share(one, other.window_usec).cmp(&share(other, one.window_usec)).then(other.pod.cmp(&one.pod))
}

/// Whether the CPU of batch pods may rise now: once per interval, as with koordinator, however often pressure triggers evaluations.
pub(crate) fn may_rise(state: &State, now_usec: u64) -> bool {
    // The tolerance accepts a tick that comes slightly early.
    state.risen_at_usec.is_none_or(|at| now_usec.saturating_sub(at) >= INTERVAL_USEC - INTERVAL_USEC / 10)
}

#[cfg(test)]
mod tests {
    use qosm_sdk::{KubeQos, QosClass};

    use super::*;
    use crate::input::InForce;

    fn ls(id: PodId, some_usec: u64) -> Pod {
        let pressure = Pressure { some_usec, throttled_usec: 0, window_usec: 1_000_000 };
        Pod { pressure: Some(pressure), ..Pod::new(id) }
    }

    fn now(state: &mut State, pods: &[Pod], be_micro_cpu: u64, now_usec: u64) -> Bound {
        let inputs = Inputs { pods: pods.to_vec(), ..Inputs::default() };
        Bound::now(state, &Settings::default(), &inputs, be_micro_cpu, 16_000, now_usec)
    }

    fn waiting(pod: PodId, stalled_usec: u64) -> Waiting {
        Waiting { pod, stalled_usec, window_usec: 1_000_000 }
    }

    #[test]
    fn a_pod_that_waits_cuts_what_batch_pods_have() {
        let be = 2_000_000;
        for (pods, be, bound) in [
            (vec![ls(1, 0)], be, Bound::Free),
            (vec![ls(1, 99_999)], be, Bound::Free),
            (vec![ls(1, 100_000)], be, Bound::Cut(waiting(1, 100_000))),
            // The pod that waits longest is reported; of equals, the first.
            (vec![ls(1, 100_000), ls(2, 300_000), ls(3, 300_000)], be, Bound::Cut(waiting(2, 300_000))),
            // Batch pods use less than 5 % of 16 CPUs, so they are not the cause.
            (vec![ls(1, 100_000)], 799_999, Bound::Hold(Some(waiting(1, 100_000)))),
            (vec![ls(1, 100_000)], 800_000, Bound::Cut(waiting(1, 100_000))),
            // Only active latency-sensitive pods count.
            (vec![Pod { class: Some(QosClass::Be), ..ls(1, 900_000) }], be, Bound::Free),
            (vec![Pod { kube_qos: KubeQos::BestEffort, ..ls(1, 900_000) }], be, Bound::Free),
            (vec![Pod { is_active: false, ..ls(1, 900_000) }], be, Bound::Free),
            // A window of less than 100 ms is ignored.
            (
                vec![Pod {
                    pressure: Some(Pressure { some_usec: 99_999, throttled_usec: 0, window_usec: 99_999 }),
                    ..Pod::new(1)
                }],
                be,
                Bound::Free,
            ),
            // The trigger counts, unless the pod's own quota throttled it.
            (vec![Pod { is_alarmed: true, ..ls(1, 5) }], be, Bound::Cut(waiting(1, 5))),
            (
                vec![Pod { is_alarmed: true, ..Pod::new(1) }],
                be,
                Bound::Cut(Waiting { pod: 1, stalled_usec: 0, window_usec: 0 }),
            ),
            (
                vec![Pod {
                    is_alarmed: true,
                    pressure: Some(Pressure { some_usec: 500_000, throttled_usec: 450_000, window_usec: 1_000_000 }),
                    ..Pod::new(1)
                }],
                be,
                Bound::Free,
            ),
        ] {
            assert_eq!(now(&mut State::default(), &pods, be, 10_000_000), bound, "{pods:?} {be}");
        }
    }

    #[test]
    fn a_pod_that_batch_pods_do_not_meet_waits_for_its_own_tasks() {
        let set = |text: &str| CpuSet::parse(text).unwrap();
        let bound = |limited_to: &str, tier: Option<&str>, container: Option<&str>| {
            let in_force = InForce {
                tier_cpus: tier.map(set),
                container_cpus: container.map(|cpus| (9, set(cpus))).into_iter().collect(),
                ..InForce::default()
            };
            let pods = vec![Pod { limited_to: set(limited_to), ..ls(1, 900_000) }];
            let inputs = Inputs { pods, in_force, ..Inputs::default() };
            Bound::now(&mut State::default(), &Settings::default(), &inputs, 2_000_000, 16_000, 10_000_000)
        };
        let cut = Bound::Cut(waiting(1, 900_000));
        for (limited_to, tier, container, expected) in [
            ("", Some("4-7"), None, cut),
            ("0", None, None, cut),
            ("0", Some("0-3"), None, cut),
            ("0", Some("4-7"), None, Bound::Free),
            // Under the kubelet's static CPU manager the tier has more CPUs than its containers.
            ("0", Some("0-7"), Some("4-7"), Bound::Free),
            ("0-4", Some("0-7"), Some("4-7"), cut),
        ] {
            assert_eq!(bound(limited_to, tier, container), expected, "{limited_to} {tier:?} {container:?}");
        }
    }

    #[test]
    fn load_that_rises_suddenly_cuts_once_and_asks_for_no_calm() {
        let mut state = State::default();
        let risen = |state: &mut State, be_micro_cpu, now_usec| {
            let inputs = Inputs { pods: vec![ls(1, 0)], has_load_risen: true, ..Inputs::default() };
            let bound = Bound::now(state, &Settings::default(), &inputs, be_micro_cpu, 16_000, now_usec);
            (bound, state.pressed_at_usec)
        };
        assert_eq!(risen(&mut state, 799_999, 10_000_000), (Bound::Free, None), "batch pods are not to blame");
        assert_eq!(risen(&mut state, 800_000, 10_000_000), (Bound::Risen, None));
        state.cut_at_usec = Some(10_000_000);
        assert_eq!(risen(&mut state, 800_000, 10_100_000), (Bound::Free, None));
        assert_eq!(Bound::Risen.apply(&Settings::default(), 9_000, 10_000, 1_000), 8_000);
    }

    #[test]
    fn what_was_cut_comes_back_after_a_calm() {
        let mut state = State::default();
        let (pressed, between, calm) = ([ls(1, 200_000)], [ls(1, 60_000)], [ls(1, 49_999)]);
        let second = |number: u64| 10_000_000 + number * 1_000_000;
        assert_eq!(now(&mut state, &pressed, 2_000_000, second(0)), Bound::Cut(waiting(1, 200_000)));
        assert_eq!(now(&mut state, &between, 2_000_000, second(1)), Bound::Hold(None));
        // Calm since second 1, for 5 s.
        for number in 2..6 {
            assert_eq!(now(&mut state, &calm, 2_000_000, second(number)), Bound::Hold(None), "{number}");
        }
        assert_eq!(now(&mut state, &calm, 2_000_000, second(6)), Bound::Free);
        // A wait between the two thresholds does not start a calm period by itself.
        assert_eq!(now(&mut state, &between, 2_000_000, second(7)), Bound::Free);
    }

    #[test]
    fn two_cuts_are_half_a_second_apart() {
        let mut state = State { cut_at_usec: Some(10_000_000), ..State::default() };
        let pressed = [ls(1, 200_000)];
        assert_eq!(now(&mut state, &pressed, 2_000_000, 10_499_999), Bound::Hold(Some(waiting(1, 200_000))));
        assert_eq!(now(&mut state, &pressed, 2_000_000, 10_500_000), Bound::Cut(waiting(1, 200_000)));
    }

    #[test]
    fn bounds_by_hand() {
        let settings = Settings::default();
        let cut = Bound::Cut(waiting(1, 1));
        for (bound, allowed, current, least, result) in [
            (Bound::Free, 9_000, 4_000, 1_000, 9_000),
            (Bound::Hold(None), 9_000, 4_000, 1_000, 4_000),
            (Bound::Hold(None), 3_000, 4_000, 1_000, 3_000),
            (cut, 9_000, 10_000, 1_000, 8_000),
            // A fifth of 4 CPUs is less than the smallest change of one CPU.
            (cut, 9_000, 4_000, 1_000, 3_000),
            (cut, 1_000, 4_000, 1_000, 1_000),
            (cut, -500, 4_000, 1_000, -500),
        ] {
            assert_eq!(bound.apply(&settings, allowed, current, least), result, "{bound:?} {allowed} {current}");
        }
    }
}

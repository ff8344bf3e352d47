//! Block device settings, of cgroups and of the node, that the policy declared.

use std::collections::BTreeMap;

use super::{Declaration, Declared, RELEASED, keep};
use crate::block_io::{IoKnob, IoValue};
use crate::{Host, IoDevice, Target};

/// Releases a device setting of a target, or of the node if the target is `None`.
pub(super) type ReleaseIo<H> = fn(&mut H, Option<Target>, IoDevice);

/// Target (`None` = the node), kind and device of a setting.
pub(super) type Key = (Option<Target>, IoKnob, IoDevice);

/// A setting that the host holds for this policy.
#[derive(Clone, Debug)]
struct Held {
    value: IoValue,
    reason: String,
    declared: Declared,
}

/// All device settings.
#[derive(Clone, Debug, Default)]
pub(super) struct BlockIo(BTreeMap<Key, Held>);

impl BlockIo {
    /// Drops the settings of targets that are gone.
    pub(super) fn retain(&mut self, is_here: impl Fn(&Target) -> bool) {
        self.0.retain(|(target, ..), _| target.as_ref().is_none_or(&is_here));
    }
}

impl Declaration {
    fn change_io(&mut self) -> &mut BlockIo {
        if self.undo.block_io.is_none() {
            self.undo.block_io = Some(self.block_io.clone());
        }
        &mut self.block_io
    }

    /// Records a setting. Returns whether it differs from what the host has.
    pub(super) fn set_io(&mut self, target: Option<Target>, device: IoDevice, value: IoValue, reason: &str) -> bool {
        let (key, declared) = ((target, value.knob(), device), self.call);
        if let Some(known) = self.block_io.0.get_mut(&key)
            && (known.value, known.reason.as_str()) == (value, reason)
        {
            known.declared = declared;
            return false;
        }
        let held = Held { value, reason: reason.to_owned(), declared };
        self.change_io().0.insert(key, held);
        true
    }

    pub(super) fn unset_io(&mut self, key: Key) {
        if let Some(known) = self.block_io.0.get_mut(&key) {
            known.declared = RELEASED;
        }
    }

    /// Declares the settings of the matching targets unchanged.
    pub(super) fn keep_io(&mut self, is_kept: impl Fn(Option<Target>) -> bool) {
        for (_, known) in self.block_io.0.iter_mut().filter(|((target, ..), _)| is_kept(*target)) {
            keep(&mut known.declared, self.call);
        }
    }

    /// Restores the state before a failed call, and marks all settings as declared, so that the call releases none of them later.
    pub(super) fn discard_io(&mut self) {
        if let Some(block_io) = self.undo.block_io.take() {
            self.block_io = block_io;
        }
        for known in self.block_io.0.values_mut() {
            known.declared = self.call;
        }
    }

    /// Releases the settings for which `is_over` holds.
    pub(super) fn release_io<H: Host + 'static>(&mut self, host: &mut H, is_over: impl Fn(Declared) -> bool) {
        let over = self.block_io.0.iter().filter(|(_, known)| is_over(known.declared));
        let over: Vec<Key> = over.map(|(key, _)| *key).collect();
        for key in over {
            let (target, knob, device) = key;
            if let Some(release) = self.releases.io::<H>(knob) {
                release(host, target, device);
            }
            self.change_io().0.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::mock::{self, MockHost};
    use crate::{
        Description, Host, IoCostModel, IoCostQos, IoDevice, IoLimits, NoConfig, Pod, PodFacts, PodId, Policy,
        Rejection, Session, Target, Tick,
    };

    const DISK: IoDevice = IoDevice { major: 8, minor: 16 };
    const OTHER: IoDevice = IoDevice { major: 8, minor: 32 };
    const WEB: Target = Target::Pod(1);
    const MODEL: IoCostModel = IoCostModel {
        read_bps: 1,
        read_seq_iops: 2,
        read_rand_iops: 3,
        write_bps: 4,
        write_seq_iops: 5,
        write_rand_iops: 6,
    };

    #[derive(Clone, Copy)]
    enum Want {
        Max(IoDevice, u64),
        Weight(IoDevice, u32),
        Qos(bool),
        Model,
        Release(IoDevice),
        Keep,
        KeepAll,
        Fail,
    }

    #[derive(Default)]
    struct Wanting(Vec<Want>);

    impl Policy for Wanting {
        type Config = ();
        type PodConfig = NoConfig;

        fn describe() -> Description {
            Description::new("wanting", "0.1.0", "For these tests.")
        }

        fn pods<H: Host>(&mut self, _: &mut H, _: Vec<Pod<NoConfig>>, _: &[PodId]) -> Vec<Rejection> {
            Vec::new()
        }

        fn evaluate<H: Host>(&mut self, host: &mut H, _: Tick) -> Result<(), String> {
            for want in &self.0 {
                match *want {
                    Want::Max(device, bytes) => {
                        let limits = IoLimits { read_bps: Some(bytes), ..IoLimits::NONE };
                        host.set_io_max(WEB, device, &limits, "asked for");
                    }
                    Want::Weight(device, weight) => host.set_io_weight(WEB, device, weight, "asked for"),
                    Want::Qos(enabled) => {
                        host.set_io_cost_qos(DISK, &IoCostQos { enabled, latency: None }, "asked for");
                    }
                    Want::Model => host.set_io_cost_model(DISK, &MODEL, "asked for"),
                    Want::Release(device) => host.release_io_max(WEB, device),
                    Want::Keep => host.keep(WEB),
                    Want::KeepAll => host.keep_all(),
                    Want::Fail => return Err("it cannot decide".into()),
                }
            }
            Ok(())
        }
    }

    struct Run {
        host: MockHost,
        session: Session<Wanting>,
    }

    impl Run {
        fn new() -> Self {
            let mut run = Self { host: MockHost::default(), session: Session::default() };
            let web: PodFacts = mock::pod(1, "default", "web");
            run.session.pods(&mut run.host, vec![web], &[]).unwrap();
            run
        }

        /// Number of calls that reach the host.
        fn calls(&mut self, wants: &[Want]) -> usize {
            let before = self.host.calls("block-io");
            *self.session.policy_mut() = Wanting(wants.to_vec());
            match self.session.evaluate(&mut self.host, mock::tick(1_000)) {
                Ok(()) => drop(self.host.commit()),
                Err(_) => self.host.discard(),
            }
            self.host.calls("block-io") - before
        }
    }

    #[test]
    fn only_differences_are_sent_and_what_is_not_declared_is_given_up() {
        let mut run = Run::new();
        let all =
            [Want::Max(DISK, 4_096), Want::Max(OTHER, 4_096), Want::Weight(DISK, 200), Want::Qos(true), Want::Model];
        assert_eq!((run.calls(&all), run.calls(&all)), (5, 0));
        assert_eq!(run.calls(&[Want::Max(DISK, 8_192), Want::Weight(DISK, 200), Want::Qos(true), Want::Model]), 2);
        assert_eq!(run.host.io_max(WEB, DISK).and_then(|limits| limits.read_bps), Some(8_192));
        assert_eq!(run.host.io_max(WEB, OTHER), None, "of two devices of one kind one is given up");
        assert_eq!(run.calls(&[Want::Keep]), 2, "what is of the node is not the pod's");
        assert_eq!((run.host.io_cost_qos(DISK), run.host.io_cost_model(DISK)), (None, None));
        assert_eq!(run.calls(&[Want::KeepAll, Want::Release(DISK)]), 1);
        assert_eq!(run.host.to_string(), "pod 1 io.weight 8:16 = 200");
        assert_eq!((run.calls(&[]), run.host.to_string()), (1, "nothing".to_owned()));
    }

    #[test]
    fn a_failed_call_changes_nothing() {
        let mut run = Run::new();
        assert_eq!(run.calls(&[Want::Max(DISK, 4_096)]), 1);
        assert_eq!(run.calls(&[Want::Max(DISK, 8_192), Want::Qos(true), Want::Fail]), 2);
        assert_eq!(run.host.to_string(), "pod 1 io.max 8:16 = rbps=4096 wbps=max riops=max wiops=max");
        assert_eq!(run.calls(&[Want::KeepAll]), 0, "the failed call has left nothing to be given up");
        assert_eq!(run.calls(&[Want::Max(DISK, 8_192), Want::Qos(false)]), 2);
    }

    #[test]
    fn a_pod_that_is_gone_needs_no_release() {
        let mut run = Run::new();
        assert_eq!(run.calls(&[Want::Max(DISK, 4_096), Want::Qos(true)]), 2);
        run.session.pods(&mut run.host, Vec::new(), &[1]).unwrap();
        assert_eq!(run.calls(&[Want::Qos(true)]), 0);
        assert_eq!(run.host.to_string(), "node io.cost.qos 8:16 = enable=1 ctrl=auto");
    }
}

//! The CFS bandwidth in force of each cgroup, kept between ticks.

use std::sync::Arc;

use qosm_host::Host;
use qosm_model::column::BandwidthSample;
use qosm_model::knob::Target;
use rustc_hash::FxHashMap;

/// Number of reads after which the limits of a new cgroup are taken to be written.
const YOUNG_READS: u8 = 5;

/// The quotas in force, kept between ticks: reading all of them at each tick would cost as much as the tick itself.
#[derive(Debug, Default)]
pub(crate) struct Quotas {
    rows: FxHashMap<Target, qosm_host::Bandwidth>,
    /// The last column and its groups, while no quota is held; rebuilt when a row changes.
    column: Option<(Vec<Target>, Arc<[BandwidthSample]>)>,
    /// New cgroups, with the number of reads that are still due in any case: their limits may not be written yet.
    young: FxHashMap<Target, u8>,
    /// Whether any quota has changed since the last [`Self::take_changed`].
    has_changed: bool,
}

impl Quotas {
    /// Whether any quota changed, appeared or disappeared since the last call.
    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    /// The bandwidth of a target as last read.
    pub(crate) fn get(&self, target: Target) -> Option<qosm_host::Bandwidth> {
        self.rows.get(&target).copied()
    }

    /// All bandwidths as last read.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Target, qosm_host::Bandwidth)> {
        self.rows.iter().map(|(&target, &bandwidth)| (target, bandwidth))
    }

    /// Makes a new target due for its first reads.
    pub(crate) fn opened(&mut self, target: Target) {
        self.young.insert(target, YOUNG_READS);
    }

    /// Adds the new targets to those that are due, and counts their remaining reads down.
    pub(crate) fn add_young(&mut self, due: &mut Vec<Target>) {
        due.extend(self.young.keys());
        self.young.retain(|_, left| {
            *left -= 1;
            *left > 0
        });
    }

    /// Reads a target's bandwidth again. A target that cannot be read has no row.
    pub(crate) fn refresh(&mut self, host: &mut Host, target: Target) -> Option<qosm_host::Bandwidth> {
        let now = host.bandwidth(target).ok();
        let before = match now {
            Some(bandwidth) => self.rows.insert(target, bandwidth),
            None => self.rows.remove(&target),
        };
        if before != now {
            self.column = None;
            self.has_changed = true;
        }
        now
    }

    /// The column of these groups, if nothing in it has changed since it was kept.
    pub(crate) fn kept(&self, groups: &[Target]) -> Option<Arc<[BandwidthSample]>> {
        self.column.as_ref().filter(|(of, _)| of == groups).map(|(_, column)| Arc::clone(column))
    }

    /// Keeps a column until a row changes. No quota may be held: a held baseline can change without a read.
    pub(crate) fn keep(&mut self, groups: &[Target], column: &Arc<[BandwidthSample]>) {
        self.column = Some((groups.to_vec(), Arc::clone(column)));
    }

    pub(crate) fn forget(&mut self, target: Target) {
        self.column = None;
        self.has_changed |= self.rows.remove(&target).is_some();
        self.young.remove(&target);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_column_of_quotas_is_made_anew_only_when_something_in_it_has_changed() {
        let mut host = Host::simulated(&qosm_host::simulated::Spec::default()).unwrap();
        let pod = Target::Pod(qosm_model::pod::PodId(1));
        host.create("kubepods/burstable/podu").unwrap();
        host.attach(pod, "kubepods/burstable/podu").unwrap();
        let (mut quotas, groups) = (Quotas::default(), [pod]);
        let column: Arc<[BandwidthSample]> = Arc::new([]);
        let keep = |quotas: &mut Quotas, host: &mut Host| {
            quotas.refresh(host, pod);
            quotas.keep(&groups, &column);
        };
        keep(&mut quotas, &mut host);
        quotas.refresh(&mut host, pod);
        assert!(quotas.kept(&groups).is_some_and(|kept| Arc::ptr_eq(&kept, &column)));
        assert!(quotas.kept(&[]).is_none(), "of other groups");
        let value = qosm_model::knob::Value::Number(50_000);
        let plan = host.plan(&[qosm_host::Wanted { target: pod, knob: qosm_model::knob::Knob::CfsQuota, value }]);
        host.execute(&plan.steps[0]).unwrap();
        assert!(quotas.kept(&groups).is_some(), "until it is read");
        quotas.refresh(&mut host, pod);
        assert!(quotas.kept(&groups).is_none());
        keep(&mut quotas, &mut host);
        quotas.forget(pod);
        assert!(quotas.kept(&groups).is_none());
    }

    #[test]
    fn a_young_cgroup_is_read_some_times_in_a_row() {
        let pod = Target::Pod(qosm_model::pod::PodId(1));
        let mut quotas = Quotas::default();
        quotas.opened(pod);
        let reads = (0..10).filter(|_| {
            let mut due = Vec::new();
            quotas.add_young(&mut due);
            due == [pod]
        });
        assert_eq!(reads.count(), usize::from(YOUNG_READS));
    }
}

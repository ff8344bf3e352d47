//! Which pods are paused, by annotation or by an operator, and what changes when a pause begins or ends.

use std::collections::{BTreeMap, BTreeSet};

use qosm_model::knob::Target;
use qosm_model::lease::Timestamp;
use qosm_model::pod::PodId;

use super::{Access, PodTable};
use crate::pause::{Pause, PauseSource};

/// Which pauses began and ended.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PauseChanges {
    /// Pods whose pause began or ended.
    pub(crate) changed: Vec<PodId>,
    /// Targets that may be written again.
    pub(crate) resumed: Vec<Target>,
}

impl PodTable {
    /// The pause of a pod, if one is in force.
    pub(crate) fn pause(&self, id: PodId, now: Timestamp) -> Option<Pause> {
        self.pauses.get(&id).copied().filter(|pause| pause.is_active_at(now))
    }

    /// Whether the pod that a target is or belongs to is paused.
    pub(crate) fn is_paused(&self, target: Target, now: Timestamp) -> bool {
        self.of(target).is_some_and(|entry| self.pause(entry.id, now).is_some())
    }

    /// All pauses, each with its end.
    pub(crate) fn pauses(&self) -> impl Iterator<Item = (PodId, Option<Timestamp>)> {
        self.pauses.iter().map(|(&id, pause)| (id, pause.until))
    }

    /// The pods that `qosm pause` pauses.
    pub(crate) fn paused_by_operator(&self) -> Vec<PodId> {
        let by_operator = self.pauses.iter().filter(|(_, pause)| pause.source == PauseSource::Operator);
        let mut pods: Vec<_> = by_operator.map(|(&id, _)| id).collect();
        pods.sort_unstable();
        pods
    }

    /// Whether [`Self::end_pauses`] was called.
    pub(crate) fn are_pauses_ended(&self) -> bool {
        self.are_pauses_ended
    }

    /// Restores the pauses that an operator asked an earlier agent for.
    pub(crate) fn restore_operator_pauses(&mut self, pauses: BTreeMap<String, Pause>) {
        self.operator_pauses = pauses;
    }

    /// Pauses the pod `namespace/name` for an operator, or ends that pause (`None`).
    pub(crate) fn set_operator_pause(&mut self, pod: &str, pause: Option<Pause>) {
        match pause {
            Some(pause) => self.operator_pauses.insert(pod.to_owned(), pause),
            None => self.operator_pauses.remove(pod),
        };
    }

    /// Works out which pods are paused now.
    pub(crate) fn update_pauses(&mut self, now: Timestamp) -> PauseChanges {
        let mut changes = PauseChanges::default();
        // Hardly any pod is ever paused: the others are skipped.
        let asked: BTreeSet<PodId> = if self.operator_pauses.is_empty() {
            self.standing()
                .annotated
                .iter()
                .copied()
                .collect::<BTreeSet<_>>()
                .into_iter()
                .chain(self.pauses.keys().copied())
                .collect()
        } else {
            self.ids().into_iter().collect()
        };
        for id in asked {
            let Some(entry) = self.get(id) else { continue };
            let (annotated, _) = Pause::from_annotation(&entry.pod);
            let asked = self.operator_pauses.get(&entry.pod.key()).copied();
            let pause = asked.into_iter().chain(annotated).find(|pause| pause.is_active_at(now));
            match pause {
                Some(pause) => self.pauses.insert(id, pause),
                None => self.pauses.remove(&id),
            };
            let Some(entry) = self.get(id).filter(|entry| entry.access != Access::Protected) else { continue };
            let access = if pause.is_some() { Access::Paused } else { Access::Open };
            if entry.access == access {
                continue;
            }
            if pause.is_none() {
                changes.resumed.extend(entry.targets());
            }
            if let Some(entry) = self.get_mut(id) {
                entry.access = access;
            }
            changes.changed.push(id);
        }
        changes
    }

    /// Ends all pauses, for good.
    pub(crate) fn end_pauses(&mut self) {
        self.pauses.clear();
        self.are_pauses_ended = true;
        for id in self.ids() {
            if let Some(entry) = self.get_mut(id)
                && entry.access == Access::Paused
            {
                entry.access = Access::Open;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::pod;

    const WEB: PodId = PodId(1);

    fn until(end: Option<i64>) -> Pause {
        Pause { until: end.map(Timestamp), source: PauseSource::Operator }
    }

    fn table(annotation: Option<&str>) -> PodTable {
        let mut web = pod("web", "u");
        if let Some(text) = annotation {
            web.annotations.insert(crate::pause::ANNOTATION.to_owned(), text.to_owned());
        }
        let mut pods = PodTable::default();
        pods.update(vec![web, pod("db", "d")]);
        pods
    }

    #[test]
    fn an_annotation_pauses_its_pod_alone_for_as_long_as_it_says() {
        for (annotation, at_zero, later) in [
            (None, false, false),
            (Some("true"), true, true),
            (Some("false"), false, false),
            (Some("1970-01-01T00:00:05Z"), true, false),
            // A value that cannot be parsed pauses: its author wanted a pause.
            (Some("yes please"), true, true),
        ] {
            let mut pods = table(annotation);
            for (now, expected) in [(0, at_zero), (5000, later)] {
                pods.update_pauses(Timestamp(now));
                assert_eq!(pods.pause(WEB, Timestamp(now)).is_some(), expected, "{annotation:?} at {now}");
                assert!(pods.pause(PodId(2), Timestamp(now)).is_none());
            }
        }
    }

    #[test]
    fn the_old_name_of_the_annotation_counts_where_the_new_one_is_missing() {
        let paused = |annotations: &[(&str, &str)]| {
            let mut web = pod("web", "u");
            web.annotations = annotations.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
            let mut pods = PodTable::default();
            pods.update(vec![web]);
            pods.update_pauses(Timestamp(0));
            pods.pause(WEB, Timestamp(0)).is_some()
        };
        assert!(paused(&[("qosm.io/hold", "true")]));
        assert!(paused(&[("qosm.io/paused", "true"), ("qosm.io/hold", "false")]));
        assert!(!paused(&[("qosm.io/paused", "false"), ("qosm.io/hold", "true")]));
        assert!(!paused(&[("qosm.io/other", "true")]));
    }

    #[test]
    fn a_change_is_reported_once_and_its_end_names_what_may_be_written_again() {
        let mut pods = table(Some("1970-01-01T00:00:05Z"));
        assert_eq!(pods.update_pauses(Timestamp(0)), PauseChanges { changed: vec![WEB], resumed: Vec::new() });
        assert_eq!(pods.update_pauses(Timestamp(1000)), PauseChanges::default());
        let ended = pods.update_pauses(Timestamp(5000));
        assert_eq!(ended.changed, [WEB]);
        assert_eq!(ended.resumed.len(), 2, "the pod and its container");
        assert_eq!(pods.update_pauses(Timestamp(6000)), PauseChanges::default());
    }

    #[test]
    fn an_operators_pause_overrides_the_annotation_and_waits_for_its_pod() {
        let mut pods = PodTable::default();
        pods.set_operator_pause("default/web", Some(until(Some(9000))));
        pods.update_pauses(Timestamp(0));
        pods.update(vec![pod("web", "u")]);
        pods.update_pauses(Timestamp(0));
        assert_eq!(pods.pause(WEB, Timestamp(0)), Some(until(Some(9000))));
        pods.set_operator_pause("default/web", None);
        assert_eq!(pods.update_pauses(Timestamp(0)).resumed.len(), 2);
    }

    #[test]
    fn a_protected_pod_cannot_be_paused() {
        let mut pods = table(Some("true"));
        pods.protect(&[WEB], &BTreeSet::from(["default".to_owned()]));
        assert_eq!(pods.update_pauses(Timestamp(0)), PauseChanges::default());
        assert_eq!(pods.get(WEB).unwrap().access, Access::Protected);
    }

    #[test]
    fn pauses_that_are_ended_leave_every_pod_open() {
        let mut pods = table(Some("true"));
        pods.update_pauses(Timestamp(0));
        pods.end_pauses();
        assert!(pods.are_pauses_ended());
        assert!(pods.iter().all(|entry| entry.access == Access::Open));
        assert_eq!(pods.pauses().count(), 0);
    }

    #[test]
    fn a_pod_that_leaves_takes_its_pause_along() {
        let mut pods = table(Some("true"));
        pods.update_pauses(Timestamp(0));
        let changes = pods.update(vec![pod("db", "d")]);
        pods.leave(changes.removed, changes.gone);
        assert_eq!(pods.pauses().count(), 0);
        assert_eq!(pods.leaving_targets().len(), 2);
    }
}

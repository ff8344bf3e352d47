//! The pods, and when the next round of each is due.

use std::collections::BTreeSet;

use qosm_sdk::{Container, ContainerId, ContainerState, Cpuset, EventKind, PageMigration, Pod, PodEvent};

use crate::keep::Keep;
use crate::nodes::{Choice, NO_TARGET, Pages, is_one_place, local};
use crate::protocol::{PodConfig, Settings};
use crate::report::{Kind, Outcome, Reported, message};
use crate::round::{Part, Round, Standing, Tokens, View};
use crate::saved_state::{digest, without_target};

/// Time for which a running container may be without a sample before it is skipped.
const SAMPLE_WAIT_USEC: u64 = 10_000_000;
/// Delay until a migration that was stopped from outside is tried again.
const CALLED_OFF_USEC: u64 = 60_000_000;
/// Delay until containers without a target are checked again, since they may have been pinned meanwhile.
const LOOK_AGAIN_USEC: u64 = 10_000_000;
/// Maximum delay after failures, unless the interval is longer.
const BACK_OFF_MAX_USEC: u64 = 3_600_000_000;

/// A pod and the progress of its rounds.
#[derive(Clone, Debug)]
pub(crate) struct Tracked {
    pub(crate) pod: Pod<PodConfig>,
    pub(crate) round: Option<Round>,
    /// Earliest time of the next round.
    not_before_usec: u64,
    /// Since when a container without a sample is waited for.
    waiting_since_usec: Option<u64>,
    /// Number of consecutive rounds that failed or found no room.
    failures: u32,
    reported: Option<Reported>,
    /// Whether all containers of a pod that wants a single round have had it.
    settled: bool,
    keep: Keep,
}

/// The single migrations that were completed, by digest.
pub(crate) type Done = BTreeSet<u64>;

impl Tracked {
    pub(crate) fn new(pod: Pod<PodConfig>) -> Self {
        Self {
            pod,
            round: None,
            not_before_usec: 0,
            waiting_since_usec: None,
            failures: 0,
            reported: None,
            settled: false,
            keep: Keep::default(),
        }
    }

    /// Updates the pod.
    pub(crate) fn update(&mut self, pod: Pod<PodConfig>) {
        if pod.config != self.pod.config {
            self.not_before_usec = 0;
            self.failures = 0;
            self.reported = None;
        }
        self.settled = false;
        self.pod = pod;
        self.forget_gone();
    }

    fn forget_gone(&mut self) {
        let pod = &self.pod;
        self.keep.retain(|container| pod.containers.iter().any(|known| known.id == container));
    }

    /// The configuration of the pod if migration is on. The configuration of a whole class does not apply to pods that run the node itself.
    pub(crate) fn effective_config(&self) -> Option<&PodConfig> {
        let is_meant = self.pod.annotated || !(self.pod.host_pid || self.pod.static_pod);
        self.pod.config.as_ref().filter(|config| config.is_on() && self.pod.active && is_meant)
    }

    /// Whether this evaluation has work for the pod.
    pub(crate) fn has_work(&self, now_usec: u64, keeps: bool) -> bool {
        let due = !self.settled && now_usec >= self.not_before_usec;
        (self.effective_config().is_some() && (due || keeps)) || self.round.is_some() || !self.keep.is_empty()
    }

    fn running(&self) -> impl Iterator<Item = &Container> {
        self.pod.containers.iter().filter(|container| container.state == ContainerState::Running)
    }

    fn has(&self, container: ContainerId) -> bool {
        self.pod.containers.iter().any(|known| known.id == container)
    }

    /// Ends rounds and bounds that are no longer configured.
    pub(crate) fn drop_unwanted(&mut self, keeps: bool, host: &mut impl PageMigration) {
        if self.effective_config().is_none() || !keeps {
            self.keep.release();
        }
        if self.effective_config().is_none()
            && let Some(round) = self.round.take()
        {
            round.stop(|container| self.has(container), host);
        }
    }

    /// Starts a due round or advances the current one. If no more events may be emitted in this evaluation, a finished round ends in the
    /// next one.
    pub(crate) fn step<H: PageMigration + PodEvent>(
        &mut self,
        view: &View<'_>,
        tokens: &mut Tokens,
        done: &mut Done,
        now_usec: u64,
        events_left: &mut usize,
        host: &mut H,
    ) {
        if view.settings.keep_local && self.effective_config().is_some() {
            self.keep_local(view, done, now_usec, host);
        }
        if self.round.is_none() {
            self.begin(view, tokens, done, now_usec, host);
        }
        let Some(mut round) = self.round.take() else { return };
        // A container that was restarted meanwhile is a different one.
        let containers: Vec<ContainerId> = self.running().map(|container| container.id).collect();
        round.parts.retain(|part| containers.contains(&part.container));
        if round.parts.is_empty() {
            return;
        }
        match round.advance(view, tokens, host) {
            Standing::UnderWay => self.round = Some(round),
            Standing::Ended if *events_left == 0 => self.round = Some(round),
            Standing::Ended => {
                *events_left -= usize::from(self.end(&round, view, done, host));
            }
            Standing::CalledOff => {
                round.stop(|container| self.has(container), host);
                self.not_before_usec = now_usec.saturating_add(CALLED_OFF_USEC);
            }
        }
    }

    /// Declares the NUMA nodes that its containers are bound to.
    pub(crate) fn declare(&self, host: &mut impl Cpuset) {
        self.keep.declare(host);
    }

    /// Keeps new pages local: binds containers that had their round to their nodes while these have room.
    fn keep_local(&mut self, view: &View<'_>, done: &Done, now_usec: u64, host: &mut impl PageMigration) {
        if self.keep.follow(|container| Some(local(view.nodes, view.sample(container)?, &view.settings.excluded_nodes)))
        {
            // The `cpuset.mems` in the sample is still what was held until now.
            if let Some(round) = self.round.take() {
                round.stop(|container| self.has(container), host);
            }
            self.not_before_usec = self.not_before_usec.max(now_usec.saturating_add(1));
            return;
        }
        self.keep.make_room(view.nodes, view.settings);
        if self.round.is_some() {
            return;
        }
        let mut keep = std::mem::take(&mut self.keep);
        for container in self.running() {
            if let Some(nodes) = self.settled_on(container, view, done) {
                keep.bind(container.id, &nodes, view.nodes, view.settings);
            }
        }
        self.keep = keep;
    }

    /// The local nodes of a container that had its round (possibly before a restart) and whose pages are there, with none on excluded
    /// nodes. Otherwise the kernel would move the remaining pages at once when the container is bound, without a limit on the speed.
    fn settled_on(&self, container: &Container, view: &View<'_>, done: &Done) -> Option<Vec<u32>> {
        let config = self.effective_config()?;
        let sample = view.sample(container.id)?;
        let Choice::Go(way) = view.choice(container.id)? else { return None };
        let digest = digest(&self.pod.uid, &container.name, sample.identity, config);
        let had_its_round =
            done.contains(&digest) || self.reported.is_some_and(|reported| reported.kind == Kind::Completed);
        let Settings { min_remote_percent, min_remote_pages, .. } = *view.settings;
        let is_local = Pages::of(sample, &way).is_local_enough(min_remote_percent, min_remote_pages);
        let is_known = |node: &u32| way.local.contains(node) || way.remote.contains(node);
        let is_elsewhere = sample.pages.iter().any(|share| share.pages > 0 && !is_known(&share.node));
        (had_its_round && is_local && !is_elsewhere && way.to == way.local).then_some(way.local)
    }

    fn begin(
        &mut self,
        view: &View<'_>,
        tokens: &mut Tokens,
        done: &Done,
        now_usec: u64,
        host: &mut impl PageMigration,
    ) {
        let Some(config) = self.effective_config() else { return };
        if view.nodes.is_empty() || now_usec < self.not_before_usec || self.settled {
            return;
        }
        let one_place = is_one_place(view.nodes);
        let waited = self.waiting_since_usec.is_some_and(|since| now_usec.saturating_sub(since) >= SAMPLE_WAIT_USEC);
        let single = config.interval_usec().is_none();
        let (mut wanted, mut waits, mut may_be_pinned) = (Vec::new(), false, false);
        for container in self.running() {
            let sample = view.sample(container.id);
            waits |= sample.is_none() && !one_place;
            let identity = sample.map_or(0, |sample| sample.identity);
            let digest = digest(&self.pod.uid, &container.name, identity, config);
            if single && done.contains(&digest) {
                continue;
            }
            let was_without_target = single && done.contains(&without_target(digest));
            if was_without_target && matches!(view.choice(container.id), None | Some(Choice::Skip(_))) {
                may_be_pinned = true;
                continue;
            }
            wanted.push((container.id, container.name.clone(), digest));
        }
        if waits && !waited {
            self.waiting_since_usec.get_or_insert(now_usec);
            return;
        }
        self.waiting_since_usec = None;
        if wanted.is_empty() {
            self.settled = single && !may_be_pinned;
            self.not_before_usec = now_usec.saturating_add(if may_be_pinned { LOOK_AGAIN_USEC } else { 0 });
            return;
        }
        let parts = wanted.iter().map(|(container, name, digest)| {
            let choice = if one_place { Some(Choice::Skip(NO_TARGET.into())) } else { view.choice(*container) };
            Part::begin((*container, name, *digest), choice, view, tokens, host)
        });
        self.round = Some(Round { started_usec: now_usec, parts: parts.collect() });
    }

    /// Ends a round. Returns whether an event was emitted for the pod.
    fn end(&mut self, round: &Round, view: &View<'_>, done: &mut Done, host: &mut impl PodEvent) -> bool {
        let outcomes = round.outcomes();
        let kind = Kind::of(outcomes.iter().map(|(_, outcome)| *outcome));
        let pages = self.pages(round, view);
        let reported = Reported { kind, local_percent: pages.local_percent() };
        let is_worth_an_event = reported.is_worth_an_event(self.reported);
        if is_worth_an_event {
            host.emit(self.pod.id, EventKind::Normal, kind.reason(), &message(&outcomes, pages));
            self.reported = Some(reported);
        }
        let short = |outcome: &Outcome| matches!(outcome, Outcome::Completed { without_room, .. } if *without_room > 0);
        let is_incomplete = kind == Kind::Failed || outcomes.iter().any(|(_, outcome)| short(outcome));
        self.failures = if is_incomplete { self.failures.saturating_add(1) } else { 0 };
        match self.effective_config().and_then(PodConfig::interval_usec) {
            Some(interval) => {
                let doubled = interval.saturating_mul(1_u64.checked_shl(self.failures).unwrap_or(u64::MAX));
                let wait = doubled.min(BACK_OFF_MAX_USEC).max(interval);
                self.not_before_usec = round.started_usec.saturating_add(wait);
            }
            None => {
                // A container may have started while the round was in progress; the next evaluation finds out.
                self.reported = None;
                let may_be_pinned = !is_one_place(view.nodes);
                let digest = |part: &Part| {
                    if may_be_pinned && part.is_without_target() { without_target(part.digest) } else { part.digest }
                };
                done.extend(round.parts.iter().map(digest));
            }
        }
        is_worth_an_event
    }

    /// Pages of the pod's containers that were not skipped.
    fn pages(&self, round: &Round, view: &View<'_>) -> Pages {
        let of = |container: &Container| Some(Pages::of(view.sample(container.id)?, view.choice(container.id)?.way()?));
        let counted = self.running().filter(|container| !round.has_skipped(container.id));
        counted.filter_map(of).fold(Pages::default(), Pages::add)
    }
}

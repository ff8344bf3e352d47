//! Apply: the host plans the resolved values, which go to the journal and then to the kernel.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use qosm_host::knob_table::row;
use qosm_host::{Bandwidth, Baselines, Clamp, Executed, Host, HostError, Step as HostStep, Wanted};
use qosm_model::knob::{Knob, Level, Target, Value};
use qosm_model::layering::Effective;
use qosm_model::pod::Tier;
use qosm_model::problem::chain;

use crate::inputs::Inputs;
use crate::ledger::held::HeldKnob;
use crate::ledger::refusal::Refusal;
use crate::ledger::resolved::Resolved;
use crate::ledger::{Applied, Ledger, decision};
use crate::step::Mode;

/// Number of ticks after which refused knobs are tried again.
const RETRY_TICKS: u64 = 60;
impl Ledger {
    /// Writes all dirty knobs that do not have their resolved value.
    pub(crate) fn apply(&mut self, host: &mut Host, inputs: &Inputs<'_>) -> Applied {
        let mut out = Applied::default();
        self.reconcile(host, inputs, &mut out);
        out
    }

    pub(super) fn reconcile(&mut self, host: &mut Host, inputs: &Inputs<'_>, out: &mut Applied) {
        // Read once for all sets of a round.
        self.exclusive = None;
        self.take_finished(host, inputs, out);
        if inputs.ticks % RETRY_TICKS == RETRY_TICKS - 1 {
            self.dirty.extend(self.refusals.iter().filter(|(_, r)| !r.unavailable).map(|(&key, _)| key));
        }
        let mut dirty = self.with_groups(inputs);
        self.verify_before_writing(host, inputs, &mut dirty, out);
        self.followers.clear();
        self.add_groups_below(host, inputs.pods, &mut dirty);
        let mut resolutions: HashMap<(Target, Knob), Resolved> = HashMap::new();
        let mut wanted = Vec::new();
        let were_without_cpus = self.without_cpus(&dirty);
        for &(target, knob) in &dirty {
            if let Some(resolved) = self.resolve(host, inputs, target, knob)
                && let Some(resolved) = self.without_livelock(host, inputs, resolved, out)
                && !self.left_to_another(host, inputs, &resolved, out)
            {
                wanted.push(resolved.wanted);
                resolutions.insert((target, knob), resolved);
            }
        }
        let wanted = self.without_those_in_force(host, inputs, wanted, &resolutions);
        let restored = resolutions.iter().filter(|(_, resolved)| resolved.restores);
        let baselines: Baselines = restored.map(|(&key, _)| key).collect();
        let mut plan = match wanted.is_empty() {
            true => qosm_host::Plan::default(),
            false => host.plan_with_baselines(&wanted, &baselines),
        };
        let clamps: HashMap<_, _> = plan.clamped.iter().map(|clamp| ((clamp.target, clamp.knob), clamp)).collect();
        for (target, knob, error) in std::mem::take(&mut plan.refused) {
            if let Some(resolved) = resolutions.get(&(target, knob)) {
                self.refused(host, inputs, resolved, error, out);
            }
        }
        self.keep_quotas(inputs, &mut plan.steps, &resolutions);
        self.notify_denials(host, inputs, out);
        self.notify_missing(inputs.pods, out);
        for &(target, knob, value) in &plan.unchanged {
            if let Some(resolved) = resolutions.get(&(target, knob)) {
                self.already_so(host, inputs, resolved, value, clamps.get(&(target, knob)).copied());
            }
        }
        if inputs.mode == Mode::Plan {
            for planned in plan.steps.iter().filter(|planned| !plan.is_interim(planned)) {
                if let Some(resolved) = resolutions.get(&(planned.target, planned.knob)) {
                    let clamp = clamps.get(&(planned.target, planned.knob)).copied();
                    let mut decision = decision::of_step(host, inputs, planned, resolved, clamp);
                    if host.describes_software_reclaim(planned.knob) {
                        let same = plan.steps.iter().filter(|other| other.target == planned.target);
                        let together: Vec<_> = same.map(|other| (other.knob, other.to)).collect();
                        decision.emulation = host.describe_software_reclaim(planned.target, &together);
                    }
                    out.decisions.push(decision);
                }
            }
            return;
        }
        for part in plan.parts() {
            let is_written_down = self.write_down(host, inputs, part, &resolutions);
            for planned in part {
                let key = (planned.target, planned.knob);
                // A knob to restore is in the journal since it was first held: a journal that fails does not stop the restore.
                let Some(resolved) = resolutions.get(&key).filter(|v| is_written_down || v.restores) else { continue };
                let decided = out.decisions.len();
                if plan.is_interim(planned) {
                    let on_the_way = Resolved { restores: false, ..resolved.clone() };
                    self.execute(host, inputs, planned, &on_the_way, None, out);
                    out.decisions.truncate(decided);
                } else {
                    self.execute(host, inputs, planned, resolved, clamps.get(&key).copied(), out);
                }
            }
        }
        let are_without_cpus = self.without_cpus(&dirty);
        self.touch_quotas(inputs, are_without_cpus.symmetric_difference(&were_without_cpus));
        self.delete_restored();
    }

    /// Before Linux 5.9 a bound by `memory.high` may block processes forever: none is set there unless the operator allows it, and held
    /// ones are released.
    fn without_livelock(
        &mut self,
        host: &mut Host,
        inputs: &Inputs<'_>,
        resolved: Resolved,
        out: &mut Applied,
    ) -> Option<Resolved> {
        let Wanted { target, knob, value } = resolved.wanted;
        let is_bound = !resolved.restores && host.may_livelock(knob, value);
        if !is_bound || inputs.config.guard_rails.memory_high_before_linux59 {
            return Some(resolved);
        }
        let release = host.kernel_release().unwrap_or_default();
        let why = format!(
            "on Linux {release} processes above it may reclaim for ever (fixed in 5.9); guardRails.memoryHighBeforeLinux59 sets it all the same"
        );
        self.refused(host, inputs, &resolved, HostError::Unsupported { what: knob.to_string(), why }, out);
        let held = self.held.get(&(target, knob))?;
        Some(Resolved {
            wanted: Wanted { target, knob, value: held.baseline },
            policy: Arc::clone(&held.policy),
            reason: "this kernel may livelock: the baseline comes back".into(),
            restores: true,
            guarded: None,
            is_refused: true,
        })
    }

    /// The dirty knobs and their partners: a burst depends on the quota in force, and `cpu.idle` masks the weight, even without a lease
    /// on the weight.
    fn with_groups(&mut self, inputs: &Inputs<'_>) -> BTreeSet<(Target, Knob)> {
        let mut dirty = std::mem::take(&mut self.dirty);
        let partners: Vec<_> = dirty
            .iter()
            .filter_map(|&(target, knob)| Some((target, row(knob).partner?)))
            .filter(|&(target, knob)| {
                self.held.contains_key(&(target, knob)) || self.ruling(inputs.pods, target, knob).is_some()
            })
            .collect();
        dirty.extend(partners);
        self.add_tiers_above(inputs, &mut dirty);
        dirty
    }

    /// Adds leased tiers whose value follows from the groups in them; every [`RETRY_TICKS`] ticks all of these, since other programs may
    /// have changed the groups.
    fn add_tiers_above(&self, inputs: &Inputs<'_>, dirty: &mut BTreeSet<(Target, Knob)>) {
        let looks_again = inputs.ticks % RETRY_TICKS == RETRY_TICKS - 1;
        for knob in Knob::ALL.into_iter().filter(|knob| row(*knob).is_granted_from_above()) {
            if !looks_again && !dirty.iter().any(|(target, of)| *of == knob && target.level() != Level::Container) {
                continue;
            }
            let tiers = Tier::ALL.into_iter().map(|tier| (Target::Tier(tier), knob));
            dirty.extend(tiers.filter(|key| self.leases.effective(key.0, key.1).is_some()));
        }
    }

    /// Whether a knob to be restored is left as it is: it shows neither qosm's value nor the baseline, so it belongs to another writer,
    /// or it is gone.
    fn left_to_another(
        &mut self,
        host: &mut Host,
        inputs: &Inputs<'_>,
        resolved: &Resolved,
        out: &mut Applied,
    ) -> bool {
        if !resolved.restores {
            return false;
        }
        let key = (resolved.wanted.target, resolved.wanted.knob);
        let Some(held) = self.held.get(&key) else { return false };
        match host.read(key.0, key.1) {
            // A slow write under way shows a value in between.
            Ok(found)
                if held.pending.is_none()
                    && found != held.written
                    && found != held.baseline
                    && !row(key.1).is_left_by_mask(held.written, found) =>
            {
                let message = format!("{} holds {found}, which is not qosm's; it is left as it is", key.1);
                self.forget_held(key);
                out.notify(inputs.pods, key.0, "KnobLeftAsFound", message);
                true
            }
            Err(HostError::Gone { .. }) => {
                self.target_gone(host, key.0, out);
                true
            }
            // The file disappeared with its controller: there is nothing to restore.
            Err(HostError::Unsupported { .. }) if host.file(key.0, key.1).is_some() => {
                self.forget_held(key);
                true
            }
            Ok(_) | Err(_) => false,
        }
    }

    pub(super) fn forget_held(&mut self, key: (Target, Knob)) {
        self.refusals.remove(&key);
        if let Some(held) = self.held.remove(&key) {
            self.journal_deletions.push((key.1, held.cgroup));
        }
    }

    /// At the agent's end: knobs in their hands-off time stay as another writer left them.
    pub(crate) fn leave_to_others(&mut self, host: &mut Host, inputs: &Inputs<'_>, out: &mut Applied) {
        let is_left = |held: &HeldKnob| held.hands_off_until.is_some_and(|until| inputs.now.wall < until);
        let keys: Vec<_> = self.held.iter().filter(|(_, held)| is_left(held)).map(|(&key, _)| key).collect();
        for key in keys {
            let Some(held) = self.held.get(&key) else { continue };
            match host.read(key.0, key.1) {
                Ok(found) if found == held.baseline => {}
                Ok(found) => {
                    let message = format!("{} holds {found}, which another writer set; it is left as it is", key.1);
                    self.forget_held(key);
                    out.notify(inputs.pods, key.0, "KnobLeftAsFound", message);
                }
                Err(_) => {}
            }
        }
    }

    fn execute(
        &mut self,
        host: &mut Host,
        inputs: &Inputs<'_>,
        planned: &HostStep,
        resolved: &Resolved,
        clamp: Option<&Clamp>,
        out: &mut Applied,
    ) {
        let key = (planned.target, planned.knob);
        let outcome = host.execute(planned);
        let (shown, pending) = match outcome {
            Ok(Executed::Done(shown)) => (shown, false),
            Ok(Executed::Pending) => (planned.to, true),
            Err(HostError::Gone { .. } | HostError::NotAttached { .. }) => {
                return self.target_gone(host, planned.target, out);
            }
            Err(error) => {
                self.note_reached(host, inputs, planned, resolved, clamp);
                if !self.held.contains_key(&key)
                    && let Some(cgroup) = host.attached_path(planned.target)
                {
                    self.journal_deletions.push((planned.knob, cgroup.to_owned()));
                }
                return self.refused(host, inputs, resolved, error, out);
            }
        };
        // Whether another try of what was refused comes to more shows later.
        let is_retry = self.refusals.get(&key).is_some_and(|known| known.wanted == resolved.wanted.value);
        if !(pending && is_retry) {
            let decision = decision::of_step(host, inputs, planned, resolved, clamp);
            tracing::info!(
                policy = %resolved.policy,
                pod = decision.pod_key(),
                container = decision.container.as_deref().unwrap_or(""),
                knob = %planned.knob,
                from = %planned.from,
                to = %shown,
                reason = %resolved.reason,
                "setting applied"
            );
            inputs.metrics.write(planned.knob, &resolved.policy);
            out.decisions.push(decision);
        }
        if !pending {
            self.accepted(key, resolved);
        }
        if resolved.restores && !pending {
            if let Some(held) = self.held.remove(&key) {
                self.journal_deletions.push((planned.knob, held.cgroup));
            }
        } else {
            let known =
                self.held.get(&key).map_or_else(|| self.first_baseline(key, planned.from), |held| held.baseline);
            let baseline = self.baseline_under(host, inputs, key, known, planned.to);
            let held = self.acquire(host, inputs, resolved, planned.from, clamp);
            // If the kernel shows the baseline after a write of another value, another program reset the knob before it was read back:
            // the next read-back handles that as drift.
            let written = if shown == known { planned.to } else { shown };
            (held.baseline, held.written) = (baseline, written);
            held.pending = pending.then_some(resolved.wanted.value);
            if row(planned.knob).slow && !pending {
                self.update_record(host, key);
            }
        }
        if planned.knob == Bandwidth::KNOB {
            self.quotas.refresh(host, planned.target);
        }
        if let Some(masked) = row(planned.knob).masks() {
            self.follow_mask(host, planned.target, masked);
        }
    }

    /// Forgets a refusal once the knob has its value, unless this value stands for one that is refused.
    pub(super) fn accepted(&mut self, key: (Target, Knob), resolved: &Resolved) {
        if !resolved.is_refused {
            self.refusals.remove(&key);
        }
    }

    /// A bound that is lowered in steps may have changed when the write fails: what it reached is qosm's, and is held.
    fn note_reached(
        &mut self,
        host: &mut Host,
        inputs: &Inputs<'_>,
        planned: &HostStep,
        resolved: &Resolved,
        clamp: Option<&Clamp>,
    ) {
        let key = (planned.target, planned.knob);
        if !row(planned.knob).slow {
            return;
        }
        let Some(reached) = host.read(key.0, key.1).ok().filter(|found| *found != planned.from) else { return };
        if !self.held.contains_key(&key) {
            self.acquire(host, inputs, resolved, planned.from, clamp);
        }
        if let Some(held) = self.held.get_mut(&key) {
            (held.written, held.pending) = (reached, None);
            self.update_record(host, key);
        }
    }

    /// Updates a masked knob after a write to the knob that masks it: the change is qosm's, not drift.
    fn follow_mask(&mut self, host: &mut Host, target: Target, masked: Knob) {
        if let Some(held) = self.held.get_mut(&(target, masked))
            && let Ok(found) = host.read(target, masked)
        {
            held.written = found;
        }
    }

    /// Begins to hold a knob, or continues under another lease.
    fn acquire(
        &mut self,
        host: &Host,
        inputs: &Inputs<'_>,
        resolved: &Resolved,
        from: Value,
        clamp: Option<&Clamp>,
    ) -> &mut HeldKnob {
        let key = (resolved.wanted.target, resolved.wanted.knob);
        let adjusted = resolved.guarded.clone().or_else(|| clamp.map(|clamp| (clamp.wanted, clamp.why.clone())));
        let cgroup = host.attached_path(key.0).unwrap_or_default().to_owned();
        let policy = || Arc::clone(&resolved.policy);
        let baseline = self.first_baseline(key, from);
        let has_lease = self.leases.effective(key.0, key.1).is_some();
        let follows = (!has_lease && !resolved.restores).then(|| Arc::clone(&resolved.reason));
        let new = || HeldKnob::new(baseline, from, cgroup, policy(), inputs.now.wall);
        let held = self.held.get_or_insert_with(key, new);
        held.policy = policy();
        (held.adjusted, held.follows) = (adjusted, follows);
        held
    }

    /// Handles a knob that has its resolved value without a write.
    fn already_so(
        &mut self,
        host: &Host,
        inputs: &Inputs<'_>,
        resolved: &Resolved,
        value: Value,
        clamp: Option<&Clamp>,
    ) {
        let key = (resolved.wanted.target, resolved.wanted.knob);
        self.accepted(key, resolved);
        if resolved.restores {
            if let Some(held) = self.held.remove(&key) {
                self.journal_deletions.push((key.1, held.cgroup));
            }
        } else {
            let held = self.acquire(host, inputs, resolved, value, clamp);
            (held.written, held.pending) = (value, None);
            // A cgroup that appeared under a narrowed group has the value without a write, and still needs a record of its baseline.
            if self.followers.contains(&key) {
                self.update_record(host, key);
            }
        }
    }

    fn refused(
        &mut self,
        host: &mut Host,
        inputs: &Inputs<'_>,
        resolved: &Resolved,
        error: HostError,
        out: &mut Applied,
    ) {
        let (target, knob) = (resolved.wanted.target, resolved.wanted.knob);
        // Another knob of the target may have shown this a moment ago.
        if matches!(error, HostError::Gone { .. } | HostError::NotAttached { .. }) {
            return self.target_gone(host, target, out);
        }
        let unavailable = matches!(error, HostError::Unsupported { .. });
        let why = chain(&error);
        inputs.metrics.refusal(knob, if unavailable { "unavailable" } else { error.errno_name() });
        let mut decision = decision::of_value(host, inputs, (target, knob), None, resolved.wanted.value, resolved);
        decision.error = Some(why.clone());
        if unavailable {
            decision.support = "unavailable".to_owned();
        }
        out.refused.push(decision);
        let mut refusal = Refusal::new(resolved.wanted.value, &resolved.policy, &why, inputs.now.wall);
        refusal.unavailable = unavailable;
        let news = self.note_refusal(target, knob, refusal);
        if news && !unavailable {
            let subject = inputs.pods.shown(target);
            tracing::warn!(policy = %resolved.policy, subject, knob = %knob, error = why, "setting refused");
        }
        if news && !unavailable {
            out.notify(inputs.pods, target, "KnobRefused", why);
        }
        // A missing feature is reported to pods that ask for it by annotation; for all pods of a class it is in the node's report.
        if news && unavailable {
            let is_asked = is_annotated(inputs, target, &resolved.policy);
            self.note_missing(inputs.pods, target, knob, &error, is_asked);
            if let Some(refusal) = self.refusals.get_mut(&(target, knob)) {
                refusal.lacking = error.lacking().map(str::to_owned);
            }
        }
    }

    /// Collects slow writes that have ended since.
    fn take_finished(&mut self, host: &mut Host, inputs: &Inputs<'_>, out: &mut Applied) {
        for (target, knob, result) in host.finished() {
            let key = (target, knob);
            let Some(held) = self.held.get_mut(&key) else { continue };
            let wanted = held.pending.take();
            match result {
                Ok(shown) => {
                    held.written = shown;
                    self.update_record(host, key);
                    if self.refusals.contains_key(&key)
                        && let Some(resolved) = self.resolve(host, inputs, target, knob)
                    {
                        tracing::info!(
                            policy = %resolved.policy,
                            subject = inputs.pods.shown(target),
                            %knob,
                            to = %shown,
                            reason = %resolved.reason,
                            "setting applied at another try"
                        );
                        inputs.metrics.write(knob, &resolved.policy);
                        out.decisions.push(decision::of_value(host, inputs, key, None, shown, &resolved));
                    }
                }
                Err(HostError::Gone { .. }) => {
                    self.target_gone(host, target, out);
                    continue;
                }
                // It is tried again with the other refused ones.
                Err(error) => {
                    let (policy, wanted) = (Arc::clone(&held.policy), wanted.unwrap_or(held.written));
                    // The value that the write reached counts as qosm's.
                    if let Ok(found) = host.read(target, knob) {
                        held.written = found;
                    }
                    self.update_record(host, key);
                    let why = chain(&error);
                    inputs.metrics.refusal(knob, error.errno_name());
                    if self.note_refusal(target, knob, Refusal::new(wanted, &policy, &why, inputs.now.wall)) {
                        out.notify(inputs.pods, target, "KnobRefused", why);
                    }
                    let now = self.resolve(host, inputs, target, knob);
                    if now.is_some_and(|resolved| resolved.wanted.value == wanted) {
                        continue;
                    }
                }
            }
            // The lease may have changed or been released meanwhile.
            self.dirty.insert(key);
        }
    }
}

/// Whether a pod asks for a policy by an annotation of its own.
fn is_annotated(inputs: &Inputs<'_>, target: Target, policy: &str) -> bool {
    let Some(entry) = inputs.pods.of(target) else { return false };
    let policy = inputs.policies.active().find(|known| **known.name() == *policy);
    policy.and_then(|policy| policy.effective.get(&entry.id)).is_some_and(Effective::is_annotated)
}

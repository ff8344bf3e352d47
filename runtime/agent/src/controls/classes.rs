//! Classes of cache and memory bandwidth: applies the policies' classes to the kernel, and passes the kernel's counters to the policies.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use qosm_engine::Interface;
use qosm_host::Host;
use qosm_model::knob::Target;
use qosm_model::lease::{Holder, Timestamp};
use qosm_model::pod::{ContainerId, PodId};
use qosm_model::resctrl::{ClassOutcome, ClassState, Usage, WantedClass};
use qosm_model::setting::Setting;

use crate::columns::{ColumnCost, Readings};
use crate::controls::control::{Control, ControlDecisions, Rows};
use crate::controls::resctrl_totals::{Place, ResctrlTotals, differences};
use crate::controls::wanted_classes::{Undeclared, WantedClasses};
use crate::inputs::Inputs;
use crate::policy::{Policy, Reach};
use crate::replay::line::TickLine;
use crate::replay::resctrl::{ClassLine, ResctrlLine, UsageLine};
use crate::report::{ClassDecision, ClassReport, MembershipReport, PodReport, UsageReport, moment};
use crate::step::Mode;
use crate::table::{Access, PodEntry, PodTable};

/// Classes of all policies.
#[derive(Debug, Default)]
pub(crate) struct Classes {
    /// Classes that policies declared.
    wanted: WantedClasses,
    /// What the policy that is staging all it wants has not named yet.
    undeclared: Undeclared,
    /// The classes of the last step, and their outcomes.
    kept: Vec<WantedClass>,
    outcomes: Vec<ClassOutcome>,
    counted: Vec<ContainerId>,
    /// The class that each container was put into.
    placed: BTreeMap<ContainerId, Place>,
    /// Whether the classes in which an earlier agent left paused pods are known.
    has_looked: bool,
    /// Whether no class is wanted, nothing is counted, and the groups of an earlier agent are removed.
    is_clean: bool,
    totals: Arc<ResctrlTotals>,
}

impl Classes {
    /// The state of all classes.
    fn states(&self) -> Vec<(Arc<str>, ClassState)> {
        let state = |(class, outcome): (&WantedClass, &ClassOutcome)| {
            let (class, policy) = (class.class.clone(), Arc::clone(&class.policy));
            (policy, ClassState { class, in_force: outcome.in_force, why: outcome.why.clone() })
        };
        self.kept.iter().zip(&self.outcomes).map(state).collect()
    }

    /// The containers to count: those of pods that are configured for a policy which imports the counters of resctrl.
    fn to_count(inputs: &Inputs<'_>) -> Vec<ContainerId> {
        let readers: Vec<&Policy> =
            inputs.policies.iter().filter(|policy| policy.imports(Interface::ResctrlMonitor)).collect();
        if readers.is_empty() {
            return Vec::new();
        }
        let is_asked = |entry: &&PodEntry| {
            entry.pod.active && entry.access == Access::Open && readers.iter().any(|policy| policy.is_asked(entry.id))
        };
        let entries = inputs.pods.iter().filter(is_asked);
        let open = entries.flat_map(|entry| entry.containers.iter().filter(|container| container.attached));
        let mut containers: Vec<_> = open.map(|container| container.id).collect();
        containers.sort_unstable();
        containers
    }

    /// Applies the declared classes to the kernel. Returns what changed.
    fn reconcile(&mut self, host: &mut Host, inputs: &Inputs<'_>) -> Vec<ClassDecision> {
        let counted = Self::to_count(inputs);
        if self.wanted.is_empty() && counted.is_empty() && self.is_clean {
            return Vec::new();
        }
        let mut wanted = self.wanted.arrange(inputs.pods, &self.placed);
        if inputs.mode != Mode::Plan && !std::mem::replace(&mut self.has_looked, true) {
            self.find_paused(host, inputs.pods, &wanted);
            wanted = self.wanted.arrange(inputs.pods, &self.placed);
        }
        let mut decisions = self.changes(inputs.pods, &wanted);
        if inputs.mode == Mode::Plan {
            self.kept = wanted;
            return decisions;
        }
        let outcomes = host.reconcile_classes(&wanted, &counted);
        self.is_clean = wanted.is_empty() && counted.is_empty();
        self.log_changes(&wanted, &outcomes);
        for decision in &mut decisions {
            let is_it =
                |class: &WantedClass| *class.policy == *decision.policy && class.class.as_str() == decision.class;
            let outcome = wanted.iter().position(is_it).and_then(|place| outcomes.get(place));
            decision.error = outcome.map(|outcome| outcome.why.clone()).filter(|why| !why.is_empty());
        }
        let place = |class: &WantedClass| (Arc::clone(&class.policy), class.class.clone());
        self.placed = wanted.iter().flat_map(|class| class.members.iter().map(move |&id| (id, place(class)))).collect();
        inputs.metrics.classes(&outcomes);
        (self.kept, self.outcomes, self.counted) = (wanted, outcomes, counted);
        decisions
    }

    /// After a start: paused pods stay in the classes in which an earlier agent left them.
    fn find_paused(&mut self, host: &mut Host, pods: &PodTable, wanted: &[WantedClass]) {
        let paused = pods.iter().filter(|entry| entry.pod.active && entry.access == Access::Paused);
        let open = paused.flat_map(|entry| entry.containers.iter().filter(|container| container.attached));
        let containers: Vec<_> = open.map(|container| container.id).collect();
        if containers.is_empty() || wanted.is_empty() {
            return;
        }
        for (container, class) in host.classes_found(wanted, &containers) {
            if let Some(class) = wanted.get(class) {
                self.placed.insert(container, (Arc::clone(&class.policy), class.class.clone()));
            }
        }
    }

    fn changes(&self, pods: &PodTable, wanted: &[WantedClass]) -> Vec<ClassDecision> {
        let known = |class: &WantedClass, among: &[WantedClass]| {
            among.iter().find(|other| other.policy == class.policy && other.class == class.class).cloned()
        };
        let mut decisions = Vec::new();
        for class in wanted {
            let before = known(class, &self.kept);
            if before.as_ref() == Some(class) {
                continue;
            }
            decisions.push(ClassDecision {
                policy: class.policy.to_string(),
                class: class.class.to_string(),
                shares: Some(class.shares.to_string()),
                members: names(pods, &class.members),
                reason: self.reason_of(class).to_string(),
                error: None,
            });
        }
        for class in self.kept.iter().filter(|class| known(class, wanted).is_none()) {
            decisions.push(ClassDecision {
                policy: class.policy.to_string(),
                class: class.class.to_string(),
                shares: None,
                members: Vec::new(),
                reason: String::new(),
                error: None,
            });
        }
        decisions
    }

    fn reason_of(&self, class: &WantedClass) -> Arc<str> {
        let declared = self.wanted.iter().find(|declared| declared.holder.policy == class.policy);
        declared
            .and_then(|declared| declared.class(&class.class))
            .map(|known| Arc::clone(&known.reason))
            .unwrap_or_default()
    }

    /// Logs once when a class differs from the request, and once when it matches again.
    fn log_changes(&self, wanted: &[WantedClass], outcomes: &[ClassOutcome]) {
        for (class, outcome) in wanted.iter().zip(outcomes) {
            let is_it = |known: &WantedClass| known.policy == class.policy && known.class == class.class;
            let before = self.kept.iter().position(is_it).and_then(|place| self.outcomes.get(place));
            let (policy, name, group) = (&class.policy, &class.class, &outcome.group);
            match before {
                Some(before) if before.in_force == outcome.in_force && before.why == outcome.why => {}
                _ if !outcome.why.is_empty() => {
                    tracing::warn!(%policy, class = %name, in_force = outcome.in_force, why = outcome.why, "class differs from the request");
                }
                _ => tracing::info!(%policy, class = %name, group, shares = %class.shares, "class in force"),
            }
        }
    }

    /// Reads the counters, if a policy imports them, and the state of classes.
    #[expect(clippy::disallowed_methods, reason = "how long it took is a metric, and decides nothing")]
    pub(crate) fn read(
        &mut self,
        host: &mut Host,
        is_counted: bool,
        costs: &mut Vec<ColumnCost>,
    ) -> Arc<ResctrlTotals> {
        let start = Instant::now();
        let mut totals = if is_counted && !self.is_clean {
            let reading = host.read_resctrl();
            self.totals.and(&self.kept, reading)
        } else {
            (*self.totals).clone()
        };
        if is_counted {
            totals.domains = host.cache_domains();
            costs.push(ColumnCost { column: Interface::ResctrlMonitor, seconds: start.elapsed().as_secs_f64() });
        }
        totals.states = self.states();
        self.totals = Arc::new(totals);
        Arc::clone(&self.totals)
    }

    /// Removes all of qosm's groups when the agent ends, except those of paused pods. Returns why groups could not be removed.
    fn clear(&mut self, host: &mut Host, inputs: &Inputs<'_>) -> Option<String> {
        if inputs.mode == Mode::Plan {
            return None;
        }
        let paused = |id: &ContainerId| inputs.pods.owner(*id).is_some_and(|(entry, _)| entry.access == Access::Paused);
        let mut left = self.kept.clone();
        left.iter_mut().for_each(|class| class.members.retain(paused));
        left.retain(|class| !class.members.is_empty());
        if !left.is_empty() {
            let pods = names(inputs.pods, &left.iter().flat_map(|class| class.members.clone()).collect::<Vec<_>>());
            tracing::warn!(pods = pods.join(", "), "paused: left in their classes; `qosm restore` takes them out");
            host.reconcile_classes(&left, &[]);
            return None;
        }
        let mut why = None;
        match host.clear_classes() {
            Ok(removed) if removed.is_empty() => {}
            Ok(removed) => tracing::info!(groups = removed.join(", "), "resctrl groups removed"),
            Err(error) => {
                let error = qosm_model::problem::chain(&error);
                tracing::error!(error, "resctrl groups cannot be removed");
                why = Some(error);
            }
        }
        let wanted = std::mem::take(&mut self.wanted);
        *self = Self { wanted, ..Self::default() };
        why
    }

    /// All classes, in the order in which they get a CLOSID if the processor has too few.
    pub(crate) fn reports(&self, pods: &PodTable) -> Vec<ClassReport> {
        let none = ClassOutcome::default();
        let kept = self.kept.iter().enumerate();
        kept.map(|(place, class)| self.report_of(pods, class, self.outcomes.get(place).unwrap_or(&none))).collect()
    }

    fn report_of(&self, pods: &PodTable, class: &WantedClass, outcome: &ClassOutcome) -> ClassReport {
        let declared = self.wanted.iter().find(|declared| declared.holder.policy == class.policy);
        let known = declared.and_then(|declared| declared.class(&class.class));
        let place = (Arc::clone(&class.policy), class.class.clone());
        ClassReport {
            policy: class.policy.to_string(),
            class: class.class.to_string(),
            shares: class.shares.to_string(),
            in_force: outcome.in_force,
            why: outcome.why.clone(),
            group: outcome.group.clone(),
            schemata: outcome.schemata.clone(),
            members: names(pods, &class.members),
            usage: self.totals.classes.get(&place).map(|usages| usage_reports(usages)).unwrap_or_default(),
            reason: known.map(|known| known.reason.to_string()).unwrap_or_default(),
            since: known.map(|known| moment(known.since)).unwrap_or_default(),
        }
    }

    /// The classes that a pod's containers are in.
    fn membership_reports(&self, pods: &PodTable, pod: PodId) -> Vec<MembershipReport> {
        let Some(entry) = pods.get(pod) else { return Vec::new() };
        let report = |(place, container): (usize, &crate::table::ContainerEntry)| {
            let kept = self.kept.iter().position(|class| class.members.contains(&container.id))?;
            let (class, outcome) = (self.kept.get(kept)?, self.outcomes.get(kept)?);
            let member = self.wanted.member(pod, container.id).map(|(_, member)| member);
            Some(MembershipReport {
                container: entry.pod.containers.get(place)?.name.clone(),
                reason: member.map(|member| member.reason.to_string()).unwrap_or_default(),
                since: member.map(|member| moment(member.since)).unwrap_or_default(),
                class: ClassReport {
                    members: Vec::new(),
                    usage: self.totals.containers.get(&container.id).map(|u| usage_reports(u)).unwrap_or_default(),
                    ..self.report_of(pods, class, outcome)
                },
            })
        };
        entry.containers.iter().enumerate().filter_map(report).collect()
    }

    /// The part of a recording's line for a step: the state of classes after the step, and what was counted since `earlier` before it.
    fn line(
        &self,
        now: Option<&ResctrlTotals>,
        earlier: Option<&ResctrlTotals>,
    ) -> (Option<ResctrlLine>, Vec<(ContainerId, Vec<UsageLine>)>) {
        let usage = |place: &Place| {
            let counted = now.and_then(|now| now.classes.get(place)).map(Vec::as_slice).unwrap_or_default();
            differences(counted, earlier.and_then(|earlier| earlier.classes.get(place)))
        };
        let mut states = self.states();
        // A class that was released in this step was still counted before it.
        for place in now.iter().flat_map(|now| now.classes.keys()) {
            if !states.iter().any(|(policy, state)| (policy, &state.class) == (&place.0, &place.1)) {
                let state = ClassState { class: place.1.clone(), in_force: true, why: String::new() };
                states.push((Arc::clone(&place.0), state));
            }
        }
        let line = ResctrlLine {
            domains: self.totals.domains.iter().map(Into::into).collect(),
            classes: (states.iter())
                .map(|(policy, state)| {
                    ClassLine::new(policy, state, &usage(&(Arc::clone(policy), state.class.clone())))
                })
                .collect(),
            rest: now
                .map(|now| {
                    differences(&now.rest, earlier.map(|earlier| &earlier.rest)).iter().map(Into::into).collect()
                })
                .unwrap_or_default(),
        };
        let container = |(&id, counted): (&ContainerId, &Vec<Usage>)| {
            let then = earlier.and_then(|earlier| earlier.containers.get(&id));
            (id, differences(counted, then).iter().map(Into::into).collect())
        };
        let containers = now.iter().flat_map(|now| &now.containers).map(container).collect();
        ((line != ResctrlLine::default()).then_some(line), containers)
    }
}

impl Control for Classes {
    fn begin_staging(&mut self, policy: &str, anew: bool) {
        self.undeclared = if anew { self.wanted.undeclared(policy) } else { Undeclared::default() };
    }

    fn acts_on(&self, setting: &Setting) -> Option<(Target, &'static str)> {
        match setting {
            Setting::AssignClass { target, .. } => Some((*target, "no class is assigned")),
            _ => None,
        }
    }

    fn stage(&mut self, holder: &Holder, setting: Setting, now: Timestamp) -> Option<Setting> {
        match setting {
            Setting::DefineClass { .. }
            | Setting::UndefineClass { .. }
            | Setting::AssignClass { .. }
            | Setting::ReleaseClass { .. } => {
                self.wanted.take(holder, setting, &mut self.undeclared, now);
                None
            }
            other => Some(other),
        }
    }

    fn end_staging(&mut self, policy: &str) {
        self.wanted.release_undeclared(policy, std::mem::take(&mut self.undeclared));
    }

    fn release(&mut self, policy: &str) {
        self.wanted.release_policy(policy);
    }

    fn release_beyond(&mut self, policy: &str, reach: &Reach<'_>) {
        let members: Vec<Target> = self.wanted.members_of(policy).filter(|target| reach(*target).is_some()).collect();
        for target in members {
            self.wanted.unassign(policy, target);
        }
    }

    fn forget(&mut self, target: Target) {
        self.wanted.forget(target);
    }

    fn apply(&mut self, host: &mut Host, inputs: &Inputs<'_>, is_settled: bool, out: &mut ControlDecisions) {
        if is_settled {
            out.classes = self.reconcile(host, inputs);
        }
    }

    fn end(&mut self, host: &mut Host, inputs: &Inputs<'_>) -> Option<String> {
        self.clear(host, inputs)
    }

    fn report(&self, _: &Host, pods: &PodTable, pod: PodId, report: &mut PodReport) {
        report.classes = self.membership_reports(pods, pod);
    }

    fn replay_line(&self, now: &Readings, earlier: &Readings, tick: &mut TickLine, rows: &mut Rows) {
        let (line, counted) = self.line(now.resctrl.as_deref(), earlier.resctrl.as_deref());
        tick.resctrl = line;
        for (id, usage) in counted {
            rows.entry(id.0).or_default().resctrl = usage;
        }
    }
}

/// `namespace/name/container` of each.
fn names(pods: &PodTable, containers: &[ContainerId]) -> Vec<String> {
    let name = |&id: &ContainerId| {
        let (entry, place) = pods.owner(id)?;
        Some(format!("{}/{}", entry.pod.key(), entry.pod.containers.get(place)?.name))
    };
    containers.iter().filter_map(name).collect()
}

fn usage_reports(usages: &[Usage]) -> Vec<UsageReport> {
    let report = |usage: &Usage| UsageReport {
        domain: usage.domain.0,
        occupancy_bytes: usage.occupancy.map(|bytes| bytes.0),
        total_bytes: usage.total.map(|bytes| bytes.0),
    };
    usages.iter().map(report).collect()
}

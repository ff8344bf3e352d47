//! Reconciles classes on a mounted resctrl: groups, schemata and threads.

mod threads;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use qosm_model::pod::ContainerId;
use qosm_model::resctrl::{ClassOutcome, Domain, ResctrlReading, Shares, Usage, WantedClass};

use super::counter_delta::CounterDelta;
use super::domains::domains;
use super::error::ResctrlError;
use super::group::{Group, GroupName};
use super::groups::Groups;
use super::members::{Cgroups, Member};
use super::mount::Mount;
use super::schemata::Schemata;
use super::shares::Translated;

/// qosm's groups on a mounted resctrl.
pub(crate) struct ClassReconciler {
    mount: Mount,
    groups: Groups,
    is_own_mount: bool,
    /// The groups of an earlier process have been adopted or removed.
    is_adopted: bool,
    controls: BTreeMap<GroupName, Control>,
    /// Classes that share another class's group: name of their own group, and of the group that they use.
    shared: BTreeMap<GroupName, GroupName>,
    members: BTreeMap<ContainerId, Member>,
    /// Shares of each class and their translation. Empty after a change of the machine's caches.
    translated: Vec<(Arc<Shares>, Translated)>,
    full: Option<u32>,
    /// The group of each class; `None` if it has none.
    used: Vec<Option<GroupName>>,
    domains: Option<Vec<Domain>>,
    rest: CounterDelta,
    /// Number of further files that may be kept open.
    budget: usize,
    lacks_rmids: bool,
}

/// A control group of qosm.
#[derive(Default)]
struct Control {
    /// The schemata wanted by the last call.
    wanted: Schemata,
    /// The accepted part, if the kernel refused some of it.
    instead: Option<Schemata>,
    /// The kernel's explanations of the refusals.
    refused: Vec<String>,
    until_retry: u8,
    now: Schemata,
    /// `now` in one line.
    line: String,
    /// A change by another program was reported.
    is_contested: bool,
    counters: CounterDelta,
}

/// The classes of one call.
struct Round {
    names: Vec<GroupName>,
    /// Whether each class has members and can be in force.
    needed: Vec<bool>,
    /// Groups of classes that were already handled.
    taken: BTreeSet<GroupName>,
}

impl ClassReconciler {
    pub(crate) fn new(mount: Mount, groups: Groups, is_own_mount: bool, budget: usize) -> Self {
        Self {
            mount,
            groups,
            is_own_mount,
            is_adopted: false,
            controls: BTreeMap::new(),
            shared: BTreeMap::new(),
            members: BTreeMap::new(),
            translated: Vec::new(),
            full: None,
            used: Vec::new(),
            domains: None,
            rest: CounterDelta::default(),
            budget,
            lacks_rmids: false,
        }
    }

    /// Names of all existing groups of qosm.
    pub(crate) fn present(&self) -> Result<Vec<String>, ResctrlError> {
        Ok(self.groups.present()?.own.iter().map(ToString::to_string).collect())
    }

    pub(crate) fn path(&self) -> &str {
        self.mount.path()
    }

    pub(crate) fn is_mounted(&self) -> bool {
        self.mount.is_mounted()
    }

    pub(crate) fn reconcile(
        &mut self,
        wanted: &[WantedClass],
        counted: &[ContainerId],
        full: Option<u32>,
        cgroups: &Cgroups<'_>,
    ) -> Vec<ClassOutcome> {
        self.refresh_caches();
        self.translate(wanted, full);
        self.find_members(wanted, counted, cgroups);
        let mut outcomes: Vec<ClassOutcome> = (0..wanted.len()).map(|class| self.expected_outcome(class)).collect();
        let has_members = |class| self.members.values().any(|member| member.class == Some(class));
        let needed =
            outcomes.iter().enumerate().map(|(class, outcome)| outcome.in_force && has_members(class)).collect();
        let mut round = Round { names: names(wanted), needed, taken: BTreeSet::new() };
        let adopted = self.adopt(&round);
        self.remove_unneeded(&round);
        self.used.clear();
        for (class, outcome) in outcomes.iter_mut().enumerate() {
            let group = if round.needed[class] { self.enforce(class, &mut round, outcome) } else { None };
            self.used.push(group);
        }
        let old_monitors = self.count();
        self.move_threads(&mut outcomes);
        for group in old_monitors {
            self.remove(&group);
        }
        for name in adopted {
            self.release_others(&name);
        }
        self.report_unmoved_threads(&mut outcomes);
        self.members.retain(|_, member| member.class.is_some() || member.is_counted || member.control.is_some());
        outcomes
    }

    /// The containers with a thread in the group of a wanted class, each with the place of the class.
    pub(crate) fn found(
        &self,
        wanted: &[WantedClass],
        containers: &[ContainerId],
        cgroups: &Cgroups<'_>,
    ) -> Vec<(ContainerId, usize)> {
        let groups: Vec<_> = names(wanted).iter().map(|name| self.groups.threads(name).unwrap_or_default()).collect();
        let class_of = |&container: &ContainerId| {
            let member = cgroups.open(&cgroups.find(container)?)?;
            let threads = member.cgroup().ids().ok()?;
            let class = groups.iter().position(|group| threads.iter().any(|thread| group.contains(thread)))?;
            Some((container, class))
        };
        containers.iter().filter_map(class_of).collect()
    }

    /// Reads the resources again if caches have come or gone with their CPUs.
    fn refresh_caches(&mut self) {
        let Ok(root) = self.groups.schemata(None) else { return };
        if self.groups.info().fits(&root) {
            return;
        }
        if let Err(error) = self.groups.read_info_again() {
            tracing::warn!(error = error.full_message(), "resctrl's description of the machine cannot be read");
            return;
        }
        self.translated.clear();
        self.domains = None;
        let readings = self.controls.values_mut().map(|control| &mut control.counters);
        let of_members = self.members.values_mut().map(|member| &mut member.counters);
        for reading in readings.chain(of_members).chain([&mut self.rest]) {
            reading.close(&mut self.budget);
        }
    }

    fn translate(&mut self, wanted: &[WantedClass], full: Option<u32>) {
        if self.full != full {
            self.full = full;
            self.translated.clear();
        }
        self.translated.truncate(wanted.len());
        for (class, wanted) in wanted.iter().enumerate() {
            match self.translated.get_mut(class) {
                Some((of, _)) if Arc::ptr_eq(of, &wanted.shares) || *of == wanted.shares => {}
                Some(entry) => *entry = (wanted.shares.clone(), self.groups.info().translate(&wanted.shares, full)),
                None => {
                    let translated = self.groups.info().translate(&wanted.shares, full);
                    self.translated.push((wanted.shares.clone(), translated));
                }
            }
        }
    }

    fn schemata_of(&self, class: usize) -> Option<&Schemata> {
        self.translated.get(class).map(|(_, translated)| &translated.schemata)
    }

    fn find_members(&mut self, wanted: &[WantedClass], counted: &[ContainerId], cgroups: &Cgroups<'_>) {
        for member in self.members.values_mut() {
            member.class = None;
            member.is_counted = false;
        }
        for (class, wanted) in wanted.iter().enumerate() {
            for &container in &wanted.members {
                if let Some(member) = self.member(container, cgroups) {
                    member.class.get_or_insert(class);
                }
            }
        }
        if self.groups.info().monitoring.is_some() {
            for &container in counted {
                if let Some(member) = self.member(container, cgroups) {
                    member.is_counted = true;
                }
            }
        }
    }

    /// The member for a container; `None` if the container is not attached, or gone.
    fn member(&mut self, container: ContainerId, cgroups: &Cgroups<'_>) -> Option<&mut Member> {
        let found = cgroups.find(container)?;
        if !self.members.get(&container).is_some_and(|member| member.is_at(&found)) {
            let member = cgroups.open(&found)?;
            // The threads of its earlier cgroup have ended with that cgroup.
            if let Some(monitor) = self.members.insert(container, member).and_then(|before| before.monitor) {
                self.remove(&monitor);
            }
        }
        self.members.get_mut(&container)
    }

    /// The outcome of a class that has members and a group.
    fn expected_outcome(&self, class: usize) -> ClassOutcome {
        let missing = match self.translated.get(class) {
            Some((_, translated)) if self.groups.info().closids().is_some() => {
                return ClassOutcome {
                    in_force: !translated.is_in_vain,
                    why: translated.missing.join("; "),
                    ..ClassOutcome::default()
                };
            }
            _ => "resctrl only counts on this machine: it divides neither caches nor memory bandwidth",
        };
        ClassOutcome { why: missing.to_owned(), ..ClassOutcome::default() }
    }

    /// Adopts the groups of an earlier process, and removes those that no class needs. Returns the adopted control groups.
    fn adopt(&mut self, round: &Round) -> Vec<GroupName> {
        let mut adopted = Vec::new();
        if self.is_adopted {
            return adopted;
        }
        let present = match self.groups.present() {
            Ok(present) => present,
            Err(error) => {
                tracing::warn!(error = error.full_message(), "resctrl's groups cannot be listed");
                return adopted;
            }
        };
        self.is_adopted = true;
        for group in present.own {
            match &group {
                Group::Control(name) if round.needs(name) => {
                    self.controls.insert(name.clone(), Control::default());
                    adopted.push(name.clone());
                }
                // The kernel has removed it with its control group.
                Group::Monitor { parent: Some(parent), .. } if !self.controls.contains_key(parent) => {}
                Group::Monitor { parent, name } => {
                    let mut counted = self.members.values_mut().filter(|member| member.is_counted);
                    match counted.find(|member| member.monitor.is_none() && member.monitor_name() == *name) {
                        Some(member) => {
                            member.control = parent.clone();
                            member.monitor = Some(group);
                        }
                        None => {
                            self.remove(&group);
                        }
                    }
                }
                Group::Control(_) => {
                    self.remove(&group);
                }
            }
        }
        adopted
    }

    fn remove(&self, group: &Group) -> bool {
        match self.groups.remove(group) {
            Ok(_) => true,
            Err(error) => {
                tracing::warn!(%group, error = error.full_message(), "resctrl group not removed");
                false
            }
        }
    }

    fn remove_unneeded(&mut self, round: &Round) {
        let unneeded: Vec<GroupName> = self.controls.keys().filter(|name| !round.needs(name)).cloned().collect();
        for name in unneeded {
            self.remove_control(&name);
        }
        self.shared.retain(|own, _| round.needs(own));
    }

    /// Removes a control group; its threads move to the root, and its monitor groups are removed. If that fails, the
    /// next call tries again.
    fn remove_control(&mut self, name: &GroupName) -> bool {
        // Counted members keep their counters, if the kernel can move their monitor groups.
        let counted = |member: &&mut Member| member.is_counted && member.control.as_ref() == Some(name);
        for member in self.members.values_mut().filter(counted) {
            let Some(monitor) = &member.monitor else { continue };
            let above = Group::Monitor { parent: None, name: member.monitor_name() };
            if self.groups.move_monitor(monitor, &above) {
                member.control = None;
                member.monitor = Some(above);
                member.mark_unsettled();
            }
        }
        let removed = self.remove(&Group::Control(name.clone()));
        if removed {
            self.forget_control(name);
        }
        removed
    }

    fn forget_control(&mut self, name: &GroupName) {
        if let Some(mut control) = self.controls.remove(name) {
            control.counters.close(&mut self.budget);
        }
        self.shared.retain(|_, used| used != name);
        for used in &mut self.used {
            used.take_if(|used| used == name);
        }
        for member in self.members.values_mut().filter(|member| member.control.as_ref() == Some(name)) {
            member.control = None;
            member.monitor = None;
            member.counters.close(&mut self.budget);
            member.mark_unsettled();
        }
    }

    /// Gives a class its group, and writes the group's schemata.
    fn enforce(&mut self, class: usize, round: &mut Round, outcome: &mut ClassOutcome) -> Option<GroupName> {
        let mut result = self.group_for(class, round);
        if let Ok(name) = &result
            && let Err(error) = self.apply(name, class)
        {
            result = Err(error);
            // Another program has removed the group: create it again, once.
            if let Err(error) = &result
                && error.is_gone()
            {
                let name = round.names[class].clone();
                let used = self.shared.get(&name).cloned().unwrap_or(name);
                self.forget_control(&used);
                result = self.group_for(class, round).and_then(|name| self.apply(&name, class).map(|()| name));
            }
        }
        match result {
            Ok(name) => {
                if let Some(control) = self.controls.get(&name) {
                    outcome.schemata.clone_from(&control.line);
                    for refusal in &control.refused {
                        add(&mut outcome.why, refusal);
                    }
                }
                outcome.group = name.to_string();
                round.taken.insert(name.clone());
                Some(name)
            }
            Err(error) => {
                outcome.in_force = false;
                outcome.why = error.full_message();
                None
            }
        }
    }

    /// The control group of a class: its own, or a shared one if there are no more CLOSIDs.
    fn group_for(&mut self, class: usize, round: &Round) -> Result<GroupName, ResctrlError> {
        let own = &round.names[class];
        if self.controls.contains_key(own) {
            return Ok(own.clone());
        }
        let is_equal = |other: usize| {
            round.needed[other]
                && self.controls.contains_key(&round.names[other])
                && self.schemata_of(other) == self.schemata_of(class)
        };
        let equal = (0..round.names.len()).find(|&other| is_equal(other)).map(|other| round.names[other].clone());
        if let Some(used) = self.shared.get(own)
            && equal
                .as_ref()
                .is_some_and(|_| (0..round.names.len()).any(|other| round.names[other] == *used && is_equal(other)))
        {
            return Ok(used.clone());
        }
        self.shared.remove(own);
        loop {
            match self.groups.create(&Group::Control(own.clone())) {
                Ok(_) => {
                    self.controls.insert(own.clone(), Control::default());
                    return Ok(own.clone());
                }
                Err(error @ ResctrlError::Closids { .. }) => {
                    if let Some(used) = equal {
                        self.shared.insert(own.clone(), used.clone());
                        return Ok(used);
                    }
                    let behind = round.names.iter().skip(class + 1).rev();
                    let mut behind =
                        behind.filter(|name| self.controls.contains_key(name) && !round.taken.contains(name));
                    let Some(last) = behind.next().cloned() else { return Err(error) };
                    if !self.remove_control(&last) {
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The online domains.
    pub(crate) fn domains(&mut self) -> &[Domain] {
        self.refresh_caches();
        let groups = &self.groups;
        self.domains.get_or_insert_with(|| domains(groups))
    }

    pub(crate) fn read(&mut self) -> ResctrlReading {
        let mut classes = Vec::with_capacity(self.used.len());
        for (class, used) in self.used.iter().enumerate() {
            // A shared group is only read once, and its use counts once: for the first of the classes.
            let before = self.used.iter().take(class).position(|other| other == used);
            let usages = match (used, before) {
                (None, _) => Vec::new(),
                (Some(_), Some(before)) => {
                    let rows: &[Usage] = classes.get(before).map_or(&[], Vec::as_slice);
                    rows.iter().map(Usage::without_amounts).collect()
                }
                (Some(name), None) => match self.controls.get_mut(name) {
                    Some(control) => {
                        control.counters.read(&self.groups, Some(&Group::Control(name.clone())), &mut self.budget)
                    }
                    None => Vec::new(),
                },
            };
            classes.push(usages);
        }
        let mut containers = Vec::new();
        for (&container, member) in &mut self.members {
            if let Some(monitor) = &member.monitor {
                let usages = member.counters.read(&self.groups, Some(monitor), &mut self.budget);
                containers.push((container, usages));
            }
        }
        ResctrlReading { classes, containers, rest: self.rest.read(&self.groups, None, &mut self.budget) }
    }

    /// Removes all of qosm's groups, and the mount if qosm mounted it and no other program has a group.
    pub(crate) fn clear(self) -> Result<Vec<String>, ResctrlError> {
        let adopted = self.groups.adopt(&[])?;
        if let Some((_, error)) = adopted.failed.into_iter().next() {
            return Err(error);
        }
        let may_unmount = self.is_own_mount && !self.groups.has_foreign()?;
        let Self { mount, groups, controls, members, rest, .. } = self;
        // Open files keep the file system mounted, so close them first.
        drop((groups, controls, members, rest));
        if may_unmount {
            mount.unmount()?;
        }
        Ok(adopted.removed.iter().map(Group::to_string).collect())
    }
}

impl Round {
    fn needs(&self, name: &GroupName) -> bool {
        self.names.iter().zip(&self.needed).any(|(own, needed)| *needed && own == name)
    }
}

/// Names of the classes' control groups, which are the same each time for the same classes. Ambiguous names get a
/// number: `a-b` and `c` would equal `a` and `b-c`.
fn names(wanted: &[WantedClass]) -> Vec<GroupName> {
    const MAX_LENGTH: usize = 120;
    let mut names: Vec<GroupName> = Vec::with_capacity(wanted.len());
    for class in wanted {
        let policy: String = class.policy.chars().take(MAX_LENGTH).collect();
        let plain = format!("{policy}-{}", class.class);
        let mut name = GroupName::made_of(&plain);
        let mut number = 2;
        while names.contains(&name) {
            name = GroupName::made_of(&format!("{plain}.{number}"));
            number += 1;
        }
        names.push(name);
    }
    names
}

fn add(why: &mut String, more: &str) {
    if !why.is_empty() {
        why.push_str("; ");
    }
    why.push_str(more);
}

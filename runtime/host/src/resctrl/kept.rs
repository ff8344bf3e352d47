//! Classes kept on a mounted resctrl: who has which group, with which schemata, and which threads are in it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use qosm_model::pod::ContainerId;
use qosm_model::resctrl::{ClassOutcome, Domain, DomainId, ResctrlReading, Shares, WantedClass};
use qosm_model::unit::Bytes;

use super::counters::Counters;
use super::error::ResctrlError;
use super::group::{Group, GroupName};
use super::groups::Groups;
use super::members::{Cgroups, Member, Trouble};
use super::place::Place;
use super::reading::Reading;
use super::resource::CacheId;
use super::schemata::Schemata;
use super::shares::Translated;

/// Times that a refused value is left as it is before it is tried again: a foreign group that was in the way may be gone.
const KEEPS_UNTIL_RETRY: u8 = 16;

/// Groups of qosm's on a mounted resctrl.
pub(crate) struct Kept {
    place: Place,
    groups: Groups,
    is_own_mount: bool,
    /// What an earlier process left has been taken over or removed.
    is_adopted: bool,
    controls: BTreeMap<GroupName, Control>,
    /// Classes without a group of their own, by the name that it would have, and whose they share.
    shared: BTreeMap<GroupName, GroupName>,
    members: BTreeMap<ContainerId, Member>,
    /// Shares as they come out here, by class. Empty where the machine has changed.
    translated: Vec<(Arc<Shares>, Translated)>,
    full: Option<u32>,
    /// The group of each class.
    used: Vec<Option<GroupName>>,
    domains: Option<Vec<Domain>>,
    rest: Reading,
    /// Files that may still be kept open.
    budget: usize,
    lacks_rmids: bool,
}

/// A control group of qosm's.
#[derive(Default)]
struct Control {
    /// What was wanted the last time.
    wanted: Schemata,
    /// What was written in its place, if the kernel refused some of it.
    instead: Option<Schemata>,
    /// What it said.
    refused: Vec<String>,
    until_retry: u8,
    now: Schemata,
    /// The same in one line.
    line: String,
    /// Somebody else's change has been told.
    is_contested: bool,
    reading: Reading,
}

/// The classes of one call, with what was found out about them.
struct Round {
    names: Vec<GroupName>,
    /// Those that have members, and can be in force.
    needed: Vec<bool>,
    /// Groups of classes that have had their turn.
    pledged: BTreeSet<GroupName>,
}

impl Kept {
    pub(crate) fn new(place: Place, groups: Groups, is_own_mount: bool, budget: usize) -> Self {
        Self {
            place,
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
            rest: Reading::default(),
            budget,
            lacks_rmids: false,
        }
    }

    /// Every group of qosm's that there is.
    pub(crate) fn present(&self) -> Result<Vec<String>, ResctrlError> {
        Ok(self.groups.present()?.own.iter().map(ToString::to_string).collect())
    }

    pub(crate) fn path(&self) -> &str {
        self.place.path()
    }

    pub(crate) fn is_there(&self) -> bool {
        self.place.is_there()
    }

    pub(crate) fn keep(
        &mut self,
        wanted: &[WantedClass],
        counted: &[ContainerId],
        full: Option<u32>,
        cgroups: &Cgroups<'_>,
    ) -> Vec<ClassOutcome> {
        self.look_at_caches();
        self.translate(wanted, full);
        self.find_members(wanted, counted, cgroups);
        let mut outcomes: Vec<ClassOutcome> = (0..wanted.len()).map(|class| self.prospect(class)).collect();
        let has_members = |class| self.members.values().any(|member| member.class == Some(class));
        let needed =
            outcomes.iter().enumerate().map(|(class, outcome)| outcome.in_force && has_members(class)).collect();
        let mut round = Round { names: names(wanted), needed, pledged: BTreeSet::new() };
        let adopted = self.adopt(&round);
        self.remove_unneeded(&round);
        self.used.clear();
        for (class, outcome) in outcomes.iter_mut().enumerate() {
            let group = if round.needed[class] { self.bring_in_force(class, &mut round, outcome) } else { None };
            self.used.push(group);
        }
        let old_monitors = self.count();
        self.move_threads(&mut outcomes);
        for group in old_monitors {
            self.remove(&group);
        }
        for name in adopted {
            self.release_strangers(&name);
        }
        self.tell_trouble(&mut outcomes);
        self.members.retain(|_, member| member.class.is_some() || member.is_counted || member.control.is_some());
        outcomes
    }

    /// Caches come and go with their CPUs.
    fn look_at_caches(&mut self) {
        let Ok(root) = self.groups.schemata(None) else { return };
        if self.groups.info().fits(&root) {
            return;
        }
        if let Err(error) = self.groups.read_info_again() {
            tracing::warn!(error = error.told(), "resctrl's description of the machine cannot be read");
            return;
        }
        self.translated.clear();
        self.domains = None;
        let readings = self.controls.values_mut().map(|control| &mut control.reading);
        let of_members = self.members.values_mut().map(|member| &mut member.reading);
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

    /// `None` for a container that is not attached, or gone.
    fn member(&mut self, container: ContainerId, cgroups: &Cgroups<'_>) -> Option<&mut Member> {
        let found = cgroups.find(container)?;
        if !self.members.get(&container).is_some_and(|member| member.is_at(&found)) {
            let member = cgroups.open(&found)?;
            // Threads of the cgroup that it had before are gone with that.
            if let Some(monitor) = self.members.insert(container, member).and_then(|before| before.monitor) {
                self.remove(&monitor);
            }
        }
        self.members.get_mut(&container)
    }

    /// What would come of a class if it had members and a group.
    fn prospect(&self, class: usize) -> ClassOutcome {
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

    /// Takes over what an earlier process left, and removes what nobody wants of it. Returns the control groups that were taken over.
    fn adopt(&mut self, round: &Round) -> Vec<GroupName> {
        let mut adopted = Vec::new();
        if self.is_adopted {
            return adopted;
        }
        let present = match self.groups.present() {
            Ok(present) => present,
            Err(error) => {
                tracing::warn!(error = error.told(), "resctrl's groups cannot be listed");
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
                // Gone with its control group.
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
                tracing::warn!(%group, error = error.told(), "resctrl group not removed");
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

    /// Removes a control group; its threads are in the root then, and its monitor groups are gone. One that cannot be removed is tried again
    /// the next time.
    fn remove_control(&mut self, name: &GroupName) -> bool {
        let removed = self.remove(&Group::Control(name.clone()));
        if removed {
            self.forget_control(name);
        }
        removed
    }

    fn forget_control(&mut self, name: &GroupName) {
        if let Some(mut control) = self.controls.remove(name) {
            control.reading.close(&mut self.budget);
        }
        self.shared.retain(|_, used| used != name);
        for used in &mut self.used {
            used.take_if(|used| used == name);
        }
        for member in self.members.values_mut().filter(|member| member.control.as_ref() == Some(name)) {
            member.control = None;
            member.monitor = None;
            member.reading.close(&mut self.budget);
            member.unsettle();
        }
    }

    /// Gives a class its group, and the group its schemata.
    fn bring_in_force(&mut self, class: usize, round: &mut Round, outcome: &mut ClassOutcome) -> Option<GroupName> {
        let mut result = self.group_for(class, round);
        if let Ok(name) = &result
            && let Err(error) = self.apply(name, class)
        {
            result = Err(error);
            // Somebody has removed it: it is made anew, once.
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
                round.pledged.insert(name.clone());
                Some(name)
            }
            Err(error) => {
                outcome.in_force = false;
                outcome.why = error.told();
                None
            }
        }
    }

    /// The control group of a class: its own, or one that it shares because there are no more.
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
                        behind.filter(|name| self.controls.contains_key(name) && !round.pledged.contains(name));
                    let Some(last) = behind.next().cloned() else { return Err(error) };
                    if !self.remove_control(&last) {
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn apply(&mut self, name: &GroupName, class: usize) -> Result<(), ResctrlError> {
        let (Some((_, translated)), Some(control)) = (self.translated.get(class), self.controls.get_mut(name)) else {
            return Ok(());
        };
        let wanted = &translated.schemata;
        let is_new_wish = control.wanted != *wanted;
        if is_new_wish {
            control.wanted = wanted.clone();
            control.instead = None;
        } else if control.instead.is_some() {
            control.until_retry = control.until_retry.saturating_sub(1);
            if control.until_retry == 0 {
                control.instead = None;
            }
        }
        let written = match &control.instead {
            Some(instead) => self.groups.apply(name, instead)?,
            None => match self.groups.apply(name, wanted) {
                Ok(written) => {
                    control.refused.clear();
                    written
                }
                Err(ResctrlError::Refused { .. }) => {
                    let (instead, refused) = line_by_line(&self.groups, name, wanted)?;
                    control.refused = refused;
                    control.until_retry = KEEPS_UNTIL_RETRY;
                    self.groups.apply(name, control.instead.insert(instead))?
                }
                Err(error) => return Err(error),
            },
        };
        let is_changed_by_others = !is_new_wish && control.instead.is_none() && !written.changed.is_empty();
        if is_changed_by_others && !control.is_contested {
            tracing::warn!(group = %name, was = control.line, "somebody else changed the schemata of a resctrl group; written again");
        }
        control.is_contested = is_changed_by_others;
        if control.now != written.now || control.line.is_empty() {
            control.line = written.now.to_string().trim_ascii_end().replace('\n', " ");
            control.now = written.now;
        }
        Ok(())
    }

    /// How many containers can be counted: some RMIDs are left to control groups, each of which needs one, too.
    fn most_counted(&self) -> usize {
        let info = self.groups.info();
        let rmids = info.monitoring.as_ref().map_or(0, |monitoring| monitoring.num_rmids);
        let reserved = info.closids().unwrap_or(1).min(rmids / 2).max(1);
        usize::try_from(rmids.saturating_sub(reserved)).unwrap_or(usize::MAX)
    }

    /// Brings monitor groups in line. Returns those that threads have yet to leave.
    fn count(&mut self) -> Vec<Group> {
        let mut left = Vec::new();
        let mut counted = 0;
        for member in self.members.values_mut() {
            if !member.is_counted
                && let Some(monitor) = member.monitor.take()
            {
                // Its threads fall into the control group.
                if let Err(error) = self.groups.remove(&monitor) {
                    tracing::warn!(group = %monitor, error = error.told(), "resctrl group not removed");
                }
                member.reading.close(&mut self.budget);
                member.reading = Reading::default();
                member.unsettle();
            }
            counted += usize::from(member.monitor.is_some());
        }
        let most = self.most_counted();
        let mut lacks_rmids = false;
        for member in self.members.values_mut().filter(|member| member.is_counted) {
            let parent = member.class.and_then(|class| self.used.get(class).cloned().flatten());
            let is_in_place = matches!(&member.monitor, Some(Group::Monitor { parent: now, .. }) if *now == parent);
            if is_in_place {
                continue;
            }
            let wanted = Group::Monitor { parent: parent.clone(), name: member.monitor_name() };
            member.unsettle();
            if let Some(before) = member.monitor.take() {
                if self.groups.move_monitor(&before, &wanted) {
                    member.control = parent;
                    member.monitor = Some(wanted);
                    continue;
                }
                member.reading.close(&mut self.budget);
                member.reading = Reading::default();
                counted -= 1;
                // With the threads that are in it for now.
                left.push(before);
            }
            if lacks_rmids || counted >= most {
                lacks_rmids = true;
                continue;
            }
            match self.groups.create(&wanted) {
                Ok(_) => {
                    counted += 1;
                    member.monitor = Some(wanted);
                }
                Err(ResctrlError::Rmids { .. }) => lacks_rmids = true,
                Err(error) => tracing::debug!(group = %wanted, error = error.told(), "resctrl group not made"),
            }
        }
        if lacks_rmids && !self.lacks_rmids {
            tracing::warn!(
                counted,
                "no RMID is left: some containers' use of caches and memory bandwidth is not counted"
            );
        }
        self.lacks_rmids = lacks_rmids;
        left
    }

    fn move_threads(&mut self, outcomes: &mut [ClassOutcome]) {
        let mut gone = BTreeSet::new();
        for member in self.members.values_mut() {
            let control = member.class.and_then(|class| self.used.get(class).cloned().flatten());
            if member.control != control {
                member.unsettle();
            }
            if member.monitor.is_none() && control.is_none() {
                member.trouble = Trouble::default();
                let before = member.control.take().filter(|name| self.controls.contains_key(name));
                if let Some(before) = before.map(Group::Control) {
                    let moved = self.groups.release(&before, &[member.cgroup()]);
                    if !moved.is_ok_and(|moved| moved.is_settled) {
                        member.control = before.control().cloned();
                    }
                }
                continue;
            }
            let Some(seen) = member.look() else { continue };
            let moved = match (&member.monitor, &control) {
                (Some(monitor), _) => self.groups.assign(monitor, &[member.cgroup()]),
                (None, Some(name)) => self.groups.assign(&Group::Control(name.clone()), &[member.cgroup()]),
                (None, None) => continue,
            };
            member.trouble = Trouble::default();
            match moved {
                Ok(moved) => {
                    if let Some(outcome) = member.class.and_then(|class| outcomes.get_mut(class)) {
                        outcome.threads_moved += moved.moved;
                    }
                    member.control = control;
                    member.trouble.out_of_sight = moved.out_of_sight;
                    member.trouble.refused = moved.refused;
                    member.trouble.said = moved.first_refusal.as_ref().map(ResctrlError::told);
                    if moved.is_settled {
                        member.settle(seen);
                    }
                }
                Err(error) => {
                    member.trouble.said = Some(error.told());
                    member.unsettle();
                    if error.is_gone() {
                        // Which of the two it is shows the next time.
                        member.monitor = None;
                        gone.extend(control);
                    }
                }
            }
        }
        for name in gone {
            if self.groups.schemata(Some(&name)).is_err_and(|error| error.is_gone()) {
                self.forget_control(&name);
            }
        }
    }

    /// What an earlier process had in a group, and nobody wants there now.
    fn release_strangers(&self, name: &GroupName) {
        let members = self.members.values().filter(|member| member.control.as_ref() == Some(name));
        let cgroups: Vec<_> = members.map(Member::cgroup).collect();
        if let Err(error) = self.groups.release_others(&Group::Control(name.clone()), &cgroups) {
            tracing::warn!(group = %name, error = error.told(), "threads of an earlier process are still in a resctrl group");
        }
    }

    fn tell_trouble(&self, outcomes: &mut [ClassOutcome]) {
        for (class, outcome) in outcomes.iter_mut().enumerate() {
            let (mut out_of_sight, mut refused, mut said) = (0, 0, None);
            for member in self.members.values().filter(|member| member.class == Some(class)) {
                out_of_sight += member.trouble.out_of_sight;
                refused += member.trouble.refused;
                said = said.or(member.trouble.said.as_deref());
            }
            if out_of_sight > 0 {
                add(
                    &mut outcome.why,
                    &format!(
                        "{out_of_sight} threads of its members cannot be seen from this process's pid namespace: in Kubernetes give \
                         the agent hostPID"
                    ),
                );
            }
            if let Some(said) = said {
                let how_many = if refused > 0 { format!("{refused} threads") } else { "threads".to_owned() };
                add(&mut outcome.why, &format!("{how_many} of its members could not be moved: {said}"));
            }
        }
    }

    /// The domains that are online.
    pub(crate) fn domains(&mut self) -> &[Domain] {
        self.look_at_caches();
        let groups = &self.groups;
        self.domains.get_or_insert_with(|| domains(groups))
    }

    pub(crate) fn read(&mut self) -> ResctrlReading {
        let mut classes = Vec::with_capacity(self.used.len());
        for (class, used) in self.used.iter().enumerate() {
            // Of a group that is shared there is one reading.
            let before = self.used.iter().take(class).position(|other| other == used);
            let usages = match (used, before) {
                (None, _) => Vec::new(),
                (Some(_), Some(before)) => classes.get(before).cloned().unwrap_or_default(),
                (Some(name), None) => match self.controls.get_mut(name) {
                    Some(control) => {
                        control.reading.read(&self.groups, Some(&Group::Control(name.clone())), &mut self.budget)
                    }
                    None => Vec::new(),
                },
            };
            classes.push(usages);
        }
        let mut containers = Vec::new();
        for (&container, member) in &mut self.members {
            if let Some(monitor) = &member.monitor {
                let usages = member.reading.read(&self.groups, Some(monitor), &mut self.budget);
                containers.push((container, usages));
            }
        }
        ResctrlReading { classes, containers, rest: self.rest.read(&self.groups, None, &mut self.budget) }
    }

    /// Removes all groups of qosm's, and the mount if it is qosm's and nobody else has a group.
    pub(crate) fn clear(self) -> Result<Vec<String>, ResctrlError> {
        let adopted = self.groups.adopt(&[])?;
        if let Some((_, error)) = adopted.failed.into_iter().next() {
            return Err(error);
        }
        let may_unmount = self.is_own_mount && !self.groups.has_foreign()?;
        let Self { place, groups, controls, members, rest, .. } = self;
        // Whatever is open there keeps it mounted.
        drop((groups, controls, members, rest));
        if may_unmount {
            place.unmount()?;
        }
        Ok(adopted.removed.iter().map(Group::to_string).collect())
    }
}

impl Round {
    fn needs(&self, name: &GroupName) -> bool {
        self.names.iter().zip(&self.needed).any(|(own, needed)| *needed && own == name)
    }
}

/// Names of the classes' control groups: the same each time for the same classes. `a-b` and `c` would be `a` and `b-c`.
fn names(wanted: &[WantedClass]) -> Vec<GroupName> {
    const LONGEST: usize = 120;
    let mut names: Vec<GroupName> = Vec::with_capacity(wanted.len());
    for class in wanted {
        let policy: String = class.policy.chars().take(LONGEST).collect();
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

/// Writes what the kernel takes of schemata that it refused as a whole. Where it refuses a line, what the root has stands in: the rest
/// of the machine has that, so nothing of an exclusive group. Returns what is to be there, and what was refused.
fn line_by_line(groups: &Groups, name: &GroupName, wanted: &Schemata) -> Result<(Schemata, Vec<String>), ResctrlError> {
    let root = groups.schemata(None)?;
    let mut taken = Schemata::new();
    let mut refused = Vec::new();
    for line in wanted.lines() {
        match groups.apply(name, &line) {
            Ok(_) => taken.merge(&line),
            Err(error @ ResctrlError::Refused { .. }) => {
                let mut instead = line.clone();
                let mut asks_for_less = false;
                for (resource, id, mask) in line.masks() {
                    asks_for_less |= groups.info().caches.get(&resource).is_some_and(|cache| cache.cbm_mask != mask);
                    if let Some(of_root) = root.mask(resource, id) {
                        instead.set_mask(resource, id, of_root);
                    }
                }
                if asks_for_less || line.bandwidths().next().is_some() {
                    refused.push(error.told());
                }
                match groups.apply(name, &instead) {
                    Ok(_) => taken.merge(&instead),
                    Err(ResctrlError::Refused { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok((taken, refused))
}

fn domains(groups: &Groups) -> Vec<Domain> {
    let info = groups.info();
    let mut found: BTreeMap<CacheId, Domain> = BTreeMap::new();
    let empty = |id: CacheId| Domain { id: DomainId(id.0), cache_ways: 0, cache: None, divides_bandwidth: false };
    for (resource, cache) in info.caches_of(info.level()) {
        let sizes = groups.sizes(resource);
        for &id in &cache.ids {
            let domain = found.entry(id).or_insert_with(|| empty(id));
            domain.cache_ways = cache.cbm_mask.ways();
            domain.cache = sizes.get(&id).copied();
        }
    }
    if let Some(bandwidth) = info.limited() {
        for &id in &bandwidth.ids {
            found.entry(id).or_insert_with(|| empty(id)).divides_bandwidth = true;
        }
    }
    if found.is_empty()
        && let Ok(counters) = Counters::open(groups, None)
    {
        found.extend(counters.samples().iter().map(|sample| (sample.cache, empty(sample.cache))));
    }
    found.into_values().collect()
}

impl Groups {
    /// Sizes of whole caches: `size` has those of the root's part of them.
    fn sizes(&self, resource: super::resource::CacheResource) -> BTreeMap<CacheId, Bytes> {
        let mut sizes = BTreeMap::new();
        let (Ok(text), Ok(root)) = (self.read("size"), self.schemata(None)) else { return sizes };
        let ways = self.info().caches.get(&resource).map_or(0, |cache| cache.cbm_mask.ways());
        let lines = text.lines().filter_map(|line| line.trim_ascii().split_once(':'));
        for item in
            lines.filter(|(name, _)| name.trim_ascii() == resource.as_str()).flat_map(|(_, items)| items.split(';'))
        {
            let Some((id, size)) = item.split_once('=') else { continue };
            let number = |text: &str| crate::parse::number(text.as_bytes());
            let (Some(id), Some(size)) = (number(id).and_then(|id| u32::try_from(id).ok()), number(size)) else {
                continue;
            };
            let of_root = root.mask(resource, CacheId(id)).map_or(0, super::mask::Mask::ways);
            if let Some(way) = size.checked_div(u64::from(of_root)) {
                sizes.insert(CacheId(id), Bytes(way * u64::from(ways)));
            }
        }
        sizes
    }
}

fn add(why: &mut String, more: &str) {
    if !why.is_empty() {
        why.push_str("; ");
    }
    why.push_str(more);
}

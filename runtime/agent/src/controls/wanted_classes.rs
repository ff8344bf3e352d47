//! Classes of shares that policies want, with their members. Nothing is journaled: a restore removes all groups of qosm.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use qosm_model::knob::Target;
use qosm_model::lease::{Holder, Timestamp};
use qosm_model::pod::{ContainerId, PodId};
use qosm_model::resctrl::{ClassName, Shares, WantedClass};
use qosm_model::setting::Setting;

use crate::controls::resctrl_totals::Place;
use crate::table::{Access, PodTable};

/// A class that a policy defined.
#[derive(Clone, Debug)]
pub(crate) struct Class {
    pub(crate) name: ClassName,
    pub(crate) shares: Arc<Shares>,
    pub(crate) reason: Arc<str>,
    pub(crate) since: Timestamp,
}

/// The membership of a target in a class.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) class: ClassName,
    pub(crate) reason: Arc<str>,
    pub(crate) since: Timestamp,
}

/// The classes and members of one policy.
#[derive(Clone, Debug)]
pub(crate) struct PolicyClasses {
    pub(crate) holder: Holder,
    /// In the order in which they were defined: if the processor has too few CLOSIDs, the first ones get theirs.
    pub(crate) classes: Vec<Class>,
    pub(crate) members: BTreeMap<Target, Member>,
}

/// The classes of all policies, the highest priority first.
#[derive(Clone, Debug, Default)]
pub(crate) struct WantedClasses {
    declared: Vec<PolicyClasses>,
}

/// The classes and members that a policy has not declared again yet, while it stages all that it wants.
#[derive(Debug, Default)]
pub(crate) struct Undeclared {
    classes: BTreeSet<ClassName>,
    members: BTreeSet<Target>,
}

impl PolicyClasses {
    pub(crate) fn class(&self, name: &ClassName) -> Option<&Class> {
        self.classes.iter().find(|class| class.name == *name)
    }

    fn undefine(&mut self, name: &ClassName) {
        self.classes.retain(|class| class.name != *name);
        self.members.retain(|_, member| member.class != *name);
    }
}

impl WantedClasses {
    pub(crate) fn is_empty(&self) -> bool {
        self.declared.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &PolicyClasses> {
        self.declared.iter()
    }

    /// All classes and members that a policy has declared.
    pub(crate) fn undeclared(&self, policy: &str) -> Undeclared {
        let Some(declared) = self.of(policy) else { return Undeclared::default() };
        Undeclared {
            classes: declared.classes.iter().map(|class| class.name.clone()).collect(),
            members: declared.members.keys().copied().collect(),
        }
    }

    fn of(&self, policy: &str) -> Option<&PolicyClasses> {
        self.declared.iter().find(|declared| *declared.holder.policy == *policy)
    }

    fn change(&mut self, holder: &Holder) -> &mut PolicyClasses {
        let rank = |holder: &Holder| (std::cmp::Reverse(holder.priority), Arc::clone(&holder.policy));
        let known = self.declared.iter().position(|declared| declared.holder.policy == holder.policy);
        if let Some(place) = known.filter(|&place| self.declared[place].holder == *holder) {
            return &mut self.declared[place];
        }
        let (classes, members) = match known.map(|place| self.declared.remove(place)) {
            Some(declared) => (declared.classes, declared.members),
            None => Default::default(),
        };
        let place = self.declared.partition_point(|declared| rank(&declared.holder) < rank(holder));
        self.declared.insert(place, PolicyClasses { holder: holder.clone(), classes, members });
        &mut self.declared[place]
    }

    /// Takes a policy's setting if it is about classes, and ignores others.
    pub(crate) fn take(&mut self, holder: &Holder, setting: Setting, undeclared: &mut Undeclared, now: Timestamp) {
        let declared = self.change(holder);
        match setting {
            Setting::DefineClass { class, shares, reason } => {
                undeclared.classes.remove(&class);
                match declared.classes.iter_mut().find(|known| known.name == class) {
                    Some(known) => {
                        if *known.shares != shares {
                            (known.shares, known.since) = (Arc::new(shares), now);
                        }
                        known.reason = reason;
                    }
                    None => {
                        declared.classes.push(Class { name: class, shares: Arc::new(shares), reason, since: now });
                    }
                }
            }
            Setting::UndefineClass { class } => declared.undefine(&class),
            Setting::AssignClass { target, class, reason } => {
                undeclared.members.remove(&target);
                let since = declared.members.get(&target).filter(|known| known.class == class);
                let since = since.map_or(now, |known| known.since);
                declared.members.insert(target, Member { class, reason, since });
            }
            Setting::ReleaseClass { target } => {
                declared.members.remove(&target);
            }
            Setting::Hold { .. }
            | Setting::Release { .. }
            | Setting::Migrate(_)
            | Setting::StopMigration { .. }
            | Setting::Publish { .. }
            | Setting::Withdraw { .. }
            | Setting::StaleAfter { .. }
            | Setting::Evict(_)
            | Setting::WithdrawEviction { .. } => {}
        }
        self.drop_empty();
    }

    /// Releases what a policy has not declared again.
    pub(crate) fn release_undeclared(&mut self, policy: &str, undeclared: Undeclared) {
        if let Some(declared) = self.declared.iter_mut().find(|declared| *declared.holder.policy == *policy) {
            declared.members.retain(|target, _| !undeclared.members.contains(target));
            undeclared.classes.iter().for_each(|class| declared.undefine(class));
        }
        self.drop_empty();
    }

    /// Releases all settings of a policy.
    pub(crate) fn release_policy(&mut self, policy: &str) {
        self.declared.retain(|declared| *declared.holder.policy != *policy);
    }

    /// Pods and containers that a policy has put into a class.
    pub(crate) fn members_of(&self, policy: &str) -> impl Iterator<Item = Target> {
        self.of(policy).into_iter().flat_map(|declared| declared.members.keys().copied())
    }

    /// Removes a member that its policy may no longer act on.
    pub(crate) fn unassign(&mut self, policy: &str, target: Target) {
        if let Some(declared) = self.declared.iter_mut().find(|declared| *declared.holder.policy == *policy) {
            declared.members.remove(&target);
        }
    }

    /// Forgets a target that is gone.
    pub(crate) fn forget(&mut self, target: Target) {
        for declared in &mut self.declared {
            declared.members.remove(&target);
        }
    }

    fn drop_empty(&mut self) {
        self.declared.retain(|declared| !declared.classes.is_empty());
    }

    /// The policy that decides a container's class: the highest priority; the container's entry before its pod's.
    pub(crate) fn member(&self, pod: PodId, container: ContainerId) -> Option<(&PolicyClasses, &Member)> {
        self.declared.iter().find_map(|declared| {
            let own = declared.members.get(&Target::Container(container));
            Some((declared, own.or_else(|| declared.members.get(&Target::Pod(pod)))?))
        })
    }

    /// The classes for the host. A paused pod stays in its class as long as the class exists; a pod in a protected namespace is in none.
    pub(crate) fn arrange(&self, pods: &PodTable, placed: &BTreeMap<ContainerId, Place>) -> Vec<WantedClass> {
        let mut wanted = Vec::new();
        let mut places: BTreeMap<(&str, &ClassName), usize> = BTreeMap::new();
        for declared in &self.declared {
            for class in &declared.classes {
                places.insert((&*declared.holder.policy, &class.name), wanted.len());
                wanted.push(WantedClass {
                    policy: Arc::clone(&declared.holder.policy),
                    class: class.name.clone(),
                    shares: Arc::clone(&class.shares),
                    members: Vec::new(),
                });
            }
        }
        if wanted.is_empty() {
            return wanted;
        }
        for entry in pods.iter().filter(|entry| entry.pod.active) {
            for container in entry.containers.iter().filter(|container| container.attached) {
                let place = match entry.access {
                    Access::Open => self
                        .member(entry.id, container.id)
                        .and_then(|(declared, member)| places.get(&(&*declared.holder.policy, &member.class))),
                    Access::Paused => {
                        placed.get(&container.id).and_then(|(policy, class)| places.get(&(&**policy, class)))
                    }
                    Access::Protected => None,
                };
                if let Some(class) = place.and_then(|&place| wanted.get_mut(place)) {
                    class.members.push(container.id);
                }
            }
        }
        wanted.iter_mut().for_each(|class| class.members.sort_unstable());
        wanted
    }
}

#[cfg(test)]
mod tests {
    use qosm_model::lease::Priority;
    use qosm_model::resctrl::{CacheShare, Share};

    use super::*;

    fn holder(policy: &str, priority: i32) -> Holder {
        Holder { policy: policy.into(), priority: Priority(priority) }
    }

    fn name(text: &str) -> ClassName {
        text.parse().unwrap()
    }

    fn define(class: &str, end: u32) -> Setting {
        let cache = Some(CacheShare::Percent { start: 0, end });
        let shares = Shares { all: Share { cache, bandwidth: None }, domains: BTreeMap::new() };
        Setting::DefineClass { class: name(class), shares, reason: "because".into() }
    }

    fn assign(target: Target, class: &str) -> Setting {
        Setting::AssignClass { target, class: name(class), reason: "because".into() }
    }

    const POD: PodId = PodId(1);
    const FIRST: ContainerId = ContainerId(1);
    const SECOND: ContainerId = ContainerId(2);

    fn whose(classes: &WantedClasses, container: ContainerId) -> Option<String> {
        let (declared, member) = classes.member(POD, container)?;
        Some(format!("{}/{}", declared.holder.policy, member.class))
    }

    #[test]
    fn the_highest_priority_counts_and_a_containers_own_class_before_its_pods() {
        let (low, high) = (holder("low", 1), holder("high", 2));
        let mut classes = WantedClasses::default();
        let mut undeclared = Undeclared::default();
        for (holder, settings) in [
            (&low, vec![define("be", 30), define("ls", 100), assign(Target::Pod(POD), "be")]),
            (&low, vec![assign(Target::Container(SECOND), "ls")]),
        ] {
            for setting in settings {
                classes.take(holder, setting, &mut undeclared, Timestamp(1));
            }
        }
        assert_eq!(whose(&classes, FIRST).as_deref(), Some("low/be"));
        assert_eq!(whose(&classes, SECOND).as_deref(), Some("low/ls"));
        classes.take(&high, define("all", 50), &mut undeclared, Timestamp(2));
        classes.take(&high, assign(Target::Pod(POD), "all"), &mut undeclared, Timestamp(2));
        assert_eq!(whose(&classes, SECOND).as_deref(), Some("high/all"), "the policy counts before the level");
        classes.take(&holder("low", 3), define("be", 20), &mut undeclared, Timestamp(3));
        assert_eq!(whose(&classes, SECOND).as_deref(), Some("low/ls"), "the priority has changed");
        classes.take(&low, define("be", 30), &mut undeclared, Timestamp(4));
        assert_eq!(whose(&classes, SECOND).as_deref(), Some("high/all"), "and once more");
        classes.release_policy("high");
        assert_eq!(whose(&classes, SECOND).as_deref(), Some("low/ls"), "what lies beneath comes back");
    }

    #[test]
    fn what_is_not_said_again_is_given_up() {
        let policy = holder("llc", 1);
        let mut classes = WantedClasses::default();
        let mut undeclared = Undeclared::default();
        for setting in [
            define("a", 30),
            define("b", 40),
            assign(Target::Container(FIRST), "a"),
            assign(Target::Container(SECOND), "b"),
            assign(Target::Pod(POD), "b"),
        ] {
            classes.take(&policy, setting, &mut undeclared, Timestamp(1));
        }
        let mut undeclared = classes.undeclared("llc");
        classes.take(&policy, define("b", 40), &mut undeclared, Timestamp(2));
        classes.take(&policy, assign(Target::Container(SECOND), "b"), &mut undeclared, Timestamp(2));
        classes.release_undeclared("llc", undeclared);
        assert_eq!(whose(&classes, FIRST), None, "neither class nor pod");
        assert_eq!(whose(&classes, SECOND).as_deref(), Some("llc/b"));
        let declared = classes.iter().next().unwrap();
        assert_eq!(declared.classes.len(), 1);
        assert_eq!(declared.class(&name("b")).unwrap().since, Timestamp(1), "the same shares since then");
    }

    #[test]
    fn the_end_of_a_class_ends_its_members() {
        let policy = holder("llc", 1);
        let mut classes = WantedClasses::default();
        let mut undeclared = Undeclared::default();
        for setting in [define("a", 30), assign(Target::Pod(POD), "a"), Setting::UndefineClass { class: name("a") }] {
            classes.take(&policy, setting, &mut undeclared, Timestamp(1));
        }
        assert!(classes.is_empty());
    }
}

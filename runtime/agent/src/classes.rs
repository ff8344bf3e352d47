//! Classes of shares: what policies want of resctrl, and who is in which. Nothing of it is written down: what restores is that every
//! group of qosm's is removed, and that is known without a journal.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use qosm_model::knob::Target;
use qosm_model::lease::{Holder, Timestamp};
use qosm_model::pod::{ContainerId, PodId};
use qosm_model::resctrl::{ClassName, Shares, WantedClass};
use qosm_model::setting::Setting;

use crate::table::{Access, Pods};

/// A class that a policy defined.
#[derive(Clone, Debug)]
pub(crate) struct Class {
    pub(crate) name: ClassName,
    pub(crate) shares: Arc<Shares>,
    pub(crate) reason: Arc<str>,
    pub(crate) since: Timestamp,
}

/// Who is in a class.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) class: ClassName,
    pub(crate) reason: Arc<str>,
    pub(crate) since: Timestamp,
}

/// What one policy wants.
#[derive(Clone, Debug)]
pub(crate) struct Wishes {
    pub(crate) holder: Holder,
    /// In the order in which they were defined: where a processor has too few, the first ones get theirs.
    pub(crate) classes: Vec<Class>,
    pub(crate) members: BTreeMap<Target, Member>,
}

/// What all policies want, the highest priority first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Classes {
    wishes: Vec<Wishes>,
}

/// What a policy that says all it wants has not said yet.
#[derive(Debug, Default)]
pub(crate) struct Unsaid {
    classes: BTreeSet<ClassName>,
    members: BTreeSet<Target>,
}

/// A container's place: a policy's class.
pub(crate) type Place = (Arc<str>, ClassName);

impl Wishes {
    pub(crate) fn class(&self, name: &ClassName) -> Option<&Class> {
        self.classes.iter().find(|class| class.name == *name)
    }

    fn undefine(&mut self, name: &ClassName) {
        self.classes.retain(|class| class.name != *name);
        self.members.retain(|_, member| member.class != *name);
    }
}

impl Classes {
    pub(crate) fn is_empty(&self) -> bool {
        self.wishes.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Wishes> {
        self.wishes.iter()
    }

    /// All that a policy has said before.
    pub(crate) fn unsaid(&self, policy: &str) -> Unsaid {
        let Some(wishes) = self.of(policy) else { return Unsaid::default() };
        Unsaid {
            classes: wishes.classes.iter().map(|class| class.name.clone()).collect(),
            members: wishes.members.keys().copied().collect(),
        }
    }

    fn of(&self, policy: &str) -> Option<&Wishes> {
        self.wishes.iter().find(|wishes| *wishes.holder.policy == *policy)
    }

    fn change(&mut self, holder: &Holder) -> &mut Wishes {
        let is_first = |wishes: &Wishes| *wishes.holder.policy == *holder.policy;
        let place = match self.wishes.iter().position(is_first) {
            Some(place) => place,
            None => {
                let weight = |holder: &Holder| (std::cmp::Reverse(holder.priority), Arc::clone(&holder.policy));
                let place = self.wishes.partition_point(|wishes| weight(&wishes.holder) < weight(holder));
                let wishes = Wishes { holder: holder.clone(), classes: Vec::new(), members: BTreeMap::new() };
                self.wishes.insert(place, wishes);
                place
            }
        };
        &mut self.wishes[place]
    }

    /// Takes what a policy staged of classes; anything else is none of its business.
    pub(crate) fn take(&mut self, holder: &Holder, setting: Setting, unsaid: &mut Unsaid, now: Timestamp) {
        let wishes = self.change(holder);
        match setting {
            Setting::DefineClass { class, shares, reason } => {
                unsaid.classes.remove(&class);
                match wishes.classes.iter_mut().find(|known| known.name == class) {
                    Some(known) => {
                        if *known.shares != shares {
                            (known.shares, known.since) = (Arc::new(shares), now);
                        }
                        known.reason = reason;
                    }
                    None => {
                        wishes.classes.push(Class { name: class, shares: Arc::new(shares), reason, since: now });
                    }
                }
            }
            Setting::UndefineClass { class } => wishes.undefine(&class),
            Setting::AssignClass { target, class, reason } => {
                unsaid.members.remove(&target);
                let since = wishes.members.get(&target).filter(|known| known.class == class);
                let since = since.map_or(now, |known| known.since);
                wishes.members.insert(target, Member { class, reason, since });
            }
            Setting::ReleaseClass { target } => {
                wishes.members.remove(&target);
            }
            Setting::Hold { .. } | Setting::Release { .. } | Setting::Migrate(_) | Setting::StopMigration { .. } => {}
        }
        self.tidy();
    }

    /// Gives up what a policy has not said again.
    pub(crate) fn give_up(&mut self, policy: &str, unsaid: Unsaid) {
        if let Some(wishes) = self.wishes.iter_mut().find(|wishes| *wishes.holder.policy == *policy) {
            wishes.members.retain(|target, _| !unsaid.members.contains(target));
            unsaid.classes.iter().for_each(|class| wishes.undefine(class));
        }
        self.tidy();
    }

    /// Gives up all that a policy wants.
    pub(crate) fn release_policy(&mut self, policy: &str) {
        self.wishes.retain(|wishes| *wishes.holder.policy != *policy);
    }

    /// The target is gone.
    pub(crate) fn forget(&mut self, target: Target) {
        for wishes in &mut self.wishes {
            wishes.members.remove(&target);
        }
    }

    fn tidy(&mut self) {
        self.wishes.retain(|wishes| !wishes.classes.is_empty());
    }

    /// By whose word a container is in a class: of the policy with the highest priority that has it in one; its own before its pod's.
    pub(crate) fn member(&self, pod: PodId, container: ContainerId) -> Option<(&Wishes, &Member)> {
        self.wishes.iter().find_map(|wishes| {
            let own = wishes.members.get(&Target::Container(container));
            Some((wishes, own.or_else(|| wishes.members.get(&Target::Pod(pod)))?))
        })
    }

    /// What the host is to do. A pod on hold stays where it is, as long as its class stays; one in a protected namespace is in none.
    pub(crate) fn arrange(&self, pods: &Pods, placed: &BTreeMap<ContainerId, Place>) -> Vec<WantedClass> {
        let mut wanted = Vec::new();
        let mut places: BTreeMap<(&str, &ClassName), usize> = BTreeMap::new();
        for wishes in &self.wishes {
            for class in &wishes.classes {
                places.insert((&*wishes.holder.policy, &class.name), wanted.len());
                wanted.push(WantedClass {
                    policy: Arc::clone(&wishes.holder.policy),
                    class: class.name.clone(),
                    shares: Arc::clone(&class.shares),
                    members: Vec::new(),
                });
            }
        }
        if wanted.is_empty() {
            return wanted;
        }
        for entry in pods.iter().filter(|entry| entry.given.active) {
            for container in entry.containers.iter().filter(|container| container.attached) {
                let place = match entry.access {
                    Access::Open => self
                        .member(entry.id, container.id)
                        .and_then(|(wishes, member)| places.get(&(&*wishes.holder.policy, &member.class))),
                    Access::OnHold => {
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

    fn whose(classes: &Classes, container: ContainerId) -> Option<String> {
        let (wishes, member) = classes.member(POD, container)?;
        Some(format!("{}/{}", wishes.holder.policy, member.class))
    }

    #[test]
    fn the_highest_priority_counts_and_a_containers_own_class_before_its_pods() {
        let (low, high) = (holder("low", 1), holder("high", 2));
        let mut classes = Classes::default();
        let mut unsaid = Unsaid::default();
        for (holder, settings) in [
            (&low, vec![define("be", 30), define("ls", 100), assign(Target::Pod(POD), "be")]),
            (&low, vec![assign(Target::Container(SECOND), "ls")]),
        ] {
            for setting in settings {
                classes.take(holder, setting, &mut unsaid, Timestamp(1));
            }
        }
        assert_eq!(whose(&classes, FIRST).as_deref(), Some("low/be"));
        assert_eq!(whose(&classes, SECOND).as_deref(), Some("low/ls"));
        classes.take(&high, define("all", 50), &mut unsaid, Timestamp(2));
        classes.take(&high, assign(Target::Pod(POD), "all"), &mut unsaid, Timestamp(2));
        assert_eq!(whose(&classes, SECOND).as_deref(), Some("high/all"), "the policy counts before the level");
        classes.release_policy("high");
        assert_eq!(whose(&classes, SECOND).as_deref(), Some("low/ls"), "what lies beneath comes back");
    }

    #[test]
    fn what_is_not_said_again_is_given_up() {
        let policy = holder("llc", 1);
        let mut classes = Classes::default();
        let mut unsaid = Unsaid::default();
        for setting in [
            define("a", 30),
            define("b", 40),
            assign(Target::Container(FIRST), "a"),
            assign(Target::Container(SECOND), "b"),
            assign(Target::Pod(POD), "b"),
        ] {
            classes.take(&policy, setting, &mut unsaid, Timestamp(1));
        }
        let mut unsaid = classes.unsaid("llc");
        classes.take(&policy, define("b", 40), &mut unsaid, Timestamp(2));
        classes.take(&policy, assign(Target::Container(SECOND), "b"), &mut unsaid, Timestamp(2));
        classes.give_up("llc", unsaid);
        assert_eq!(whose(&classes, FIRST), None, "neither class nor pod");
        assert_eq!(whose(&classes, SECOND).as_deref(), Some("llc/b"));
        let wishes = classes.iter().next().unwrap();
        assert_eq!(wishes.classes.len(), 1);
        assert_eq!(wishes.class(&name("b")).unwrap().since, Timestamp(1), "the same shares since then");
    }

    #[test]
    fn the_end_of_a_class_ends_its_members() {
        let policy = holder("llc", 1);
        let mut classes = Classes::default();
        let mut unsaid = Unsaid::default();
        for setting in [define("a", 30), assign(Target::Pod(POD), "a"), Setting::UndefineClass { class: name("a") }] {
            classes.take(&policy, setting, &mut unsaid, Timestamp(1));
        }
        assert!(classes.is_empty());
    }
}

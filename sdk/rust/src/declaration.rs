//! Records what a policy declared, so that the host is called only for differences.

mod block_io;
mod declaring;
mod node_knobs;
mod resources;

use std::any::Any;
use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;

use self::block_io::{BlockIo, ReleaseIo};
pub(crate) use self::declaring::Declaring;
use self::node_knobs::NodeKnobs;
use self::resources::Resources;
use crate::block_io::IoKnob;
use crate::{ContainerId, Host, NodeKnob, PodFacts, PodId, Protection, Share, Target};

/// One setting of a cgroup, as an evaluation declares it.
#[derive(Clone, Debug, PartialEq)]
enum Setting {
    Quota(Option<u64>),
    Burst(u64),
    Weight(u32),
    Idle(bool),
    Protection(Protection),
    MemoryNodes(Vec<u32>),
    Cpus(Vec<u32>),
    MemoryLimit(Option<u64>),
    Shares(u32),
    Identity(i8),
    CoreGroup(u64),
}

/// The kind of a cgroup setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Quota,
    Burst,
    Weight,
    Idle,
    Protection,
    MemoryNodes,
    Cpus,
    MemoryLimit,
    Identity,
    CoreGroup,
}

impl Setting {
    fn kind(&self) -> Kind {
        match self {
            Self::Quota(_) => Kind::Quota,
            Self::Burst(_) => Kind::Burst,
            // Both are one lease: the later call wins.
            Self::Weight(_) | Self::Shares(_) => Kind::Weight,
            Self::Idle(_) => Kind::Idle,
            Self::Protection(_) => Kind::Protection,
            Self::MemoryNodes(_) => Kind::MemoryNodes,
            Self::Cpus(_) => Kind::Cpus,
            Self::MemoryLimit(_) => Kind::MemoryLimit,
            Self::Identity(_) => Kind::Identity,
            Self::CoreGroup(_) => Kind::CoreGroup,
        }
    }
}

/// Releases a setting of one target, or its class membership.
type Release<H> = fn(&mut H, Target);
/// Gives up a class or withdraws a resource.
type Undefine<H> = fn(&mut H, &str);
/// Releases a setting of the node's kernel.
type ReleaseKnob<H> = fn(&mut H, NodeKnob);
/// Sets how long resources stay valid.
type StaleAfter<H> = fn(&mut H, u32);

/// Functions of the host that release what was declared. Each is recorded when the policy declares something of its kind.
///
/// A component imports every host function that its code mentions, and each import is a permission to be granted. So the code may mention
/// the function that releases a quota only next to the one that sets it, which the linker drops from policies that set none. The end of a
/// call uses these pointers instead. They do not depend on the session's type, hence `Any`.
#[derive(Clone, Debug, Default)]
struct Releases {
    settings: BTreeMap<Kind, Arc<dyn Any + Send + Sync>>,
    member: Option<Arc<dyn Any + Send + Sync>>,
    class: Option<Arc<dyn Any + Send + Sync>>,
    resource: Option<Arc<dyn Any + Send + Sync>>,
    stale_after: Option<Arc<dyn Any + Send + Sync>>,
    node_knob: Option<Arc<dyn Any + Send + Sync>>,
    io: BTreeMap<IoKnob, Arc<dyn Any + Send + Sync>>,
}

impl Releases {
    fn setting<H: 'static>(&self, kind: Kind) -> Option<Release<H>> {
        self.settings.get(&kind)?.downcast_ref().copied()
    }

    fn member<H: 'static>(&self) -> Option<Release<H>> {
        self.member.as_ref()?.downcast_ref().copied()
    }

    fn class<H: 'static>(&self) -> Option<Undefine<H>> {
        self.class.as_ref()?.downcast_ref().copied()
    }

    fn resource<H: 'static>(&self) -> Option<Undefine<H>> {
        self.resource.as_ref()?.downcast_ref().copied()
    }

    fn stale_after<H: 'static>(&self) -> Option<StaleAfter<H>> {
        self.stale_after.as_ref()?.downcast_ref().copied()
    }

    fn node_knob<H: 'static>(&self) -> Option<ReleaseKnob<H>> {
        self.node_knob.as_ref()?.downcast_ref().copied()
    }

    fn io<H: 'static>(&self, knob: IoKnob) -> Option<ReleaseIo<H>> {
        self.io.get(&knob)?.downcast_ref().copied()
    }
}

/// Number of the call that declared a setting or class last, or [`RELEASED`].
type Declared = u64;

/// The call in progress released it explicitly.
const RELEASED: Declared = 0;

/// Declares it unchanged, unless the same call released it: a release of one setting overrides
/// [`Declare::keep_all`](crate::Declare::keep_all). Returns whether this is the call's first declaration of it.
fn keep(declared: &mut Declared, call: Declared) -> bool {
    let is_news = *declared != RELEASED && *declared != call;
    if is_news {
        *declared = call;
    }
    is_news
}

/// A setting that the host holds for this policy.
#[derive(Clone, Debug)]
struct Entry {
    target: Target,
    setting: Setting,
    reason: String,
    declared: Declared,
    /// The next entry of the same target.
    also: Option<usize>,
}

/// A class that the policy defined.
#[derive(Clone, Debug)]
struct Class {
    share: Share,
    domains: Vec<(u32, Share)>,
    reason: String,
    declared: Declared,
}

/// The classes and their members.
#[derive(Clone, Debug, Default)]
struct Classes {
    defined: BTreeMap<String, Class>,
    /// Class, reason, and the number of the call that declared it, by member.
    members: BTreeMap<Target, (String, String, Declared)>,
}

/// Everything that the policy declared and the host accepted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Declaration {
    /// In the order in which the policy first declared them.
    entries: Vec<Entry>,
    /// Position of each target's first entry.
    index: BTreeMap<Target, usize>,
    /// The targets in the order in which the last call named them, with the position of their first entry. A policy mostly names the same
    /// targets in the same order, so this is compared before the index is searched.
    named: Vec<(Target, Option<usize>)>,
    /// Position in `named` that the next name is compared with.
    next: usize,
    /// Number of entries that the call in progress declared.
    fresh: usize,
    /// Number of the call in progress; 1 is the first.
    call: Declared,
    is_evaluation: bool,
    has_evaluated: bool,
    classes: Classes,
    resources: Resources,
    node_knobs: NodeKnobs,
    block_io: BlockIo,
    releases: Releases,
    pods: BTreeMap<PodId, Vec<ContainerId>>,
    undo: Undo,
}

/// The state before the call in progress, to restore it after a failure.
#[derive(Clone, Debug, Default)]
struct Undo {
    /// Number of entries.
    entries: usize,
    /// Previous setting and reason of changed entries by position, the latest change last.
    changed: Vec<(usize, Setting, String)>,
    /// The classes, once the call changes them.
    classes: Option<Classes>,
    /// The resources, once the call changes them.
    resources: Option<Resources>,
    /// The settings of the node's kernel, once the call changes them.
    node_knobs: Option<NodeKnobs>,
    /// The settings of devices, once the call changes them.
    block_io: Option<BlockIo>,
}

impl Declaration {
    /// Starts a call.
    pub(crate) fn begin(&mut self, is_evaluation: bool) {
        self.call += 1;
        (self.next, self.fresh) = (0, 0);
        self.is_evaluation = is_evaluation;
        self.undo.entries = self.entries.len();
        self.undo.changed.clear();
        self.undo.classes = None;
        self.undo.resources = None;
        self.undo.node_knobs = None;
        self.undo.block_io = None;
    }

    /// Updates the pods. The host releases settings of removed pods by itself, so their entries are dropped.
    pub(crate) fn give(&mut self, upserted: &[PodFacts], removed: &[PodId]) {
        for id in removed {
            self.pods.remove(id);
        }
        for pod in upserted {
            self.pods.insert(pod.id, pod.containers.iter().map(|container| container.id).collect());
        }
        let pods = mem::take(&mut self.pods);
        let mut here: Vec<ContainerId> = pods.values().flatten().copied().collect();
        here.sort_unstable();
        let is_here = |target: &Target| match target {
            Target::Tier(_) => true,
            Target::Pod(id) => pods.contains_key(id),
            Target::Container(id) => here.binary_search(id).is_ok(),
        };
        self.classes.members.retain(|target, _| is_here(target));
        self.retain(|entry| is_here(&entry.target));
        self.block_io.retain(is_here);
        self.pods = pods;
        self.undo.entries = self.entries.len();
    }

    /// Releases what the policy no longer declares, at the end of a call that succeeded so far.
    fn release_rest<H: Host + 'static>(&mut self, host: &mut H) {
        let call = self.call;
        let is_evaluation = self.is_evaluation;
        let is_over = |declared: Declared| declared == RELEASED || (is_evaluation && declared != call);
        let all_fresh = self.fresh == self.entries.len();
        for entry in self.entries.iter().filter(|entry| !all_fresh && is_over(entry.declared)) {
            if let Some(release) = self.releases.setting::<H>(entry.setting.kind()) {
                release(host, entry.target);
            }
        }
        let over: Vec<Target> = self
            .classes
            .members
            .iter()
            .filter(|(_, (.., declared))| is_over(*declared))
            .map(|(target, _)| *target)
            .collect();
        let release = self.releases.member::<H>();
        for target in over {
            if let Some(release) = release {
                release(host, target);
            }
            self.change_classes().members.remove(&target);
        }
        // Members leave before their class is undefined.
        let over: Vec<String> = self
            .classes
            .defined
            .iter()
            .filter(|(_, class)| is_over(class.declared))
            .map(|(name, _)| name.clone())
            .collect();
        let undefine = self.releases.class::<H>();
        for name in over {
            if let Some(undefine) = undefine {
                undefine(host, &name);
            }
            self.change_classes().defined.remove(&name);
        }
        self.release_resources(host, is_over);
        self.release_node_knobs(host, is_over);
        self.release_io(host, is_over);
    }

    /// Makes the call's changes permanent, after the host accepted it.
    fn commit(&mut self) {
        let (call, is_evaluation) = (self.call, self.is_evaluation);
        self.has_evaluated |= is_evaluation;
        if self.fresh != self.entries.len() {
            self.retain(|entry| entry.declared != RELEASED && (!is_evaluation || entry.declared == call));
        }
        self.undo.changed.clear();
        self.undo.classes = None;
        self.undo.resources = None;
        self.undo.node_knobs = None;
        self.undo.block_io = None;
    }

    /// Restores the state before a call that failed; the host has dropped what it staged.
    fn discard(&mut self) {
        for (index, setting, reason) in self.undo.changed.drain(..).rev() {
            if let Some(entry) = self.entries.get_mut(index) {
                (entry.setting, entry.reason) = (setting, reason);
            }
        }
        if self.entries.len() > self.undo.entries {
            self.entries.truncate(self.undo.entries);
            self.reindex();
        }
        // Mark all entries as declared, so that the failed call releases none of them later.
        self.entries.iter_mut().for_each(|entry| entry.declared = self.call);
        if let Some(classes) = self.undo.classes.take() {
            self.classes = classes;
        }
        self.discard_resources();
        self.discard_node_knobs();
        self.discard_io();
    }

    fn retain(&mut self, stays: impl FnMut(&Entry) -> bool) {
        let before = self.entries.len();
        self.entries.retain(stays);
        if self.entries.len() != before {
            self.reindex();
        }
    }

    fn reindex(&mut self) {
        self.index.clear();
        self.named.clear();
        for place in (0..self.entries.len()).rev() {
            if let Some(entry) = self.entries.get_mut(place) {
                entry.also = self.index.insert(entry.target, place);
            }
        }
    }

    /// Position of a target's first entry.
    fn first(&mut self, target: Target) -> Option<usize> {
        let place = self.next;
        self.next += 1;
        if let Some((_, first)) = self.named.get(place).filter(|(named, _)| *named == target) {
            return *first;
        }
        let first = self.index.get(&target).copied();
        match self.named.get_mut(place) {
            Some(named) => *named = (target, first),
            None => {
                self.next = self.named.len() + 1;
                self.named.push((target, first));
            }
        }
        first
    }

    /// Position of the entry for a target's setting, or, as the error, of the target's last entry.
    fn find(&mut self, target: Target, kind: Kind) -> Result<usize, Option<usize>> {
        let mut place = self.first(target).ok_or(None)?;
        while let Some(entry) = self.entries.get(place) {
            if entry.setting.kind() == kind {
                return Ok(place);
            }
            let Some(also) = entry.also else { break };
            place = also;
        }
        Err(Some(place))
    }

    /// Adds a setting that was not declared before; `last` is the position of its target's last entry.
    fn insert(&mut self, entry: Entry, last: Option<usize>) {
        let place = self.entries.len();
        match last.and_then(|last| self.entries.get_mut(last)) {
            Some(last) => last.also = Some(place),
            None => {
                self.index.insert(entry.target, place);
                self.named.clear();
            }
        }
        self.fresh += 1;
        self.entries.push(entry);
    }

    /// Records one setting, and sends it if it differs from what the host holds.
    fn set<H: 'static>(
        &mut self,
        target: Target,
        setting: Setting,
        reason: &str,
        release: Release<H>,
        send: impl FnOnce(),
    ) {
        let kind = setting.kind();
        let index = match self.find(target, kind) {
            Ok(index) => index,
            Err(last) => {
                send();
                self.releases.settings.entry(kind).or_insert_with(|| Arc::new(release));
                let reason = reason.to_owned();
                return self.insert(Entry { target, setting, reason, declared: self.call, also: None }, last);
            }
        };
        let Some(entry) = self.entries.get_mut(index) else { return };
        self.fresh += usize::from(entry.declared != self.call);
        entry.declared = self.call;
        if entry.setting != setting || entry.reason != reason {
            send();
            let reason = mem::replace(&mut entry.reason, reason.to_owned());
            self.undo.changed.push((index, mem::replace(&mut entry.setting, setting), reason));
        }
    }

    fn unset(&mut self, target: Target, kind: Kind) {
        if let Ok(index) = self.find(target, kind)
            && let Some(entry) = self.entries.get_mut(index)
        {
            self.fresh -= usize::from(entry.declared == self.call);
            entry.declared = RELEASED;
        }
    }

    fn keep(&mut self, target: Target) {
        let mut place = self.first(target);
        while let Some(entry) = place.and_then(|place| self.entries.get_mut(place)) {
            self.fresh += usize::from(keep(&mut entry.declared, self.call));
            place = entry.also;
        }
        if let Some((.., declared)) = self.classes.members.get_mut(&target) {
            keep(declared, self.call);
        }
        self.keep_io(|own| own == Some(target));
    }

    fn keep_all(&mut self) {
        for entry in &mut self.entries {
            self.fresh += usize::from(keep(&mut entry.declared, self.call));
        }
        let members = self.classes.members.values_mut().map(|(.., declared)| declared);
        for declared in self.classes.defined.values_mut().map(|class| &mut class.declared).chain(members) {
            keep(declared, self.call);
        }
        self.keep_resources();
        self.keep_node_knobs();
        self.keep_io(|_| true);
    }

    fn change_classes(&mut self) -> &mut Classes {
        if self.undo.classes.is_none() {
            self.undo.classes = Some(self.classes.clone());
        }
        &mut self.classes
    }

    /// Records a class. Returns whether it differs from what the host has.
    fn define(&mut self, name: &str, share: &Share, domains: &[(u32, Share)], reason: &str) -> bool {
        let declared = self.call;
        if let Some(class) = self.classes.defined.get_mut(name)
            && (class.share, class.domains.as_slice(), class.reason.as_str()) == (*share, domains, reason)
        {
            class.declared = declared;
            return false;
        }
        let class = Class { share: *share, domains: domains.to_vec(), reason: reason.to_owned(), declared };
        self.change_classes().defined.insert(name.to_owned(), class);
        true
    }

    /// Records a member of a class. Returns whether its class or reason differs from what the host has.
    fn assign(&mut self, target: Target, name: &str, reason: &str) -> bool {
        let declared = self.call;
        if let Some(member) = self.classes.members.get_mut(&target)
            && (member.0.as_str(), member.1.as_str()) == (name, reason)
        {
            member.2 = declared;
            return false;
        }
        self.change_classes().members.insert(target, (name.to_owned(), reason.to_owned(), declared));
        true
    }
}

#[cfg(test)]
mod tests;

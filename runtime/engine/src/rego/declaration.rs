//! From a full declaration to differences: settings that are no longer declared are released, and unchanged ones are
//! not repeated.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use qosm_model::eviction::Eviction;
use qosm_model::knob::{Knob, Target, Value};
use qosm_model::node_resource::{Offer, ResourceName};
use qosm_model::numa::{Migration, NumaId};
use qosm_model::pod::{ContainerId, PodId};
use qosm_model::resctrl::{ClassName, Shares};
use qosm_model::setting::EventKind;

use super::error::SettingFlaw;
use super::settings::Declared;
use crate::error::Rule;
use crate::staging::{LogLevel, Transaction};

/// Default number of seconds without contact from the agent after which published resources expire.
const DEFAULT_STALE_SECONDS: u32 = 900;

/// The declaration of the last evaluation that took effect.
#[derive(Clone, Default)]
pub(super) struct Declaration {
    holds: BTreeMap<(Target, Knob), (Value, Arc<str>)>,
    migrations: HashMap<ContainerId, (Vec<u32>, Vec<u32>, u64)>,
    classes: BTreeMap<ClassName, (Shares, Arc<str>)>,
    members: BTreeMap<Target, (ClassName, Arc<str>)>,
    resources: BTreeMap<ResourceName, (Offer, Arc<str>)>,
    stale_after: Option<u32>,
    evictions: BTreeMap<PodId, Eviction>,
    events: HashSet<(PodId, bool, String)>,
    rejections: HashSet<(PodId, String, String)>,
    lines: HashSet<(LogLevel, String)>,
}

impl Declaration {
    /// Makes the pod's rejections be reported again if they still apply: the agent dropped them with the previous version
    /// of the pod.
    pub(super) fn pod_changed(&mut self, pod: PodId) {
        self.rejections.retain(|(rejected, ..)| *rejected != pod);
    }

    /// Stages the difference to a new declaration, and returns the new one.
    ///
    /// # Errors
    ///
    /// [`Rule::Setting`] with the object that breaks a rule. The caller then discards the transaction and keeps this declaration.
    pub(super) fn stage(&self, declared: Vec<Declared>, transaction: &mut Transaction) -> Result<Self, Rule> {
        let mut next = Self::default();
        let mut first_indices = FirstIndices::default();
        let is_class = |one: &Declared| matches!(one, Declared::Class { .. });
        let wanted: HashSet<_> = declared
            .iter()
            .filter_map(|one| if let Declared::Class { class, .. } = one { Some(class.clone()) } else { None })
            .collect();
        // Classes are removed before new ones are defined, so that the instance's limit holds at any time; members are
        // assigned last, regardless of their place in the document.
        for class in self.classes.keys().filter(|class| !wanted.contains(*class)) {
            transaction.undefine_class(class)?;
        }
        let published: HashSet<_> = declared
            .iter()
            .filter_map(|one| if let Declared::Publish { name, .. } = one { Some(name.clone()) } else { None })
            .collect();
        for name in self.resources.keys().filter(|name| !published.contains(*name)) {
            transaction.withdraw(name.clone())?;
        }
        let (classes, others): (Vec<_>, Vec<_>) = declared.into_iter().enumerate().partition(|(_, one)| is_class(one));
        for (index, one) in classes.into_iter().chain(others) {
            let about = one.about();
            self.stage_one(index, one, transaction, &mut next, &mut first_indices).map_err(|flaw| Rule::Setting {
                index,
                about,
                flaw: Box::new(flaw),
            })?;
        }
        for &target in self.members.keys().filter(|member| !next.members.contains_key(member)) {
            transaction.release_class(target)?;
        }
        for &(target, knob) in self.holds.keys().filter(|held| !next.holds.contains_key(held)) {
            transaction.release(target, knob)?;
        }
        if next.stale_after.is_none() && self.stale_after.is_some() {
            transaction.stale_after(DEFAULT_STALE_SECONDS)?;
        }
        for &pod in self.evictions.keys().filter(|pod| !next.evictions.contains_key(pod)) {
            transaction.withdraw_eviction(pod)?;
        }
        let over = self.migrations.keys().copied().filter(|container| !next.migrations.contains_key(container));
        for container in over {
            // The migration of a container that is gone has already ended.
            if transaction.require(Target::Container(container)).is_ok() {
                transaction.stop_migration(container)?;
            }
        }
        Ok(next)
    }

    fn stage_one(
        &self,
        index: usize,
        one: Declared,
        transaction: &mut Transaction,
        next: &mut Self,
        first_indices: &mut FirstIndices,
    ) -> Result<(), SettingFlaw> {
        match one {
            Declared::Hold { target, knob, value, reason } => {
                transaction.require(target)?;
                if let Some((earlier, _)) = next.holds.get(&(target, knob)) {
                    let other = first_indices.holds.get(&(target, knob)).copied().unwrap_or_default();
                    return same_or(earlier, &value, other);
                }
                first_indices.holds.insert((target, knob), index);
                let reason = transaction.reason(reason);
                // The transaction must hold it too: leases end with their pod or container.
                let stands = transaction.holds(target, knob)
                    && self.holds.get(&(target, knob)) == Some(&(value, reason.clone()));
                if !stands {
                    transaction.acquire(target, knob, value, &reason)?;
                }
                next.holds.insert((target, knob), (value, reason));
            }
            Declared::Migrate { container, from, to, token, reason } => {
                transaction.require(Target::Container(container))?;
                if let Some(other) = first_indices.migrations.insert(container, index) {
                    return Err(SettingFlaw::Second { other });
                }
                let wanted = (from, to, token);
                if self.migrations.get(&container) != Some(&wanted) {
                    let nodes = |nodes: &[u32]| nodes.iter().copied().map(NumaId).collect();
                    let (from, to) = (nodes(&wanted.0), nodes(&wanted.1));
                    let reason = transaction.reason(reason);
                    transaction.migrate(Migration { container, from, to, token, reason })?;
                }
                next.migrations.insert(container, wanted);
            }
            Declared::Class { class, shares, reason } => {
                if let Some((earlier, _)) = next.classes.get(&class) {
                    let other = first_indices.classes.get(&class).copied().unwrap_or_default();
                    return same_or(&Shown(earlier), &Shown(&shares), other);
                }
                first_indices.classes.insert(class.clone(), index);
                let wanted = (shares, transaction.reason(reason));
                if !transaction.defines(&class) || self.classes.get(&class) != Some(&wanted) {
                    transaction.define_class(class.clone(), wanted.0.clone(), Arc::clone(&wanted.1))?;
                }
                next.classes.insert(class, wanted);
            }
            Declared::Assign { target, class, reason } => {
                transaction.require(target)?;
                if !next.classes.contains_key(&class) {
                    return Err(SettingFlaw::NoClass { class: class.to_string() });
                }
                if let Some((earlier, _)) = next.members.get(&target) {
                    let other = first_indices.members.get(&target).copied().unwrap_or_default();
                    return same_or(earlier, &class, other);
                }
                first_indices.members.insert(target, index);
                let wanted = (class, transaction.reason(reason));
                // The transaction must have it too: a pod or container that is gone is in no class.
                let stands =
                    transaction.class_of(target) == Some(&wanted.0) && self.members.get(&target) == Some(&wanted);
                if !stands {
                    transaction.assign_class(target, wanted.0.clone(), Arc::clone(&wanted.1))?;
                }
                next.members.insert(target, wanted);
            }
            Declared::Publish { name, offer, reason } => {
                if next.resources.contains_key(&name) {
                    let other = first_indices.resources.get(&name).copied().unwrap_or_default();
                    return Err(SettingFlaw::Second { other });
                }
                first_indices.resources.insert(name.clone(), index);
                let wanted = (offer, transaction.reason(reason));
                if !transaction.publishes(&name) || self.resources.get(&name) != Some(&wanted) {
                    transaction.publish(name.clone(), wanted.0.clone(), Arc::clone(&wanted.1))?;
                }
                next.resources.insert(name, wanted);
            }
            Declared::StaleAfter(seconds) => {
                if let Some(other) = first_indices.stale_after.replace(index) {
                    return Err(SettingFlaw::Second { other });
                }
                if self.stale_after != Some(seconds) {
                    transaction.stale_after(seconds)?;
                }
                next.stale_after = Some(seconds);
            }
            Declared::Evict(wanted) => {
                transaction.require(Target::Pod(wanted.pod))?;
                if let Some(other) = first_indices.evictions.insert(wanted.pod, index) {
                    return Err(SettingFlaw::Second { other });
                }
                // A message may change while the request stands. So an eviction is requested once, and again only if its
                // urgency rises.
                let stands = self.evictions.get(&wanted.pod).is_some_and(|known| known.urgency >= wanted.urgency);
                if !stands {
                    transaction.evict(wanted.clone())?;
                }
                next.evictions.insert(wanted.pod, wanted);
            }
            Declared::Event { pod, kind, reason, message } => {
                transaction.require(Target::Pod(pod))?;
                let event = (pod, kind == EventKind::Warning, reason);
                if !self.events.contains(&event) && !next.events.contains(&event) {
                    transaction.event(pod, kind, event.2.clone(), message)?;
                }
                next.events.insert(event);
            }
            Declared::Reject { pod, field, message } => {
                transaction.require(Target::Pod(pod))?;
                let rejection = (pod, field, message);
                if !self.rejections.contains(&rejection) {
                    transaction.reject(pod, rejection.1.clone(), rejection.2.clone())?;
                }
                next.rejections.insert(rejection);
            }
            Declared::Remark { target, knob, reason } => {
                transaction.require(target)?;
                transaction.remark(target, &knob, reason)?;
            }
            Declared::KeyProblem(problem) => transaction.key_problem(problem)?,
            Declared::Log { level, line } => self.log(level, line, transaction, next),
            Declared::State(text) => {
                if let Some(other) = first_indices.state.replace(index) {
                    return Err(SettingFlaw::Second { other });
                }
                if transaction.state() != text.as_bytes() {
                    transaction.save(text.into_bytes()).map_err(SettingFlaw::State)?;
                }
            }
        }
        Ok(())
    }

    /// Logs a line that does not come from a setting.
    pub(super) fn log(&self, level: LogLevel, line: String, transaction: &mut Transaction, next: &mut Self) {
        let line = (level, line);
        if !self.lines.contains(&line) && !next.lines.contains(&line) {
            transaction.log(level, line.1.clone());
        }
        next.lines.insert(line);
    }
}

/// First index in the document of each setting that may occur only once.
#[derive(Default)]
struct FirstIndices {
    holds: HashMap<(Target, Knob), usize>,
    migrations: HashMap<ContainerId, usize>,
    classes: HashMap<ClassName, usize>,
    members: HashMap<Target, usize>,
    resources: HashMap<ResourceName, usize>,
    stale_after: Option<usize>,
    evictions: HashMap<PodId, usize>,
    state: Option<usize>,
}

/// Checks that two objects declare the same value. Different reasons do not contradict: the first counts.
fn same_or<T: PartialEq + fmt::Display>(one: &T, two: &T, other: usize) -> Result<(), SettingFlaw> {
    let contradiction = || SettingFlaw::Contradiction { other, one: one.to_string(), two: two.to_string() };
    if one == two { Ok(()) } else { Err(contradiction()) }
}

/// Shares as errors show them.
#[derive(PartialEq)]
struct Shown<'a>(&'a Shares);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.all)?;
        for (domain, own) in self.0.domains.iter().take(4) {
            write!(f, "; on domain {}: {}", domain.0, own.over(self.0.all))?;
        }
        if self.0.domains.len() > 4 { f.write_str("; …") } else { Ok(()) }
    }
}

impl From<Rule> for SettingFlaw {
    fn from(rule: Rule) -> Self {
        Self::Rule(Box::new(rule))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;
    use qosm_model::resctrl::{CacheShare, Share};
    use qosm_model::setting::Setting;

    const POD: Target = Target::Pod(PodId(1));
    const CONTAINER: Target = Target::Container(ContainerId(7));

    /// Classes with their shares and members.
    #[derive(Clone, Debug, Default, PartialEq)]
    struct Table {
        classes: BTreeMap<ClassName, Shares>,
        members: BTreeMap<Target, ClassName>,
    }

    impl Table {
        /// Every table of two classes, two shares, a pod and a container of it.
        fn all() -> Vec<Self> {
            let names: [ClassName; 2] = ["a", "b"].map(|name| name.parse().unwrap());
            let shares = |mask| {
                let all = Share { cache: Some(CacheShare::Mask(mask)), bandwidth: None };
                Shares { all, domains: BTreeMap::new() }
            };
            let mut tables = vec![Self::default()];
            for name in &names {
                let with = |mask| {
                    let defined = move |mut table: Self| {
                        table.classes.insert(name.clone(), shares(mask));
                        table
                    };
                    tables.iter().cloned().map(defined).collect::<Vec<_>>()
                };
                let (one, other) = (with(1), with(2));
                tables.extend(one.into_iter().chain(other));
            }
            for target in [POD, CONTAINER] {
                for name in &names {
                    let has = |table: &&Self| table.classes.contains_key(name) && !table.members.contains_key(&target);
                    let put = |mut table: Self| {
                        table.members.insert(target, name.clone());
                        table
                    };
                    let put: Vec<_> = tables.iter().filter(has).cloned().map(put).collect();
                    tables.extend(put);
                }
            }
            tables
        }

        /// Members come first, since the order in a document does not matter.
        fn document(&self) -> Vec<Declared> {
            let reason = || "because".to_owned();
            let members = self.members.iter().map(|(&target, class)| Declared::Assign {
                target,
                class: class.clone(),
                reason: reason(),
            });
            let classes = self.classes.iter().map(|(class, shares)| Declared::Class {
                class: class.clone(),
                shares: shares.clone(),
                reason: reason(),
            });
            members.chain(classes).collect()
        }

        fn apply(&mut self, setting: Setting) {
            match setting {
                Setting::DefineClass { class, shares, .. } => {
                    self.classes.insert(class, shares);
                }
                Setting::UndefineClass { class } => {
                    assert!(self.classes.remove(&class).is_some(), "{class} is not there");
                    self.members.retain(|_, own| *own != class);
                }
                Setting::AssignClass { target, class, .. } => {
                    assert!(self.classes.contains_key(&class), "{class} is not there");
                    self.members.insert(target, class);
                }
                Setting::ReleaseClass { target } => {
                    assert!(self.members.remove(&target).is_some(), "it is in none");
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn from_any_document_to_any_other_what_is_staged_makes_the_difference() {
        let tables = Table::all();
        assert_eq!(tables.len(), 1 + 4 * 4 + 4 * 9);
        for first in &tables {
            for second in &tables {
                let mut transaction = Transaction::new(Limits::default(), Vec::new().into());
                transaction.add_pod(PodId(1), vec![ContainerId(7)]);
                let mut declaration = Declaration::default();
                let mut table = Table::default();
                for wanted in [first, second] {
                    transaction.begin();
                    declaration = declaration.stage(wanted.document(), &mut transaction).unwrap();
                    transaction.commit().settings.into_iter().for_each(|setting| table.apply(setting));
                    assert_eq!(&table, wanted, "{first:?} to {second:?}");
                }
                transaction.begin();
                declaration.stage(second.document(), &mut transaction).unwrap();
                assert_eq!(transaction.commit().settings, [], "{second:?} stays");
            }
        }
    }
}

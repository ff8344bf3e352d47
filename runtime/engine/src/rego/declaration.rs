//! From a full declaration to what changes: what was declared before and is not any more is given up, and what stays is not
//! said again.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use qosm_model::knob::{Knob, Target, Value};
use qosm_model::numa::{Migration, NumaId};
use qosm_model::pod::{ContainerId, PodId};
use qosm_model::resctrl::{ClassName, Shares};
use qosm_model::setting::EventKind;

use super::error::SettingFlaw;
use super::settings::Declared;
use crate::error::Rule;
use crate::staging::{LogLevel, Stage};

/// What the last evaluation declared that took effect.
#[derive(Clone, Default)]
pub(super) struct Declaration {
    holds: BTreeMap<(Target, Knob), (Value, Arc<str>)>,
    migrations: HashMap<ContainerId, (Vec<u32>, Vec<u32>, u64)>,
    classes: BTreeMap<ClassName, (Shares, Arc<str>)>,
    members: BTreeMap<Target, (ClassName, Arc<str>)>,
    events: HashSet<(PodId, bool, String)>,
    rejections: HashSet<(PodId, String, String)>,
    lines: HashSet<(LogLevel, String)>,
}

impl Declaration {
    /// The pod's rejections are said again, should they still hold: whoever heard of them has forgotten them with the pod's
    /// former self.
    pub(super) fn pod_changed(&mut self, pod: PodId) {
        self.rejections.retain(|(rejected, ..)| *rejected != pod);
    }

    /// Stages the difference to a new declaration, and returns that.
    ///
    /// # Errors
    ///
    /// [`Rule::Setting`] with the object that breaks a rule. The stage is to be discarded then, and this one stays.
    pub(super) fn stage(&self, declared: Vec<Declared>, stage: &mut Stage) -> Result<Self, Rule> {
        let mut next = Self::default();
        let mut places = Places::default();
        let is_class = |one: &Declared| matches!(one, Declared::Class { .. });
        let wanted: HashSet<_> = declared
            .iter()
            .filter_map(|one| if let Declared::Class { class, .. } = one { Some(class.clone()) } else { None })
            .collect();
        // Classes that go first and those that come next, so that there are at no time more than an instance may have; then whoever
        // is in one, wherever in the document it stands.
        for class in self.classes.keys().filter(|class| !wanted.contains(*class)) {
            stage.undefine_class(class)?;
        }
        let (classes, others): (Vec<_>, Vec<_>) = declared.into_iter().enumerate().partition(|(_, one)| is_class(one));
        for (index, one) in classes.into_iter().chain(others) {
            let about = one.about();
            self.stage_one(index, one, stage, &mut next, &mut places).map_err(|flaw| Rule::Setting {
                index,
                about,
                flaw: Box::new(flaw),
            })?;
        }
        for &target in self.members.keys().filter(|member| !next.members.contains_key(member)) {
            stage.release_class(target)?;
        }
        for &(target, knob) in self.holds.keys().filter(|held| !next.holds.contains_key(held)) {
            stage.release(target, knob)?;
        }
        let over = self.migrations.keys().copied().filter(|container| !next.migrations.contains_key(container));
        for container in over {
            // One that went has ended its migration with it.
            if stage.require(Target::Container(container)).is_ok() {
                stage.stop_migration(container)?;
            }
        }
        Ok(next)
    }

    fn stage_one(
        &self,
        index: usize,
        one: Declared,
        stage: &mut Stage,
        next: &mut Self,
        places: &mut Places,
    ) -> Result<(), SettingFlaw> {
        match one {
            Declared::Hold { target, knob, value, reason } => {
                stage.require(target)?;
                if let Some((earlier, _)) = next.holds.get(&(target, knob)) {
                    let other = places.holds.get(&(target, knob)).copied().unwrap_or_default();
                    return same_or(earlier, &value, other);
                }
                places.holds.insert((target, knob), index);
                let reason = stage.reason(reason)?;
                // Held by the stage's own account too: a pod or container that went has taken its leases with it.
                let stands =
                    stage.holds(target, knob) && self.holds.get(&(target, knob)) == Some(&(value, reason.clone()));
                if !stands {
                    stage.hold(target, knob, value, &reason)?;
                }
                next.holds.insert((target, knob), (value, reason));
            }
            Declared::Migrate { container, from, to, token, reason } => {
                stage.require(Target::Container(container))?;
                if let Some(other) = places.migrations.insert(container, index) {
                    return Err(SettingFlaw::Second { other });
                }
                let wanted = (from, to, token);
                if self.migrations.get(&container) != Some(&wanted) {
                    let nodes = |nodes: &[u32]| nodes.iter().copied().map(NumaId).collect();
                    let (from, to) = (nodes(&wanted.0), nodes(&wanted.1));
                    let reason = stage.reason(reason)?;
                    stage.migrate(Migration { container, from, to, token, reason })?;
                }
                next.migrations.insert(container, wanted);
            }
            Declared::Class { class, shares, reason } => {
                if let Some((earlier, _)) = next.classes.get(&class) {
                    let other = places.classes.get(&class).copied().unwrap_or_default();
                    return same_or(&Shown(earlier), &Shown(&shares), other);
                }
                places.classes.insert(class.clone(), index);
                let wanted = (shares, stage.reason(reason)?);
                if !stage.defines(&class) || self.classes.get(&class) != Some(&wanted) {
                    stage.define_class(class.clone(), wanted.0.clone(), Arc::clone(&wanted.1))?;
                }
                next.classes.insert(class, wanted);
            }
            Declared::Assign { target, class, reason } => {
                stage.require(target)?;
                if !next.classes.contains_key(&class) {
                    return Err(SettingFlaw::NoClass { class: class.to_string() });
                }
                if let Some((earlier, _)) = next.members.get(&target) {
                    let other = places.members.get(&target).copied().unwrap_or_default();
                    return same_or(earlier, &class, other);
                }
                places.members.insert(target, index);
                let wanted = (class, stage.reason(reason)?);
                // By the stage's own account too: whoever went has left its class.
                let stands = stage.class_of(target) == Some(&wanted.0) && self.members.get(&target) == Some(&wanted);
                if !stands {
                    stage.assign_class(target, wanted.0.clone(), Arc::clone(&wanted.1))?;
                }
                next.members.insert(target, wanted);
            }
            Declared::Event { pod, kind, reason, message } => {
                stage.require(Target::Pod(pod))?;
                let event = (pod, kind == EventKind::Warning, reason);
                if !self.events.contains(&event) && !next.events.contains(&event) {
                    stage.event(pod, kind, event.2.clone(), message)?;
                }
                next.events.insert(event);
            }
            Declared::Reject { pod, field, message } => {
                stage.require(Target::Pod(pod))?;
                let rejection = (pod, field, message);
                if !self.rejections.contains(&rejection) {
                    stage.reject(pod, rejection.1.clone(), rejection.2.clone())?;
                }
                next.rejections.insert(rejection);
            }
            Declared::Log { level, line } => self.log(level, line, stage, next),
            Declared::State(text) => {
                if let Some(other) = places.state.replace(index) {
                    return Err(SettingFlaw::Second { other });
                }
                if stage.state() != text.as_bytes() {
                    stage.save(text.into_bytes()).map_err(SettingFlaw::State)?;
                }
            }
        }
        Ok(())
    }

    /// Takes a line of the log that no setting asks for.
    pub(super) fn log(&self, level: LogLevel, line: String, stage: &mut Stage, next: &mut Self) {
        let line = (level, line);
        if !self.lines.contains(&line) && !next.lines.contains(&line) {
            stage.log(level, line.1.clone());
        }
        next.lines.insert(line);
    }
}

/// Where in the document something stands that may stand there once.
#[derive(Default)]
struct Places {
    holds: HashMap<(Target, Knob), usize>,
    migrations: HashMap<ContainerId, usize>,
    classes: HashMap<ClassName, usize>,
    members: HashMap<Target, usize>,
    state: Option<usize>,
}

/// Two reasons for one value are no contradiction: the first counts.
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

    /// Classes with their shares, and who is in which.
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

        /// Members first, since the order of a document does not count.
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
                let mut stage = Stage::new(Limits::default(), Vec::new());
                stage.give(PodId(1), vec![ContainerId(7)]);
                let mut declaration = Declaration::default();
                let mut table = Table::default();
                for wanted in [first, second] {
                    stage.begin();
                    declaration = declaration.stage(wanted.document(), &mut stage).unwrap();
                    stage.commit().settings.into_iter().for_each(|setting| table.apply(setting));
                    assert_eq!(&table, wanted, "{first:?} to {second:?}");
                }
                stage.begin();
                declaration.stage(second.document(), &mut stage).unwrap();
                assert_eq!(stage.commit().settings, [], "{second:?} stays");
            }
        }
    }
}

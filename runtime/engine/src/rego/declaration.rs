//! From a full declaration to what changes: what was declared before and is not any more is given up, and what stays is not
//! said again.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use qosm_model::knob::{Knob, Target, Value};
use qosm_model::numa::{Migration, NumaId};
use qosm_model::pod::{ContainerId, PodId};
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
        for (index, one) in declared.into_iter().enumerate() {
            let about = one.about();
            self.stage_one(index, one, stage, &mut next, &mut places).map_err(|flaw| Rule::Setting {
                index,
                about,
                flaw: Box::new(flaw),
            })?;
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
                    return same_or(*earlier, value, other);
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
    state: Option<usize>,
}

/// Two reasons for one value are no contradiction: the first counts.
fn same_or(one: Value, two: Value, other: usize) -> Result<(), SettingFlaw> {
    let contradiction = || SettingFlaw::Contradiction { other, one: one.to_string(), two: two.to_string() };
    if one == two { Ok(()) } else { Err(contradiction()) }
}

impl From<Rule> for SettingFlaw {
    fn from(rule: Rule) -> Self {
        Self::Rule(Box::new(rule))
    }
}

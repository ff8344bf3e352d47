//! Parses the settings of a policy: a set or an array of objects. Each error names the object's index.

mod block_io;
mod requests;
mod shares;

use std::collections::BTreeSet;

use qosm_model::cpus::{CpuSet, MAX_CPUS};
use qosm_model::eviction::Eviction;
use qosm_model::knob::{Knob, MAX_CORE_GROUP, Target, Value};
use qosm_model::node_resource::{Offer, ResourceName};
use qosm_model::pod::{ContainerId, PodId, Tier};
use qosm_model::resctrl::{ClassName, Shares};
use qosm_model::setting::{EventKind, KeyProblem};
use qosm_rego::{Number, Value as Rego};

use super::error::SettingFlaw;
use super::is_shallow;
use crate::error::Rule;
use crate::interface::Interface;
use crate::staging::{LogLevel, cut, printable};

/// Upper bound in bytes of a state's text while it is built; saving checks the limit of the state itself.
const STATE_TEXT: usize = 1 << 20;

/// Length to which errors cut a text from the policy.
const SHOWN: qosm_model::unit::Bytes = qosm_model::unit::Bytes(64);
/// The highest NUMA node that has a bit in a knob's value.
const MAX_NODES: u32 = 62;

/// One object of the document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Declared {
    /// A value for a knob.
    Hold { target: Target, knob: Knob, value: Value, reason: String },
    /// An event for a pod's owner.
    Event { pod: PodId, kind: EventKind, reason: String, message: String },
    /// A wanted value of a knob that the policy does not set, and why.
    Remark { target: Target, knob: String, reason: String },
    /// A line of the log.
    Log { level: LogLevel, line: String },
    /// Pages to be moved.
    Migrate { container: ContainerId, from: Vec<u32>, to: Vec<u32>, token: u64, reason: String },
    /// A class of shares.
    Class { class: ClassName, shares: Shares, reason: String },
    /// A pod or container in a class.
    Assign { target: Target, class: ClassName, reason: String },
    /// A resource of the node.
    Publish { name: ResourceName, offer: Offer, reason: String },
    /// Seconds without contact from the agent after which published resources expire.
    StaleAfter(u32),
    /// A pod to be evicted.
    Evict(Eviction),
    /// A pod that cannot be acted on as configured.
    Reject { pod: PodId, field: String, message: String },
    /// A part of a key of the cluster ConfigMap that cannot be used.
    KeyProblem(KeyProblem),
    /// The state to be saved: the text of an object.
    State(String),
}

impl Declared {
    /// What the object is about, for errors.
    pub(super) fn about(&self) -> String {
        match self {
            Self::Hold { target, knob, .. } => format!("{knob} of {}", named(*target)),
            Self::Event { pod, reason, .. } => format!("event {} of pod {}", shown(reason), pod.0),
            Self::Remark { target, knob, .. } => format!("remark {knob} of {}", named(*target)),
            Self::Log { .. } => "log".to_owned(),
            Self::Migrate { container, .. } => format!("migrate container {}", container.0),
            Self::Class { class, .. } => format!("class {class}"),
            Self::Assign { target, class, .. } => format!("class {class} of {}", named(*target)),
            Self::Publish { name, .. } => format!("publish {name}"),
            Self::StaleAfter(_) => "staleAfter".to_owned(),
            Self::Evict(eviction) => format!("evict pod {}", eviction.pod.0),
            Self::Reject { pod, .. } => format!("reject pod {}", pod.0),
            Self::KeyProblem(KeyProblem { key, .. }) => format!("problem {}", shown(key)),
            Self::State(_) => "state".to_owned(),
        }
    }
}

fn named(target: Target) -> String {
    match target {
        Target::Node => "the node".to_owned(),
        Target::Tier(tier) => format!("tier {tier}"),
        Target::Pod(PodId(id)) => format!("pod {id}"),
        Target::Container(ContainerId(id)) => format!("container {id}"),
    }
}

/// The fields that tell an object's kind.
const KINDS: &[&str] = &[
    "knob",
    "event",
    "remark",
    "log",
    "migrate",
    "class",
    "assign",
    "publish",
    "staleAfter",
    "evict",
    "reject",
    "problem",
    "state",
];

type Flawed<T> = Result<T, SettingFlaw>;

/// Reads a document.
///
/// # Errors
///
/// [`Rule::NoSettings`], [`Rule::TooManySettings`], and [`Rule::Setting`] with the first object that cannot be used.
pub(super) fn read(document: &Rego, grants: &BTreeSet<Interface>, limit: usize) -> Result<Vec<Declared>, Rule> {
    let objects: Vec<&Rego> = match document {
        Rego::Array(elements) => elements.iter().collect(),
        Rego::Set(elements) => elements.iter().collect(),
        other => return Err(Rule::NotSettings { found: other.type_name() }),
    };
    if objects.len() > limit {
        return Err(Rule::TooManySettings { limit });
    }
    let read = |(index, object): (usize, &Rego)| {
        one(object, grants).map_err(|flaw| Rule::Setting { index, about: about(object), flaw: Box::new(flaw) })
    };
    objects.into_iter().enumerate().map(read).collect()
}

/// What an invalid object seems to be about.
fn about(object: &Rego) -> String {
    let field = |name: &'static str| object.get(name).map(|value| (name, shown_value(value)));
    let kind = KINDS.iter().find_map(|kind| field(kind)).map(|(kind, value)| match kind {
        "knob" => value,
        "event" | "remark" | "migrate" | "reject" | "problem" | "class" | "publish" | "evict" => {
            format!("{kind} {value}")
        }
        "assign" => format!("class {value}"),
        kind => kind.to_owned(),
    });
    let target = ["container", "pod", "tier"].iter().find_map(|name| field(name));
    match (kind, target) {
        (Some(kind), Some((name, id))) => format!("{kind} of {name} {id}"),
        (Some(kind), None) => kind,
        (None, Some((name, id))) => format!("{name} {id}"),
        (None, None) => String::new(),
    }
}

fn one(object: &Rego, grants: &BTreeSet<Interface>) -> Flawed<Declared> {
    if object.as_object().is_none() {
        return Err(SettingFlaw::NotAnObject { found: object.type_name() });
    }
    let mut kinds = KINDS.iter().copied().filter(|kind| object.get(kind).is_some());
    let kind = kinds.next().ok_or(SettingFlaw::NoKind { kinds: KINDS })?;
    if let Some(other) = kinds.next() {
        return Err(SettingFlaw::TwoKinds { one: kind, other });
    }
    let fields = Fields(object);
    let declared = |interface: Interface| {
        let is_declared = interface.always_granted() || grants.contains(&interface);
        if is_declared { Ok(()) } else { Err(SettingFlaw::NotDeclared(interface)) }
    };
    match kind {
        "knob" => {
            fields.only(&["knob", "device", "container", "pod", "tier", "value", "reason"])?;
            let knob = fields.knob("knob")?;
            declared(Interface::of(knob))?;
            let knob = fields.of_device(knob, true)?;
            let target = fields.target_of(knob)?;
            let value = fields.value(knob)?;
            if matches!(knob, Knob::CpusetMems | Knob::CpuIdle) && !matches!(target, Target::Container(_)) {
                return Err(SettingFlaw::ContainersOnly);
            }
            Ok(Declared::Hold { target, knob, value, reason: fields.non_empty_text("reason")? })
        }
        "event" => {
            fields.only(&["event", "pod", "type", "message"])?;
            declared(Interface::PodEvent)?;
            let kind = fields.word("type", &[("Normal", EventKind::Normal), ("Warning", EventKind::Warning)])?;
            Ok(Declared::Event {
                pod: PodId(fields.id("pod")?),
                kind: kind.unwrap_or(EventKind::Normal),
                reason: fields.text("event")?.to_owned(),
                message: fields.text("message")?.to_owned(),
            })
        }
        "remark" => {
            fields.only(&["remark", "device", "container", "pod", "tier", "reason"])?;
            let knob = fields.of_device(fields.knob("remark")?, false)?;
            let target = fields.target_of(knob)?;
            Ok(Declared::Remark { target, knob: knob.to_string(), reason: fields.non_empty_text("reason")? })
        }
        "log" => {
            fields.only(&["log", "level"])?;
            let levels = [("debug", LogLevel::Debug), ("info", LogLevel::Info), ("warn", LogLevel::Warn)];
            let level = fields.word("level", &levels)?.unwrap_or(LogLevel::Info);
            Ok(Declared::Log { level, line: fields.text("log")?.to_owned() })
        }
        "migrate" => {
            fields.only(&["migrate", "from", "to", "token", "reason"])?;
            declared(Interface::PageMigration)?;
            Ok(Declared::Migrate {
                container: ContainerId(fields.id("migrate")?),
                from: fields.nodes("from", u32::MAX)?,
                to: fields.nodes("to", u32::MAX)?,
                token: u64::try_from(fields.number("token", 0, i64::MAX)?).unwrap_or_default(),
                reason: fields.non_empty_text("reason")?,
            })
        }
        "class" => {
            fields.only(&["class", "cache", "bandwidth", "domains", "reason"])?;
            declared(Interface::ResctrlAllocation)?;
            Ok(Declared::Class {
                class: fields.class("class")?,
                shares: fields.shares()?,
                reason: fields.non_empty_text("reason")?,
            })
        }
        "assign" => {
            fields.only(&["assign", "container", "pod", "reason"])?;
            declared(Interface::ResctrlAllocation)?;
            Ok(Declared::Assign {
                target: fields.member()?,
                class: fields.class("assign")?,
                reason: fields.non_empty_text("reason")?,
            })
        }
        "publish" => {
            fields.only(&["publish", "amount", "zones", "origin", "reason"])?;
            declared(Interface::NodeResource)?;
            let (name, offer) = fields.offer()?;
            Ok(Declared::Publish { name, offer, reason: fields.non_empty_text("reason")? })
        }
        "staleAfter" => {
            fields.only(&["staleAfter"])?;
            declared(Interface::NodeResource)?;
            let seconds = fields.number("staleAfter", 0, u32::MAX.into())?;
            Ok(Declared::StaleAfter(u32::try_from(seconds).unwrap_or(u32::MAX)))
        }
        "evict" => {
            fields.only(&["evict", "urgency", "gracePeriodSeconds", "reason", "message"])?;
            declared(Interface::Eviction)?;
            Ok(Declared::Evict(fields.eviction()?))
        }
        "reject" => {
            fields.only(&["reject", "field", "message"])?;
            Ok(Declared::Reject {
                pod: PodId(fields.id("reject")?),
                field: fields.text("field")?.to_owned(),
                message: fields.text("message")?.to_owned(),
            })
        }
        "problem" => {
            fields.only(&["problem", "field", "message"])?;
            Ok(Declared::KeyProblem(KeyProblem {
                key: fields.non_empty_text("problem")?,
                field: fields.text("field")?.to_owned(),
                message: fields.non_empty_text("message")?,
            }))
        }
        _ => {
            fields.only(&["state"])?;
            let state = fields.field("state")?;
            if state.as_object().is_none() {
                return Err(wrong("state", state, "an object"));
            }
            if !is_shallow(state) {
                return Err(SettingFlaw::too_deep("state"));
            }
            // The text is bounded because a key that is an object becomes a string in JSON, and each level of nesting
            // doubles its escapes.
            let text = state.to_json_within(STATE_TEXT);
            text.map(Declared::State).ok_or_else(|| wrong("state", state, "an object of at most 65536 bytes of JSON"))
        }
    }
}

/// The fields of one object.
struct Fields<'a>(&'a Rego);

impl<'a> Fields<'a> {
    /// Refuses unknown fields.
    fn only(&self, known: &'static [&'static str]) -> Flawed<()> {
        let text = self.0.as_object().into_iter().flatten().map(|(key, _)| key).find(|key| {
            let is_known = key.as_str().is_some_and(|key| known.contains(&key));
            !is_known
        });
        match text {
            None => Ok(()),
            Some(key) => Err(SettingFlaw::UnknownField { field: shown_value(key), known }),
        }
    }

    fn field(&self, name: &'static str) -> Flawed<&'a Rego> {
        self.0.get(name).ok_or(SettingFlaw::Missing { field: name })
    }

    fn text(&self, name: &'static str) -> Flawed<&'a str> {
        let value = self.field(name)?;
        value.as_str().ok_or_else(|| wrong(name, value, "a string"))
    }

    /// A text that is not empty.
    fn non_empty_text(&self, name: &'static str) -> Flawed<String> {
        match self.text(name)? {
            "" => Err(SettingFlaw::Value {
                field: name,
                found: "empty".to_owned(),
                expected: "why the policy does it, in a few words".to_owned(),
            }),
            text => Ok(text.to_owned()),
        }
    }

    /// One of the given words; `None` if the field is missing.
    fn word<T: Copy>(&self, name: &'static str, words: &[(&str, T)]) -> Flawed<Option<T>> {
        let Some(value) = self.0.get(name) else { return Ok(None) };
        let found = words.iter().find(|(word, _)| value.as_str() == Some(word));
        let expected = || words.iter().map(|(word, _)| format!("`{word}`")).collect::<Vec<_>>().join(", ");
        found.map(|&(_, meaning)| Some(meaning)).ok_or_else(|| wrong(name, value, &format!("one of {}", expected())))
    }

    /// An id, as in `input`.
    fn id(&self, name: &'static str) -> Flawed<u32> {
        let value = self.field(name)?;
        let id = value.as_str().and_then(|text| text.parse().ok().filter(|id: &u32| id.to_string() == text));
        id.ok_or_else(|| wrong(name, value, "the `id` of a pod or container, as `input` has it"))
    }

    fn target(&self) -> Flawed<Target> {
        let has = |name: &str| self.0.get(name).is_some();
        match (has("container"), has("pod"), has("tier")) {
            (true, false, false) => Ok(Target::Container(ContainerId(self.id("container")?))),
            (false, true, false) => Ok(Target::Pod(PodId(self.id("pod")?))),
            (false, false, true) => {
                let words = Tier::ALL.map(|tier| (tier.to_string(), tier));
                let words: Vec<_> = words.iter().map(|(word, tier)| (word.as_str(), *tier)).collect();
                self.word("tier", &words)?.map(Target::Tier).ok_or(SettingFlaw::Target { several: false })
            }
            (false, false, false) => Err(SettingFlaw::Target { several: false }),
            _ => Err(SettingFlaw::Target { several: true }),
        }
    }

    /// A knob by its name; its device is in another field.
    fn knob(&self, field: &'static str) -> Flawed<Knob> {
        let name = self.text(field)?;
        let knob: Option<Knob> = name.parse().ok();
        knob.filter(|knob| knob.kind_name() == name).ok_or_else(|| SettingFlaw::NoKnob { name: shown(name) })
    }

    /// The target of a knob; an object for a knob of the node must not name one.
    fn target_of(&self, knob: Knob) -> Flawed<Target> {
        if !knob.is_of_node() {
            return self.target();
        }
        match ["container", "pod", "tier"].into_iter().find(|name| self.0.get(name).is_some()) {
            Some(field) => Err(SettingFlaw::NodesOwn { field }),
            None => Ok(Target::Node),
        }
    }

    /// A target that can be in a class.
    fn member(&self) -> Flawed<Target> {
        match (self.0.get("container").is_some(), self.0.get("pod").is_some()) {
            (true, false) => Ok(Target::Container(ContainerId(self.id("container")?))),
            (false, true) => Ok(Target::Pod(PodId(self.id("pod")?))),
            (several, _) => Err(SettingFlaw::Member { several }),
        }
    }

    /// A value for the knob, within the same ranges as in the contract's functions.
    fn value(&self, knob: Knob) -> Flawed<Value> {
        let value = self.field("value")?;
        let number = |least, most| self.number("value", least, most).map(Value::Number);
        match knob {
            Knob::CfsQuota | Knob::MemoryHigh | Knob::MemoryMax if value.as_str() == Some("max") => Ok(Value::Max),
            Knob::CfsQuota | Knob::MemoryHigh | Knob::MemoryMax if value.as_number().is_none() => {
                Err(wrong("value", value, "a whole number, or `max`"))
            }
            Knob::CfsQuota
            | Knob::MemoryHigh
            | Knob::MemoryMax
            | Knob::CfsBurst
            | Knob::MemoryMin
            | Knob::MemoryLow
            | Knob::PageCacheLimitSize
            | Knob::MinFreeKbytes
            | Knob::WatermarkScaleFactor
            | Knob::IdleSaverWmark => number(0, i64::MAX),
            Knob::WmarkRatio | Knob::WmarkScale | Knob::OomPriority => number(0, u32::MAX.into()),
            Knob::CpuWeight => match value.get("shares") {
                Some(_) => Fields(value).shares_alone(),
                None if value.as_number().is_none() => {
                    Err(wrong("value", value, "a whole number, or `{\"shares\": n}`"))
                }
                None => number(1, 10_000),
            },
            Knob::CpusetCpus => {
                let cpus = self.cpus()?;
                let set = CpuSet::of(&cpus).map(Value::Cpus);
                set.map_err(|error| wrong("value", value, &error.to_string()))
            }
            Knob::WmarkMinAdj => number(i32::MIN.into(), i32::MAX.into()),
            Knob::BvtWarp => number(-1, 2),
            Knob::CoreGroup => number(0, MAX_CORE_GROUP),
            Knob::CpuIdle
            | Knob::UseOomPriority
            | Knob::OomGroup
            | Knob::PageCacheLimitEnable
            | Knob::PageCacheReclaimSync
            | Knob::MemcgReaper
            | Knob::GroupIdentity
            | Knob::PageCacheLimit
            | Knob::SchedCore => match value.as_bool() {
                Some(on) => Ok(Value::Number(on.into())),
                None => number(0, 1),
            },
            Knob::CpusetMems => {
                let nodes = self.nodes("value", MAX_NODES)?;
                if nodes.is_empty() {
                    return Err(wrong("value", value, "a list of NUMA nodes, at least one"));
                }
                Ok(Value::Number(nodes.iter().fold(0, |mask, node| mask | 1_i64 << node)))
            }
            Knob::IoMax(_) | Knob::IoWeight(_) | Knob::IoCostQos(_) | Knob::IoCostModel(_) => self.device_value(knob),
        }
    }

    fn number(&self, name: &'static str, least: i64, most: i64) -> Flawed<i64> {
        let value = self.field(name)?;
        let number = value.as_number().ok_or_else(|| wrong(name, value, "a whole number"))?;
        whole(name, number, least, most)
    }

    /// A CPU weight as `cpu.shares` of cgroup v1.
    fn shares_alone(&self) -> Flawed<Value> {
        self.only(&["shares"])?;
        self.number("shares", 2, 262_144).map(Value::Shares)
    }

    /// CPUs, at least one: an array or set of their numbers.
    fn cpus(&self) -> Flawed<Vec<u32>> {
        let value = self.field("value")?;
        let cpus: Vec<&Rego> = match value {
            Rego::Array(cpus) => cpus.iter().collect(),
            Rego::Set(cpus) => cpus.iter().collect(),
            _ => return Err(wrong("value", value, "an array or set of CPUs")),
        };
        if cpus.is_empty() {
            return Err(wrong("value", value, "a list of CPUs, at least one"));
        }
        let most = MAX_CPUS - 1;
        let cpu = |value: &Rego| {
            let number = value.as_number().ok_or_else(|| wrong("value", value, "the number of a CPU"))?;
            whole("value", number, 0, most.into()).map(|cpu| u32::try_from(cpu).unwrap_or(most))
        };
        cpus.into_iter().map(cpu).collect()
    }

    fn nodes(&self, name: &'static str, most: u32) -> Flawed<Vec<u32>> {
        let value = self.field(name)?;
        let nodes: Vec<&Rego> = match value {
            Rego::Array(nodes) => nodes.iter().collect(),
            Rego::Set(nodes) => nodes.iter().collect(),
            _ => return Err(wrong(name, value, "an array or set of NUMA nodes")),
        };
        let node = |value: &Rego| {
            let number = value.as_number().ok_or_else(|| wrong(name, value, "the number of a NUMA node"))?;
            whole(name, number, 0, most.into()).map(|node| u32::try_from(node).unwrap_or(most))
        };
        nodes.into_iter().map(node).collect()
    }
}

/// A whole number within bounds, in any notation, such as `1e3`. OPA computes products above 2^53 in floats: the nearest counts.
fn whole(field: &'static str, number: &Number, least: i64, most: i64) -> Flawed<i64> {
    /// 2^63.
    const BEYOND: f64 = 9_223_372_036_854_775_808.0;
    let float = number.as_f64();
    #[expect(clippy::cast_possible_truncation, reason = "whole, and within what both hold")]
    let of_float = || (float.fract() == 0.0 && float.abs() < BEYOND).then_some(float as i64);
    let found = number.as_i64().or_else(of_float);
    if found.is_none() && float.is_finite() && float.fract() != 0.0 {
        return Err(SettingFlaw::Fraction { field, number: shown(&number.to_string()) });
    }
    let within = found.filter(|found| (least..=most).contains(found));
    within.ok_or_else(|| SettingFlaw::Range { field, number: shown(&number.to_string()), least, most })
}

fn wrong(field: &'static str, value: &Rego, expected: &str) -> SettingFlaw {
    SettingFlaw::Value { field, found: shown_value(value), expected: expected.to_owned() }
}

/// A value as errors show it.
fn shown_value(value: &Rego) -> String {
    match value {
        Rego::String(text) => format!("`{}`", shown(text)),
        Rego::Null | Rego::Bool(_) | Rego::Number(_) => shown(&value.to_string()),
        Rego::Array(_) | Rego::Object(_) | Rego::Set(_) => {
            format!("an {}", value.type_name()).replace("an set", "a set")
        }
    }
}

fn shown(text: &str) -> String {
    printable(cut(text.to_owned(), SHOWN))
}

#[cfg(test)]
mod tests;

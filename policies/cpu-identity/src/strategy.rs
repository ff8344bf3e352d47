//! The node's strategy: the fields of ConfigMap key `resource-qos-config` about CPU QoS.

use std::fmt;

use qosm_sdk::shown;
use serde_json::{Map, Value};

use crate::config::{MAX_IDENTITY, MIN_IDENTITY};

/// A QoS class that can be configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// LSE and LSR.
    Lsr,
    /// LS.
    Ls,
    /// BE.
    Be,
    /// SYSTEM.
    System,
}

impl Class {
    /// All classes.
    pub const ALL: [Self; 4] = [Self::Lsr, Self::Ls, Self::Be, Self::System];

    /// Key of the class in the ConfigMap.
    pub fn key(self) -> &'static str {
        match self {
            Self::Lsr => "lsrClass",
            Self::Ls => "lsClass",
            Self::Be => "beClass",
            Self::System => "systemClass",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lsr => "LSR",
            Self::Ls => "LS",
            Self::Be => "BE",
            Self::System => "SYSTEM",
        })
    }
}

/// How the CPU scheduler learns ranks: `policies.cpuPolicy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CpuPolicy {
    /// Group identity.
    #[default]
    GroupIdentity,
    /// Core scheduling groups.
    CoreSched,
}

/// `cpuQOS` of a class; unset fields are `None`.
///
/// Source: koordinator `apis/slo/v1alpha1/nodeslo_types.go`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuQos {
    /// Whether the class has a rank.
    pub enable: Option<bool>,
    /// The rank, -1 to 2.
    pub group_identity: Option<i8>,
    /// With `coreSched`: whether pods of the class run only on otherwise idle CPUs.
    pub sched_idle: Option<bool>,
    /// With `coreSched`: whether pods of the class never share a core with another class.
    pub core_expeller: Option<bool>,
}

/// The effective strategy with all layers merged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Strategy {
    /// How the CPU scheduler learns ranks.
    pub policy: CpuPolicy,
    /// `lsrClass`.
    pub lsr: CpuQos,
    /// `lsClass`.
    pub ls: CpuQos,
    /// `beClass`.
    pub be: CpuQos,
    /// `systemClass`.
    pub system: CpuQos,
}

/// A field with an invalid value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Path of the field within the strategy; empty for the whole strategy.
    pub field: String,
    /// The invalid value.
    pub value: String,
    /// Which values are allowed.
    pub way_out: &'static str,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = if self.field.is_empty() { "the strategy" } else { &self.field };
        write!(f, "{field} is {}; {}", self.value, self.way_out)
    }
}

impl Strategy {
    /// The configured fields of a class.
    pub fn class(&self, class: Class) -> CpuQos {
        match class {
            Class::Lsr => self.lsr,
            Class::Ls => self.ls,
            Class::Be => self.be,
            Class::System => self.system,
        }
    }

    /// Reads a node's strategy, a JSON object. A field with an invalid value keeps its value from `last` and is returned as a fault; the
    /// other fields are read.
    pub fn read(json: &str, last: &Self) -> (Self, Vec<Fault>) {
        let fields: Map<String, Value> = match serde_json::from_str(json) {
            Ok(fields) => fields,
            Err(_) => {
                let fault = Fault { field: String::new(), value: json.to_owned(), way_out: "give a JSON object" };
                return (*last, vec![fault]);
            }
        };
        let mut faults = Vec::new();
        let policy = read_policy(&fields, last.policy, &mut faults);
        let mut class = |class| read_class(&fields, class, last.class(class), &mut faults);
        let strategy = Self {
            policy,
            lsr: class(Class::Lsr),
            ls: class(Class::Ls),
            be: class(Class::Be),
            system: class(Class::System),
        };
        (strategy, faults)
    }
}

/// The value of a field. Names match in any letter case, and the last one counts, as in koordinator's decoder.
fn field<'a>(fields: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    fields.iter().rfind(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// The object under `key`; `Err` with the value if it is not an object.
fn object<'a>(fields: &'a Map<String, Value>, key: &str) -> Result<Option<&'a Map<String, Value>>, &'a Value> {
    match field(fields, key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(object)) => Ok(Some(object)),
        Some(value) => Err(value),
    }
}

fn read_policy(fields: &Map<String, Value>, last: CpuPolicy, faults: &mut Vec<Fault>) -> CpuPolicy {
    let word = match object(fields, "policies") {
        Ok(policies) => policies.and_then(|policies| field(policies, "cpuPolicy")),
        Err(value) => {
            let (field, value) = ("policies".to_owned(), shown(value.to_string()));
            faults.push(Fault { field, value, way_out: "give an object" });
            return last;
        }
    };
    match word {
        None | Some(Value::Null) => CpuPolicy::GroupIdentity,
        Some(value) => match value.as_str() {
            Some("groupIdentity" | "") => CpuPolicy::GroupIdentity,
            Some("coreSched") => CpuPolicy::CoreSched,
            _ => {
                let (field, value) = ("policies.cpuPolicy".to_owned(), shown(value.to_string()));
                faults.push(Fault { field, value, way_out: "write `groupIdentity` or `coreSched`" });
                last
            }
        },
    }
}

fn read_class(fields: &Map<String, Value>, class: Class, last: CpuQos, faults: &mut Vec<Fault>) -> CpuQos {
    let key = class.key();
    let given = match object(fields, key) {
        Ok(Some(class)) => object(class, "cpuQOS").map_err(|value| (format!("{key}.cpuQOS"), value)),
        Ok(None) => Ok(None),
        Err(value) => Err((key.to_owned(), value)),
    };
    let given = match given {
        Ok(Some(given)) => given,
        Ok(None) => return CpuQos::default(),
        Err((field, value)) => {
            faults.push(Fault { field, value: shown(value.to_string()), way_out: "give an object" });
            return last;
        }
    };
    let mut reader = Reader { key, given, faults };
    CpuQos {
        enable: reader.read("enable", last.enable, "write `true` or `false`", Value::as_bool),
        group_identity: reader.read("groupIdentity", last.group_identity, "give -1, 0, 1 or 2", identity),
        sched_idle: reader.read("schedIdle", last.sched_idle, "give 0 or 1", switch),
        core_expeller: reader.read("coreExpeller", last.core_expeller, "write `true` or `false`", Value::as_bool),
    }
}

struct Reader<'a> {
    key: &'static str,
    given: &'a Map<String, Value>,
    faults: &'a mut Vec<Fault>,
}

impl Reader<'_> {
    fn read<T>(
        &mut self,
        name: &str,
        last: Option<T>,
        way_out: &'static str,
        parse: impl Fn(&Value) -> Option<T>,
    ) -> Option<T> {
        let value = field(self.given, name).filter(|value| !value.is_null())?;
        parse(value).or_else(|| {
            let field = format!("{}.cpuQOS.{name}", self.key);
            self.faults.push(Fault { field, value: shown(value.to_string()), way_out });
            last
        })
    }
}

fn identity(value: &Value) -> Option<i8> {
    let value = i8::try_from(value.as_i64()?).ok()?;
    (MIN_IDENTITY..=MAX_IDENTITY).contains(&value).then_some(value)
}

fn switch(value: &Value) -> Option<bool> {
    match value.as_u64()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Strategy {
        let (strategy, faults) = Strategy::read(json, &Strategy::default());
        assert_eq!(faults, [], "{json}");
        strategy
    }

    #[test]
    fn each_field_is_read_from_its_class() {
        let strategy = read(
            r#"{"policies": {"cpuPolicy": "coreSched", "netQOSPolicy": "tc"},
                "beClass": {"cpuQOS": {"enable": true, "groupIdentity": -1, "schedIdle": 1, "coreExpeller": false}, "memoryQOS": 7},
                "systemClass": {"cpuQOS": {"enable": false}}}"#,
        );
        assert_eq!(strategy.policy, CpuPolicy::CoreSched);
        let be =
            CpuQos { enable: Some(true), group_identity: Some(-1), sched_idle: Some(true), core_expeller: Some(false) };
        assert_eq!(strategy.class(Class::Be), be);
        assert_eq!(strategy.class(Class::System), CpuQos { enable: Some(false), ..CpuQos::default() });
        assert_eq!((strategy.class(Class::Ls), strategy.class(Class::Lsr)), Default::default());
    }

    #[test]
    fn field_names_match_in_any_letter_case() {
        let strategy = read(
            r#"{"Policies": {"cpupolicy": "coreSched"}, "beclass": {"cpuqos": {"Enable": true, "GROUPIDENTITY": -1, "schedidle": 1}}}"#,
        );
        assert_eq!(strategy.policy, CpuPolicy::CoreSched);
        let be = CpuQos { enable: Some(true), group_identity: Some(-1), sched_idle: Some(true), ..CpuQos::default() };
        assert_eq!(strategy.class(Class::Be), be);
    }

    #[test]
    fn what_is_not_said_is_group_identity_of_no_class() {
        for json in [
            "{}",
            r#"{"policies": null, "beClass": null}"#,
            r#"{"policies": {"cpuPolicy": ""}, "beClass": {"cpuQOS": null}}"#,
            r#"{"policies": {"cpuPolicy": "groupIdentity"}, "lsClass": {"cpuQOS": {"enable": null, "unknown": 1}}}"#,
        ] {
            assert_eq!(read(json), Strategy::default(), "{json}");
        }
    }

    #[test]
    fn a_field_that_cannot_be_stays_as_it_was_and_the_others_go_on() {
        let last = read(
            r#"{"policies": {"cpuPolicy": "coreSched"}, "beClass": {"cpuQOS": {"enable": true, "groupIdentity": -1, "schedIdle": 1}}}"#,
        );
        for (json, message) in [
            (
                r#"{"policies": {"cpuPolicy": "bvt"}}"#,
                r#"policies.cpuPolicy is "bvt"; write `groupIdentity` or `coreSched`"#,
            ),
            (r#"{"policies": []}"#, "policies is []; give an object"),
            (r#"{"beClass": 3}"#, "beClass is 3; give an object"),
            (r#"{"beClass": {"cpuQOS": "on"}}"#, r#"beClass.cpuQOS is "on"; give an object"#),
            (
                r#"{"beClass": {"cpuQOS": {"enable": "yes"}}}"#,
                r#"beClass.cpuQOS.enable is "yes"; write `true` or `false`"#,
            ),
            (
                r#"{"beClass": {"cpuQOS": {"groupIdentity": 3}}}"#,
                "beClass.cpuQOS.groupIdentity is 3; give -1, 0, 1 or 2",
            ),
            (
                r#"{"beClass": {"cpuQOS": {"groupIdentity": -2}}}"#,
                "beClass.cpuQOS.groupIdentity is -2; give -1, 0, 1 or 2",
            ),
            (
                r#"{"beClass": {"cpuQOS": {"groupIdentity": -1.0}}}"#,
                "beClass.cpuQOS.groupIdentity is -1.0; give -1, 0, 1 or 2",
            ),
            (r#"{"beClass": {"cpuQOS": {"schedIdle": 2}}}"#, "beClass.cpuQOS.schedIdle is 2; give 0 or 1"),
            (
                r#"{"beClass": {"cpuQOS": {"coreExpeller": 0}}}"#,
                "beClass.cpuQOS.coreExpeller is 0; write `true` or `false`",
            ),
        ] {
            let (_, faults) = Strategy::read(json, &last);
            assert_eq!(faults.iter().map(ToString::to_string).collect::<Vec<_>>(), [message]);
        }
        let (strategy, _) = Strategy::read(
            r#"{"policies": {"cpuPolicy": 1}, "beClass": {"cpuQOS": {"enable": 1, "groupIdentity": 9, "schedIdle": 0}}}"#,
            &last,
        );
        assert_eq!(strategy.policy, CpuPolicy::CoreSched);
        let be = strategy.class(Class::Be);
        assert_eq!((be.enable, be.group_identity, be.sched_idle), (Some(true), Some(-1), Some(false)));
    }

    #[test]
    fn a_strategy_that_is_no_object_stays_as_it_was() {
        let last = read(r#"{"beClass": {"cpuQOS": {"enable": true}}}"#);
        for json in ["", "[]", "{", "7"] {
            let (strategy, faults) = Strategy::read(json, &last);
            assert_eq!((strategy, faults.len()), (last, 1), "{json}");
            assert!(faults[0].to_string().starts_with("the strategy is "), "{json}");
        }
    }
}

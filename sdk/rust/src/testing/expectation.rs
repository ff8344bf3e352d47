//! Expectations of a case file.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;
use serde_json::Value as Json;

use super::block_io::line;
use crate::mock::{Cpus, IoValue, MAX_CPUS, Value};

/// A migration that the policy has to start.
///
/// ```
/// use qosm_sdk::testing::Case;
///
/// let case = Case::parse(
///     "
///     about: pages are to be moved
///     ticks:
///       - starts: [{container: default/web/app, from: [0], to: [1]}]
///     ",
/// )?;
/// assert_eq!(case.ticks[0].starts[0].to, [1]);
/// # Ok::<(), qosm_sdk::testing::CaseError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StartExpectation {
    /// `namespace/pod/container`.
    pub container: String,
    /// Source nodes.
    pub from: Vec<u32>,
    /// Destination nodes.
    pub to: Vec<u32>,
}

/// A lease that changes.
///
/// ```
/// use qosm_sdk::testing::Case;
///
/// let case = Case::parse(
///     "
///     about: a quota is raised, and a burst is given up
///     ticks:
///       - expect:
///           - {target: container default/web/app, knob: cpu.quota, value: 60000}
///           - {target: pod default/web, knob: cpu.burst, value: released}
///     ",
/// )?;
/// assert_eq!(case.ticks[0].expect[0].to_string(), "container default/web/app cpu.quota = 60000");
/// # Ok::<(), qosm_sdk::testing::CaseError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Expectation {
    /// `container namespace/pod/container`, `pod namespace/pod`, `tier` and one of `kubepods`, `burstable`, `besteffort`, or `node`.
    pub target: String,
    /// The knob, e.g. `cpu.quota`; a device setting has the device appended, e.g. `io.max 8:16`.
    pub knob: String,
    /// The value that is held from now on.
    pub value: Expected,
}

/// The value of a lease: a number, `max`, a list of CPUs (`[0, 1, 8]` or `"0-1,8"`), shares (`2 shares`), a line of a device
/// (`rbps=1048576 wbps=max riops=max wiops=120`), or nothing (`released`).
///
/// ```
/// use qosm_sdk::mock::Value;
/// use qosm_sdk::testing::Expected;
///
/// assert_eq!("max".parse(), Ok(Expected::Held(Value::Max)));
/// assert_eq!("released".parse(), Ok(Expected::Released));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "Json")]
pub enum Expected {
    /// A value of a cgroup or kernel setting.
    Held(Value),
    /// A value of a device setting.
    Io(IoValue),
    /// The lease is released.
    Released,
}

impl TryFrom<Json> for Expected {
    type Error = String;

    fn try_from(json: Json) -> Result<Self, String> {
        match (&json, json.as_i64()) {
            (_, Some(number)) => Ok(Self::Held(Value::Number(number))),
            (Json::String(word), _) => word.parse(),
            (Json::Array(cpus), _) => {
                let cpu =
                    |cpu: &Json| cpu.as_u64().and_then(|cpu| u32::try_from(cpu).ok()).filter(|cpu| *cpu < MAX_CPUS);
                let cpus: Option<Vec<u32>> = cpus.iter().map(cpu).collect();
                let cpus = cpus.ok_or_else(|| format!("{json} is no list of CPUs with numbers below {MAX_CPUS}"))?;
                Ok(Self::Held(Value::Cpus(Cpus::of(&cpus))))
            }
            _ => Err(format!("{json} is neither a whole number nor `max` nor `released`")),
        }
    }
}

impl FromStr for Expected {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "max" => Ok(Self::Held(Value::Max)),
            "released" => Ok(Self::Released),
            _ => {
                let shares = word.strip_suffix(" shares").and_then(|shares| shares.parse().ok()).map(Value::Shares);
                let value = shares.or_else(|| cpus(word).map(Value::Cpus)).map(Self::Held);
                value.or_else(|| line(word).map(Self::Io)).ok_or_else(|| {
                    format!(
                        "`{word}` is neither a whole number nor `max` nor `released`, nor a list of CPUs, nor a line of a device such as \
                         `rbps=1048576 wbps=max riops=max wiops=120`"
                    )
                })
            }
        }
    }
}

/// Parses a list of CPUs such as `0-1,8`.
fn cpus(list: &str) -> Option<Cpus> {
    let mut cpus: Vec<u32> = Vec::new();
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse().ok()?, last.parse().ok().filter(|last: &u32| *last < MAX_CPUS)?);
        cpus.extend(first..=last);
    }
    Some(Cpus::of(&cpus))
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held(value) => value.fmt(f),
            Self::Io(value) => value.fmt(f),
            Self::Released => f.write_str("released"),
        }
    }
}

impl fmt::Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} = {}", self.target, self.knob, self.value)
    }
}

/// A pod whose configuration the policy rejects.
///
/// ```
/// use qosm_sdk::testing::Case;
///
/// let case = Case::parse(
///     "
///     about: a pod asks for what cannot be done
///     rejections: [{pod: default/web, field: percent}]
///     ticks: []
///     ",
/// )?;
/// assert_eq!(case.rejections[0].field, "percent");
/// # Ok::<(), qosm_sdk::testing::CaseError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RejectionExpectation {
    /// The pod, as `namespace/name`.
    pub pod: String,
    /// The field that is at fault.
    pub field: String,
}

/// A setting that the policy wants but does not make.
///
/// ```
/// use qosm_sdk::testing::Case;
///
/// let case = Case::parse(
///     "
///     about: the node is too busy for more
///     pods: [{name: default/web, containers: [{name: app}]}]
///     ticks:
///       - remarks: [{target: container default/web/app, knob: cpu.quota}]
///     ",
/// )?;
/// assert_eq!(case.ticks[0].remarks.as_ref().unwrap()[0].reason, None, "it may say anything");
/// # Ok::<(), qosm_sdk::testing::CaseError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RemarkExpectation {
    /// As in [`Expectation::target`].
    pub target: String,
    /// The name of the knob.
    pub knob: String,
    /// A part of the reason; any when left out.
    pub reason: Option<String>,
}

/// A part of a key of the cluster ConfigMap that the policy cannot use as it is written.
///
/// ```
/// use qosm_sdk::testing::Case;
///
/// let case = Case::parse(
///     "
///     about: a factor out of range
///     ticks:
///       - clusterConfig: {system-config: {strategy: {minFreeKbytesFactor: 0}}}
///         problems: [{key: system-config, field: minFreeKbytesFactor}]
///     ",
/// )?;
/// assert_eq!(case.ticks[0].problems.as_ref().unwrap()[0].message, None, "it may say anything");
/// # Ok::<(), qosm_sdk::testing::CaseError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProblemExpectation {
    /// The key.
    pub key: String,
    /// Path of the field within the key; left out for the whole key.
    #[serde(default)]
    pub field: String,
    /// A part of the message; any when left out.
    pub message: Option<String>,
}

/// An event that the policy emits.
///
/// ```
/// use qosm_sdk::testing::Case;
///
/// let case = Case::parse(
///     "
///     about: the owner gets an event
///     ticks:
///       - events: [{pod: default/web, reason: MemoryMoved}]
///     ",
/// )?;
/// assert_eq!(case.ticks[0].events[0].message, None, "it may say anything");
/// # Ok::<(), qosm_sdk::testing::CaseError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EventExpectation {
    /// The pod, as `namespace/name`.
    pub pod: String,
    /// The event's reason.
    pub reason: String,
    /// The event's message; any when left out.
    pub message: Option<String>,
}

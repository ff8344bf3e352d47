//! What a case file expects of a policy.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;
use serde_json::Value as Json;

use crate::mock::Value;

/// A migration that is started.
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
    /// From which nodes.
    pub from: Vec<u32>,
    /// To which nodes.
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
    /// `container namespace/pod/container`, `pod namespace/pod`, or `tier` and one of `kubepods`, `burstable`, `besteffort`.
    pub target: String,
    /// The knob, e.g. `cpu.quota`.
    pub knob: String,
    /// What is held from now on.
    pub value: Expected,
}

/// What is held: a number, `max`, or nothing (`released`).
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
    /// A value.
    Held(Value),
    /// Nothing any more.
    Released,
}

impl TryFrom<Json> for Expected {
    type Error = String;

    fn try_from(json: Json) -> Result<Self, String> {
        match (&json, json.as_i64()) {
            (_, Some(number)) => Ok(Self::Held(Value::Number(number))),
            (Json::String(word), _) => word.parse(),
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
            _ => Err(format!("`{word}` is neither a whole number nor `max` nor `released`")),
        }
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held(value) => value.fmt(f),
            Self::Released => f.write_str("released"),
        }
    }
}

impl fmt::Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} = {}", self.target, self.knob, self.value)
    }
}

/// A pod that is refused.
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
    /// `namespace/name`.
    pub pod: String,
    /// The field at fault.
    pub field: String,
}

/// An event.
///
/// ```
/// use qosm_sdk::testing::Case;
///
/// let case = Case::parse(
///     "
///     about: the owner is told
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
    /// `namespace/name`.
    pub pod: String,
    /// Its reason.
    pub reason: String,
    /// What it says; anything when left out.
    pub message: Option<String>,
}

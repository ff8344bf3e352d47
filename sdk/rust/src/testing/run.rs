//! The runner: plays cases and compares the results.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde_saphyr::{DefaultMessageFormatter, MessageFormatter};

use super::block_io::remarked;
use super::case::Case;
use super::driver::{Driver, Outcome};
use super::expectation::{
    EventExpectation, Expectation, Expected, ProblemExpectation, RejectionExpectation, RemarkExpectation,
    StartExpectation,
};
use super::fixture::CaseFixture;
use super::node_knobs::NODE;
use super::requests::{EvictionExpectation, ResourceExpectation, evictions};
use super::resctrl::{ClassExpectation, MemberExpectation, tell_reasons};
use super::tick::TickFacts;
use crate::mock::Value;
use crate::{Target, Tick};

/// Maximum number of evaluations of one tick: a day of seconds.
const MAX_REPEAT: u32 = 86_400;

/// Why a case fails.
///
/// ```
/// use qosm_sdk::testing::{Case, CaseError};
///
/// let Err(CaseError::Malformed(why)) = Case::parse("{about: a slip of the pen, tics: []}") else { return };
/// assert!(why.contains("tics"), "{why}");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CaseError {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Unreadable(String),
    /// The file is not a valid case.
    #[error("is no case: {0}")]
    Malformed(String),
    /// The case names something that does not exist in it, or an unknown word.
    #[error("{place}: {problem}")]
    Nonsense {
        /// Position in the case.
        place: String,
        /// The problem.
        problem: String,
    },
    /// A call failed unexpectedly, or succeeded unexpectedly.
    #[error("{place}: expected {expected}, but {found}")]
    Call {
        /// Position in the case.
        place: String,
        /// Expected result of the call.
        expected: String,
        /// Actual result of the call.
        found: String,
    },
    /// Leases, rejections, events or other effects differ from the expectations.
    #[error("{place}: {}", differences(.missing, .unexpected))]
    Different {
        /// Position in the case.
        place: String,
        /// Expected effects that did not happen.
        missing: Vec<String>,
        /// Effects that were not expected.
        unexpected: Vec<String>,
    },
}

fn differences(missing: &[String], unexpected: &[String]) -> String {
    let lines =
        |sign: &str, items: &[String]| items.iter().map(|item| format!("\n    {sign} {item}")).collect::<String>();
    format!("not as expected (- missing, + unexpected):{}{}", lines("-", missing), lines("+", unexpected))
}

/// The cases of a folder that failed. `Display` and `Debug` both print them as a list, so a test may return it.
///
/// ```
/// # use qosm_sdk::{Description, Host, NoConfig, Pod, PodId, Policy, Rejection, Tick};
/// # #[derive(Default)]
/// # struct Mine;
/// # impl Policy for Mine {
/// #     type Config = ();
/// #     type PodConfig = NoConfig;
/// #     fn describe() -> Description { Description::new("mine", "0.1.0", "") }
/// #     fn pods<H: Host>(&mut self, _: &mut H, _: Vec<Pod<NoConfig>>, _: &[PodId]) -> Vec<Rejection> { Vec::new() }
/// #     fn evaluate<H: Host>(&mut self, _: &mut H, _: Tick) -> Result<(), String> { Ok(()) }
/// # }
/// use qosm_sdk::testing::{Failures, Native, run_folder};
///
/// let Err(Failures { played, .. }) = run_folder("/nowhere", Native::<Mine>::default) else { return };
/// assert_eq!(played, 0);
/// ```
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub struct Failures {
    /// Files, with the error of each.
    pub failed: Vec<(PathBuf, CaseError)>,
    /// Number of cases played.
    pub played: usize,
}

impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} cases do not hold", self.failed.len(), self.played)?;
        self.failed.iter().try_for_each(|(path, error)| write!(f, "\n  {}: {error}", path.display()))
    }
}

impl fmt::Debug for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Plays every `*.yaml` and `*.yml` file of a folder, in the order of their names, each to a new driver.
///
/// # Errors
///
/// All cases that fail. A folder without cases is an error too, because a test that plays nothing shows nothing.
///
/// ```
/// # use qosm_sdk::{Description, Host, NoConfig, Pod, PodId, Policy, Rejection, Tick};
/// # #[derive(Default)]
/// # struct Mine;
/// # impl Policy for Mine {
/// #     type Config = ();
/// #     type PodConfig = NoConfig;
/// #     fn describe() -> Description { Description::new("mine", "0.1.0", "") }
/// #     fn pods<H: Host>(&mut self, _: &mut H, _: Vec<Pod<NoConfig>>, _: &[PodId]) -> Vec<Rejection> { Vec::new() }
/// #     fn evaluate<H: Host>(&mut self, _: &mut H, _: Tick) -> Result<(), String> { Ok(()) }
/// # }
/// use qosm_sdk::testing::{Failures, Native, run_folder};
///
/// fn the_cases_hold() -> Result<(), Failures> {
///     run_folder("tests/cases", Native::<Mine>::default)
/// }
/// # assert!(the_cases_hold().is_err(), "there are none here");
/// ```
pub fn run_folder<D: Driver>(folder: impl AsRef<Path>, mut driver: impl FnMut() -> D) -> Result<(), Failures> {
    let folder = folder.as_ref();
    let unreadable = |error: std::io::Error| Failures {
        failed: vec![(folder.to_owned(), CaseError::Unreadable(error.to_string()))],
        played: 0,
    };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if is_case_file(&path) {
            paths.push(path);
        }
    }
    paths.sort();
    if paths.is_empty() {
        return Err(unreadable(std::io::Error::other("there is no *.yaml or *.yml in it")));
    }
    let played = paths.len();
    let play = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).map_err(|error| CaseError::Unreadable(error.to_string()));
        let case = text.and_then(|text| Case::parse(&text));
        case.and_then(|case| run_case(&case, &mut driver())).err().map(|error| (path, error))
    };
    let failed: Vec<_> = paths.into_iter().filter_map(play).collect();
    if failed.is_empty() { Ok(()) } else { Err(Failures { failed, played }) }
}

/// Whether a file is a case by its name: `*.yaml` or `*.yml`.
///
/// ```
/// use std::path::Path;
///
/// use qosm_sdk::testing::is_case_file;
///
/// assert!(is_case_file(Path::new("tests/cases/follows-the-limit.yaml")));
/// assert!(!is_case_file(Path::new("tests/cases/README.md")));
/// ```
pub fn is_case_file(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
}

impl Case {
    /// Reads a case from YAML.
    ///
    /// # Errors
    ///
    /// [`CaseError::Malformed`] with line and column.
    ///
    /// ```
    /// let case = qosm_sdk::testing::Case::parse("{about: nothing happens, ticks: [{}]}")?;
    /// assert_eq!(case.about, "nothing happens");
    /// # Ok::<(), qosm_sdk::testing::CaseError>(())
    /// ```
    pub fn parse(yaml: &str) -> Result<Self, CaseError> {
        serde_saphyr::from_str(yaml).map_err(|error| CaseError::Malformed(error.render_with_formatter(&InWordsOfCases)))
    }
}

/// The messages of the YAML library, except those that name its functions and types of Rust.
struct InWordsOfCases;

impl MessageFormatter for InWordsOfCases {
    fn format_message<'a>(&self, error: &'a serde_saphyr::Error) -> Cow<'a, str> {
        match error {
            serde_saphyr::Error::DuplicateMappingKey { key: Some(key), .. } => format!("`{key}` occurs twice").into(),
            serde_saphyr::Error::MultipleDocuments { .. } => "a file has one case; put the next into its own".into(),
            serde_saphyr::Error::NullIntoString { .. } => "it has no value; write a text".into(),
            serde_saphyr::Error::InvalidScalar { ty, .. } => match *ty {
                "boolean" => "write `true` or `false`".into(),
                "floating point" => "write a number".into(),
                unsigned if unsigned.starts_with('u') => "write a whole number, 0 or more".into(),
                _ => "write a whole number".into(),
            },
            _ => DefaultMessageFormatter.format_message(error),
        }
    }
}

/// Plays one case.
///
/// # Errors
///
/// The first difference from the expectations.
///
/// ```
/// # use qosm_sdk::{Description, Host, NoConfig, Pod, PodId, Policy, Rejection, Tick};
/// # #[derive(Default)]
/// # struct Mine;
/// # impl Policy for Mine {
/// #     type Config = ();
/// #     type PodConfig = NoConfig;
/// #     fn describe() -> Description { Description::new("mine", "0.1.0", "") }
/// #     fn pods<H: Host>(&mut self, _: &mut H, _: Vec<Pod<NoConfig>>, _: &[PodId]) -> Vec<Rejection> { Vec::new() }
/// #     fn evaluate<H: Host>(&mut self, _: &mut H, _: Tick) -> Result<(), String> { Ok(()) }
/// # }
/// use qosm_sdk::testing::{Case, Native, run_case};
///
/// let case = Case::parse(
///     "
///     about: a quota that nobody sets
///     pods: [{name: default/web, containers: [{name: app}]}]
///     ticks: [{expect: [{target: pod default/web, knob: cpu.quota, value: 1000}]}]
///     ",
/// )?;
/// let error = run_case(&case, &mut Native::<Mine>::default()).unwrap_err();
/// assert!(error.to_string().ends_with("- pod default/web cpu.quota = 1000"), "{error}");
/// # Ok::<(), qosm_sdk::testing::CaseError>(())
/// ```
pub fn run_case(case: &Case, driver: &mut impl Driver) -> Result<(), CaseError> {
    let mut run = Run { fixture: CaseFixture::default(), driver };
    run.start(case)?;
    if case.ticks.is_empty() && case.rejections.is_empty() {
        let problem = "there is none, so that nothing is shown; write at least `ticks: [{}]`".to_owned();
        return Err(CaseError::Nonsense { place: "ticks".into(), problem });
    }
    for (index, tick) in case.ticks.iter().enumerate() {
        let about = if tick.about.is_empty() { String::new() } else { format!(" ({})", tick.about) };
        run.tick(tick, &format!("tick {}{about}", index + 1))?;
    }
    Ok(())
}

struct Run<'a, D> {
    fixture: CaseFixture,
    driver: &'a mut D,
}

/// Effects of the calls of a tick, other than leases.
#[derive(Default)]
struct Observed {
    rejections: Vec<RejectionExpectation>,
    events: Vec<EventExpectation>,
    /// Remarks of the last call.
    remarks: Vec<RemarkExpectation>,
    /// Reports of the last call on the cluster's configuration.
    problems: Vec<ProblemExpectation>,
    starts: Vec<StartExpectation>,
    stops: Vec<String>,
    evictions: Vec<EvictionExpectation>,
}

impl<D: Driver> Run<'_, D> {
    fn start(&mut self, case: &Case) -> Result<(), CaseError> {
        let place = "start";
        self.fixture.node(&case.node);
        let mut observed = Observed::default();
        let outcome = self.driver.configure(&serde_json::Value::Object(case.config.clone()).to_string());
        self.record(outcome, place, &mut observed)?;
        let pods = self.fixture.upsert(&case.pods, place)?;
        let columns = self.fixture.columns(&[], place)?;
        let outcome = self.driver.pods(pods, Vec::new(), &columns);
        self.record(outcome, place, &mut observed)?;
        compare(place, &case.rejections, &observed.rejections, |one| {
            format!("rejection of {} for `{}`", one.pod, one.field)
        })?;
        compare(place, &[], &observed.events, event)
    }

    fn tick(&mut self, facts: &TickFacts, place: &str) -> Result<(), CaseError> {
        let (before, classes_before) = (self.fixture.leases.clone(), self.fixture.held_classes.clone());
        let requests_before = self.fixture.requests.clone();
        let settings_before = self.fixture.node_settings.clone();
        let io_before = self.fixture.block_io.clone();
        let mut observed = Observed::default();
        let played = self.play(facts, place, &mut observed);
        match (&facts.error, played) {
            (None, played) => played?,
            (Some(expected), Err(CaseError::Call { found, .. })) if found.contains(expected.as_str()) => {}
            (Some(_), Err(error)) => return Err(error),
            (Some(expected), Ok(())) => {
                let expected = format!("an error that says `{expected}`");
                return Err(CaseError::Call { place: place.into(), expected, found: "all went well".into() });
            }
        }
        let mut changes = self.changes(&before);
        changes.extend(self.fixture.node_settings.since(&settings_before));
        let (exists, name) = (|target| self.fixture.exists(target), |target| self.fixture.target_name(target));
        changes.extend(self.fixture.block_io.since(&io_before, exists, name));
        compare(place, &facts.expect, &changes, ToString::to_string)?;
        compare(place, &facts.rejections, &observed.rejections, |one| {
            format!("rejection of {} for `{}`", one.pod, one.field)
        })?;
        compare(place, &facts.starts, &observed.starts, |one| {
            format!("migration of {} from {:?} to {:?}", one.container, one.from, one.to)
        })?;
        compare(place, &facts.stops, &observed.stops, |one| format!("stop of the migration of {one}"))?;
        let held = &self.fixture.held_classes;
        let mut classes = held.classes_since(&classes_before);
        let like = |one: &ClassExpectation, other: &ClassExpectation| one.class == other.class;
        tell_reasons(&facts.classes, &mut classes, like, |one| &one.reason, |one, reason| one.reason = reason);
        compare(place, &facts.classes, &classes, class)?;
        let exists = |target| self.fixture.exists(target);
        let mut members = held.members_since(&classes_before, exists, |target| self.fixture.target_name(target));
        let like = |one: &MemberExpectation, other: &MemberExpectation| one.target == other.target;
        tell_reasons(&facts.members, &mut members, like, |one| &one.reason, |one, reason| one.reason = reason);
        compare(place, &facts.members, &members, member)?;
        self.fixture.check_classes(place)?;
        let requests = &self.fixture.requests;
        let mut published = requests.since(&requests_before);
        let like = |one: &ResourceExpectation, other: &ResourceExpectation| one.name == other.name;
        tell_reasons(&facts.published, &mut published, like, |one| &one.reason, |one, reason| one.reason = reason);
        compare(place, &facts.published, &published, ToString::to_string)?;
        let stale_after = requests.stale_after.filter(|_| requests.stale_after != requests_before.stale_after);
        let seconds = |seconds: &u32| format!("staleAfterSeconds {seconds}");
        compare(place, facts.stale_after_seconds.as_slice(), stale_after.as_slice(), seconds)?;
        EvictionExpectation::tell(&facts.evicted, &mut observed.evictions);
        compare(place, &facts.evicted, &observed.evictions, ToString::to_string)?;
        // The message of an event counts only if the case expects one.
        let told = |found: &EventExpectation| {
            let like = |expected: &&EventExpectation| (&expected.pod, &expected.reason) == (&found.pod, &found.reason);
            facts.events.iter().filter(like).any(|expected| expected.message.is_some())
        };
        for found in &mut observed.events {
            if !told(found) {
                found.message = None;
            }
        }
        if let Some(expected) = &facts.remarks {
            let like = |one: &RemarkExpectation, other: &RemarkExpectation| {
                (&one.target, &one.knob) == (&other.target, &other.knob)
            };
            tell_reasons(expected, &mut observed.remarks, like, |one| &one.reason, |one, reason| one.reason = reason);
            compare(place, expected, &observed.remarks, |one| format!("remark on {} of {}", one.knob, one.target))?;
        }
        if let Some(expected) = &facts.problems {
            let like = |one: &ProblemExpectation, other: &ProblemExpectation| {
                (&one.key, &one.field) == (&other.key, &other.field)
            };
            tell_reasons(expected, &mut observed.problems, like, |one| &one.message, |one, said| one.message = said);
            compare(place, expected, &observed.problems, |one| format!("problem of {}: {}", one.key, one.field))?;
        }
        compare(place, &facts.events, &observed.events, event)
    }

    fn play(&mut self, facts: &TickFacts, place: &str, observed: &mut Observed) -> Result<(), CaseError> {
        if let Some(config) = &facts.configure {
            let outcome = self.driver.configure(&serde_json::Value::Object(config.clone()).to_string());
            self.record(outcome, place, observed)?;
        }
        self.fixture.node(&facts.node);
        self.fixture.samples(facts);
        let nonsense = |problem| CaseError::Nonsense { place: place.into(), problem };
        if let Some(group_identity) = facts.group_identity {
            self.fixture.group_identity = group_identity;
        }
        if let Some(core_scheduling) = facts.core_scheduling {
            self.fixture.core_scheduling = core_scheduling;
        }
        if let Some(rows) = &facts.node_knobs {
            self.fixture.node_settings.take(rows).map_err(nonsense)?;
        }
        if let Some(rows) = &facts.block_devices {
            self.fixture.block_io.take_devices(rows).map_err(nonsense)?;
        }
        if let Some(rows) = &facts.pod_volumes {
            self.fixture.block_io.take_volumes(rows).map_err(nonsense)?;
        }
        if !facts.upsert.is_empty() || !facts.remove.is_empty() {
            // Keep the names of removed pods until the effects of the call on them are recorded.
            let removed = facts.remove.iter().map(|name| self.fixture.pod_id(name, place)).collect::<Result<_, _>>()?;
            let upserted = self.fixture.upsert(&facts.upsert, place)?;
            self.fixture.remove(&facts.remove);
            let columns = self.fixture.columns(&facts.bandwidth, place)?;
            let outcome = self.driver.pods(upserted, removed, &columns);
            self.record(outcome, place, observed)?;
        }
        let tick = Tick {
            window_usec: facts.window_millis.unwrap_or(1000).saturating_mul(1000),
            cause: self.fixture.cause(facts, place)?,
            alarms: self.fixture.alarms(facts, place)?,
        };
        let repeat = facts.repeat.unwrap_or(1);
        if !(1..=MAX_REPEAT).contains(&repeat) {
            return Err(nonsense(format!("repeat: {repeat} is not from 1 to {MAX_REPEAT}")));
        }
        for _ in 0..repeat {
            let columns = self.fixture.columns(&facts.bandwidth, place)?;
            let outcome = self.driver.evaluate(tick.clone(), &columns);
            self.record(outcome, place, observed)?;
        }
        Ok(())
    }

    fn record(
        &mut self,
        outcome: Result<Outcome, String>,
        place: &str,
        observed: &mut Observed,
    ) -> Result<(), CaseError> {
        let outcome = outcome.map_err(|found| CaseError::Call {
            place: place.into(),
            expected: "that all goes well".into(),
            found,
        })?;
        for staged in outcome.staged {
            self.fixture.lease(staged.target, staged.knob, staged.value);
        }
        for change in outcome.classes {
            self.fixture.change_class(change);
        }
        for change in outcome.resources {
            self.fixture.requests.change(change);
        }
        for change in &outcome.node_knobs {
            self.fixture.node_settings.change(change);
        }
        for change in &outcome.io {
            self.fixture.block_io.change(change);
        }
        let evictions = evictions(outcome.evictions, |pod| self.fixture.pod_name(pod));
        observed.evictions.extend(evictions);
        for migration in outcome.migrations {
            let container = self.fixture.container_name(migration.container);
            match migration.way {
                Some((from, to)) => {
                    self.fixture.started(migration.container, migration.token);
                    observed.starts.push(StartExpectation { container, from, to });
                }
                None => observed.stops.push(container),
            }
        }
        observed.rejections.extend(outcome.rejections.into_iter().map(|rejection| RejectionExpectation {
            pod: self.fixture.pod_name(rejection.pod),
            field: rejection.field,
        }));
        observed.remarks = outcome
            .remarks
            .into_iter()
            .map(|remark| RemarkExpectation {
                target: self.fixture.target_name(remark.target),
                knob: remark.knob,
                reason: Some(remark.reason),
            })
            .chain(outcome.node_remarks.into_iter().map(|remark| RemarkExpectation {
                target: NODE.into(),
                knob: remark.knob.as_str().into(),
                reason: Some(remark.reason),
            }))
            .chain(outcome.io_remarks.into_iter().map(|remark| RemarkExpectation {
                target: NODE.into(),
                knob: remarked(&remark),
                reason: Some(remark.reason),
            }))
            .collect();
        observed.problems = outcome
            .key_problems
            .into_iter()
            .map(|problem| ProblemExpectation {
                key: problem.key,
                field: problem.field,
                message: Some(problem.message),
            })
            .collect();
        observed.events.extend(outcome.events.into_iter().map(|event| EventExpectation {
            pod: self.fixture.pod_name(event.pod),
            reason: event.reason,
            message: Some(event.message),
        }));
        Ok(())
    }

    fn changes(&self, before: &BTreeMap<(Target, &'static str), Value>) -> Vec<Expectation> {
        let after = &self.fixture.leases;
        let taken = after.iter().filter(|(key, value)| before.get(key) != Some(value));
        let taken = taken.map(|(key, value)| (key, Expected::Held(*value)));
        // The leases of a vanished target end without a decision of the policy, so they are no difference.
        let given_up = before.keys().filter(|key| !after.contains_key(key) && self.fixture.exists(key.0));
        let given_up = given_up.map(|key| (key, Expected::Released));
        taken
            .chain(given_up)
            .map(|((target, knob), value)| Expectation {
                target: self.fixture.target_name(*target),
                knob: (*knob).into(),
                value,
            })
            .collect()
    }
}

fn event(event: &EventExpectation) -> String {
    let message = event.message.as_deref().map(|message| format!(": {message:?}")).unwrap_or_default();
    format!("event {} on {}{message}", event.reason, event.pod)
}

fn class(class: &ClassExpectation) -> String {
    class.to_string() + &reason(&class.reason)
}

fn member(member: &MemberExpectation) -> String {
    member.to_string() + &reason(&member.reason)
}

fn reason(reason: &Option<String>) -> String {
    reason.as_deref().map(|reason| format!(" because {reason:?}")).unwrap_or_default()
}

fn compare<T: PartialEq>(
    place: &str,
    expected: &[T],
    found: &[T],
    print: impl Fn(&T) -> String,
) -> Result<(), CaseError> {
    let (mut missing, mut unexpected) = (Vec::new(), found.iter().collect::<Vec<_>>());
    for one in expected {
        match unexpected.iter().position(|found| *found == one) {
            Some(place) => {
                unexpected.remove(place);
            }
            None => missing.push(print(one)),
        }
    }
    let unexpected: Vec<_> = unexpected.into_iter().map(print).collect();
    if missing.is_empty() && unexpected.is_empty() {
        Ok(())
    } else {
        Err(CaseError::Different { place: place.into(), missing, unexpected })
    }
}

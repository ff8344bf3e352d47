//! Tests of how versions replace each other: modules that work or fail, one tick a second on a simulated clock.

pub(crate) mod guest;

use std::sync::{Arc, OnceLock};

use qosm_engine::{Compiler, Engine};
use qosm_model::knob::{Target, Value};
use qosm_model::pod::{ContainerId, Pod, PodId};
use qosm_model::setting::Setting;
use qosm_model::unit::Micros;

use self::guest::Evaluation as Does;
use crate::columns::Readings;
use crate::config::{AgentConfig, OnFailure, PolicyConfig};
use crate::loaded::{Checked, LoadedPolicy, ModuleOrigin};
use crate::metrics::Metrics;
use crate::module_reference::ModuleReference;
use crate::now::Now;
use crate::policies::{Context, Evaluation, Policies, PoliciesError};
use crate::policy::{Health, Policy};
use crate::policy_set::resolved::{PolicySet, ResolvedPolicy};
use crate::saved_state::SavedState;
use crate::sources::Sources;
use crate::table::PodTable;

const NAME: &str = "weights";
/// What the policy saved before the test begins.
const SAVED: &[u8] = b"saved before";

fn saved() -> SavedState {
    SavedState { bytes: SAVED.to_vec(), at: Some(Micros(7)) }
}

fn engine() -> Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    ENGINE.get_or_init(|| Engine::new().unwrap()).clone()
}

fn entry() -> PolicyConfig {
    let grants = ["cpu-weight", "node-object", "cluster-config"].map(str::to_owned);
    PolicyConfig { grants: Some(grants.to_vec()), ..PolicyConfig::builtin(NAME) }
}

/// The policy with a module of this name.
fn version(module: &str, does: Does) -> LoadedPolicy {
    let (engine, config) = (engine(), entry());
    let loaded = engine.load(&guest::component(module, does), None, &Compiler::InProcess).unwrap();
    let description = engine.describe(&loaded).unwrap();
    let reference = ModuleReference::File(format!("/{module}.wasm").into());
    let checked = Arc::new(Checked::of(&config, &description));
    LoadedPolicy { config, module: loaded, description, origin: ModuleOrigin { reference, artifact: None }, checked }
}

fn pod() -> Pod {
    let text = r#"{"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "namespace": "default", "uid": "u"},
        "spec": {"containers": [{"name": "app"}]}, "status": {"phase": "Running"}}"#;
    qosm_cluster::parse_objects(text, "pod.json").pods.remove(0)
}

/// The policies of a node with one pod.
struct Env {
    policies: Policies,
    pods: PodTable,
    sources: Sources,
    config: AgentConfig,
    metrics: Metrics,
    seconds: u64,
    /// Whether a version that took its turn changed the problems of configuration.
    changes_problems: bool,
}

/// What the policy did in one tick.
#[derive(Debug, PartialEq, Eq)]
enum Tick {
    /// It staged these weights, as all that it wants (`true`) or in addition to what it wanted before.
    Staged(Vec<i64>, bool),
    Released,
    /// It was not evaluated, or failed.
    Nothing,
}

impl Env {
    fn new(first: LoadedPolicy) -> Self {
        let saved = |_: &str| Ok::<_, PoliciesError>(saved());
        let policies = Policies::new(engine(), vec![first], Vec::new(), saved).unwrap();
        let mut pods = PodTable::default();
        pods.update(vec![pod()]);
        pods.attach(PodId(1), &[Target::Pod(PodId(1)), Target::Container(ContainerId(1))]);
        let (sources, config, metrics) = (Sources::default(), AgentConfig::default(), Metrics::default());
        let mut env = Self { policies, pods, sources, config, metrics, seconds: 0, changes_problems: false };
        env.policies.reconfigure(&env.sources, &env.pods, true, true, &[PodId(1)]);
        env
    }

    fn now(&self) -> Now {
        let monotonic = Micros(self.seconds * 1_000_000);
        Now { monotonic, uptime: Some(monotonic), ..Now::default() }
    }

    /// Advances by a second, and does what the agent's step does with its policies.
    fn tick(&mut self) -> Tick {
        self.seconds += 1;
        let now = self.now();
        let Self { policies, pods, sources, config, metrics, .. } = self;
        let at = Context { pods, sources, config, metrics, now };
        policies.wait_for_dry_runs();
        policies.finish_dry_runs(metrics);
        let mut evaluations = policies.evaluate(policies.due(now), &Readings::default(), &at);
        policies.watch_rollback_windows(&at);
        policies.begin_dry_runs(&Readings::default(), pods, sources, now);
        policies.order_again(metrics);
        assert!(evaluations.len() <= 1, "there is one policy");
        match evaluations.pop() {
            None => Tick::Nothing,
            Some(Evaluation::Released(policy)) => {
                assert_eq!(*policy, *NAME);
                Tick::Released
            }
            Some(Evaluation::Staged(staged)) => {
                self.changes_problems |= staged.changes_problems;
                let settings = staged.staged.iter().flat_map(|part| &part.settings);
                let weight = |setting: &Setting| match setting {
                    Setting::Hold { value: Value::Number(weight), .. } => Some(*weight),
                    _ => None,
                };
                Tick::Staged(settings.filter_map(weight).collect(), staged.anew)
            }
        }
    }

    fn ticks(&mut self, number: u64) -> Vec<Tick> {
        (0..number).map(|_| self.tick()).collect()
    }

    /// Applies a policy set with these policies.
    fn ask_for(&mut self, policies: &[&LoadedPolicy]) {
        let now = self.now();
        let Self { policies: all, pods, sources, config, metrics, .. } = self;
        let resolved = |policy: &&LoadedPolicy| ResolvedPolicy {
            policy: (*policy).clone(),
            generation: Some(7),
            pending_update: None,
            is_fallback: false,
        };
        let number = all.set_number() + 1;
        let set = PolicySet { policies: policies.iter().map(resolved).collect(), number, ..PolicySet::default() };
        all.apply_policy_set(set, &|_| SavedState::default(), &Context { pods, sources, config, metrics, now });
    }

    fn policy(&self) -> &Policy {
        self.policies.find(NAME).unwrap()
    }

    /// Name of the running module.
    fn runs(&self) -> String {
        self.policy().description.name.clone()
    }

    /// Why another version does not run.
    fn not_taken(&self) -> String {
        self.policy().not_taken().unwrap_or_default()
    }
}

#[test]
fn a_module_knows_how_old_is_what_it_inherits() {
    let mut env = Env::new(version("ages", Does::WeighsAge));
    // Saved 7 us after the machine's start, by another agent.
    assert_eq!(env.tick(), Tick::Staged(vec![999], true));
    assert_eq!(env.tick(), Tick::Staged(vec![999], false), "it is the age at the instance's start");
    let mut env = Env::new(version("ages", Does::WeighsAge));
    env.policies.running[0].begin_with(&SavedState { bytes: SAVED.to_vec(), at: None });
    assert_eq!(env.tick(), Tick::Staged(vec![9999], true));
}

#[test]
fn a_policy_is_evaluated_at_once_when_an_object_changes_that_it_reads() {
    use qosm_engine::{Cause, Interface};

    for (does, changed, expected) in [
        (Does::Reads("cluster-config"), Interface::ClusterConfig, Some(Cause::ConfigChanged)),
        (Does::Reads("node-object"), Interface::NodeObject, Some(Cause::ConfigChanged)),
        (Does::Reads("node-object"), Interface::ClusterConfig, None),
        (Does::Idles, Interface::NodeObject, None),
    ] {
        let mut env = Env::new(version("first", does));
        env.tick();
        let due = |env: &Env| env.policies.due(env.now()).pop().map(|(_, cause)| cause);
        assert_eq!(due(&env), None, "between two intervals");
        env.policies.objects_changed(&[changed]);
        assert_eq!(due(&env), expected, "{does:?} {changed}");
        if expected.is_some() {
            assert_eq!(env.tick(), Tick::Staged(vec![], false));
            assert_eq!(due(&env), None, "once");
        }
    }
}

#[test]
fn a_version_counts_at_its_policys_turn_after_one_evaluation_without_effect() {
    let mut env = Env::new(version("first", Does::Weighs(100)));
    assert_eq!(env.tick(), Tick::Staged(vec![100], true));
    env.ask_for(&[&version("second", Does::Weighs(200))]);
    assert_eq!(env.not_taken(), "generation 7 is not there yet: it is evaluated once before it counts");
    assert_eq!(env.tick(), Tick::Staged(vec![100], false), "the first one counts");
    assert_eq!(env.runs(), "first");
    // What the version staged in the dry run takes effect together with what it stages now, and anything else is released.
    assert_eq!(env.tick(), Tick::Staged(vec![200, 200], true));
    assert_eq!((env.runs().as_str(), env.not_taken().as_str()), ("second", ""));
    assert_eq!((env.policy().evaluations, env.policy().failures), (1, 0), "it is counted from its turn on");
    assert_eq!(*env.policy().saved(), saved(), "it begins with what the version before saved");
}

#[test]
fn a_version_that_fails_before_it_counts_is_refused_and_each_tick_has_a_policy_in_charge() {
    // The version fails in its dry run, or at its turn.
    for call in [1, 2] {
        let mut env = Env::new(version("first", Does::Idles));
        env.tick();
        let bad = version("second", Does::TrapsFrom(call));
        env.ask_for(&[&bad]);
        assert!(env.policies.take_version_changes().unwrap().1.is_empty());
        let mut ticks = env.ticks(u64::from(call) + 1);
        assert!(env.not_taken().contains("is not there yet"), "one failure may be the node's fault");
        ticks.extend(env.ticks(5));
        assert!(ticks.iter().all(|tick| *tick == Tick::Staged(vec![], false)), "call {call}: {ticks:?}");
        assert_eq!((env.runs().as_str(), env.policy().failures), ("first", 0), "call {call}");
        let why = env.not_taken();
        assert!(why.starts_with("generation 7 is not taken: its first evaluation, which did not count yet"), "{why}");
        let (_, failed) = env.policies.take_version_changes().unwrap();
        assert_eq!(failed.iter().map(|failed| failed.digest).collect::<Vec<_>>(), [*bad.module.digest()]);
    }
}

#[test]
fn a_refused_version_is_asked_for_in_vain_until_another_one_was() {
    let mut env = Env::new(version("first", Does::Idles));
    env.tick();
    let (bad, good) = (version("second", Does::TrapsFrom(1)), version("third", Does::Idles));
    env.ask_for(&[&bad]);
    env.ticks(6);
    env.ask_for(&[&bad]);
    assert!(env.not_taken().contains("is not taken"), "a set that was made before the failure was known");
    let mut mended = bad.clone();
    mended.config.on_failure = OnFailure::Release;
    assert_ne!(mended.config, bad.config);
    env.ask_for(&[&mended]);
    assert!(env.not_taken().contains("is not there yet"), "the same module of another entry may work");
    env.ticks(6);
    env.ask_for(&[&good]);
    env.ticks(2);
    assert_eq!(env.runs(), "third");
    env.ask_for(&[&bad]);
    assert!(env.not_taken().contains("is not there yet"), "an operator wants it tried again");
}

#[test]
fn a_version_that_fails_within_its_rollback_window_gives_way_and_one_that_fails_later_does_not() {
    for (window, expected) in [(60, "first"), (0, "second")] {
        let mut env = Env::new(version("first", Does::Weighs(100)));
        env.config.swaps.rollback_seconds = window;
        env.tick();
        // The version has a dry run, is promoted, and fails from its third call on.
        env.ask_for(&[&version("second", Does::TrapsFrom(3))]);
        env.ticks(2);
        env.policies.take_changes();
        env.tick();
        assert_eq!((env.runs().as_str(), env.policy().failures), ("second", 1), "one may be the node's fault");
        env.ticks(5);
        assert_eq!(env.runs(), expected, "window of {window} s");
        let is_back = expected == "first";
        assert_eq!(env.not_taken().contains("failed within 60 s of taking its place"), is_back, "{}", env.not_taken());
        let changes = env.policies.take_changes();
        let saved = is_back.then(|| (NAME.to_owned(), saved()));
        assert_eq!(changes.saved, Vec::from_iter(saved), "what the version before had saved counts again");
        assert_eq!(changes.reach, is_back);
    }
}

#[test]
fn a_version_that_comes_back_says_all_that_it_wants() {
    let mut env = Env::new(version("first", Does::Weighs(100)));
    env.tick();
    env.ask_for(&[&version("second", Does::TrapsFrom(3))]);
    let ticks = env.ticks(12);
    let promoted = ticks.iter().position(|tick| *tick == Tick::Staged(vec![], true)).unwrap();
    let back = ticks.iter().position(|tick| *tick == Tick::Staged(vec![100], true)).unwrap();
    assert!(promoted < back, "{ticks:?}");
    assert_eq!(env.runs(), "first");
}

#[test]
fn a_version_is_verified_when_its_window_is_over() {
    let mut env = Env::new(version("first", Does::Idles));
    env.tick();
    env.ask_for(&[&version("second", Does::Idles)]);
    env.ticks(2);
    for (ticks, before, is_verified) in [(58, Some("first"), false), (3, None, true)] {
        env.ticks(ticks);
        env.policies.changes.versions = true;
        let (running, _) = env.policies.take_version_changes().unwrap();
        let running = &running[NAME];
        let falls_back_to = running.before.as_ref().map(|before| before.description.name.as_str());
        assert_eq!((falls_back_to, running.is_verified), (before, is_verified));
    }
}

#[test]
fn within_a_window_the_version_to_go_back_to_stays_the_one_that_was_seen_to_work() {
    let first = version("first", Does::Idles);
    for (last, expected) in [(version("third", Does::Idles), Some("first")), (first.clone(), None)] {
        let mut env = Env::new(first.clone());
        env.tick();
        for next in [&version("second", Does::Idles), &last] {
            env.ask_for(&[next]);
            env.ticks(2);
            assert_eq!(env.runs(), next.description.name);
        }
        let (running, _) = env.policies.take_version_changes().unwrap();
        let before = running[NAME].before.as_ref().map(|before| before.description.name.as_str());
        assert_eq!(before, expected, "after {}", last.description.name);
    }
}

#[test]
fn what_a_version_wanted_for_a_pod_that_left_before_its_turn_is_dropped() {
    let mut env = Env::new(version("first", Does::Idles));
    env.tick();
    env.ask_for(&[&version("second", Does::Weighs(200))]);
    env.tick();
    let changes = env.pods.update(Vec::new());
    for entry in changes.removed {
        env.policies.forget_pod(entry.id);
    }
    assert_eq!(env.tick(), Tick::Staged(vec![], true));
    assert_eq!(env.runs(), "second");
}

#[test]
fn only_another_module_is_tried_out_and_only_what_changes_its_weight_or_reach_starts_anew() {
    let first = version("first", Does::Weighs(100));
    let with = |change: fn(&mut PolicyConfig)| {
        let mut next = first.clone();
        change(&mut next.config);
        next
    };
    let (goes_on, starts_anew) = (Tick::Staged(vec![100], false), Tick::Staged(vec![100], true));
    for (next, expected) in [
        (with(|_| ()), &goes_on),
        (with(|entry| entry.on_failure = OnFailure::Release), &goes_on),
        (with(|entry| entry.interval_millis = Some(500)), &goes_on),
        (with(|entry| entry.priority = 7), &starts_anew),
        (with(|entry| entry.grants.get_or_insert_default().push("tiers".to_owned())), &starts_anew),
        (with(|entry| entry.memory_mib = Some(48)), &starts_anew),
    ] {
        let mut env = Env::new(first.clone());
        env.tick();
        env.policies.take_changes();
        env.ask_for(&[&next]);
        assert_eq!(env.tick(), *expected, "{:?}", next.config);
        assert!(env.policies.take_changes().released.is_empty(), "its leases stay until it has spoken");
        assert_eq!(*env.policy().saved(), saved());
    }
}

#[test]
fn a_policy_that_is_gone_or_put_into_the_shadow_releases_what_it_holds() {
    let first = version("first", Does::Weighs(100));
    let mut shadow = first.clone();
    shadow.config.mode = crate::config::PolicyMode::Shadow;
    for set in [&[][..], &[&shadow]] {
        let mut env = Env::new(first.clone());
        env.tick();
        env.policies.take_changes();
        env.ask_for(set);
        assert_eq!(env.policies.take_changes().released, [NAME.into()]);
    }
}

#[test]
fn an_entry_with_a_grant_that_does_not_exist_is_named_and_the_others_run() {
    let mut env = Env::new(version("first", Does::Idles));
    let mut other = version("second", Does::Idles);
    other.config.name = "other".to_owned();
    other.config.grants = Some(vec!["cpu-wieght".to_owned()]);
    env.ask_for(&[&version("first", Does::Idles), &other]);
    let load_failed: Vec<_> = env.policies.load_failed().iter().map(|policy| policy.policy.as_str()).collect();
    assert_eq!((load_failed, env.policies.iter().count()), (vec!["other"], 1));
    assert!(env.policies.load_failed()[0].error.contains("`cpu-wieght`"));
}

#[test]
fn a_policy_that_fails_waits_longer_each_time_and_is_parked_with_its_leases_or_without() {
    for (on_failure, parked) in [(OnFailure::Keep, Tick::Nothing), (OnFailure::Release, Tick::Released)] {
        let mut first = version("first", Does::TrapsFrom(1));
        first.config.on_failure = on_failure;
        let mut env = Env::new(first);
        let mut tried = Vec::new();
        let mut last = Tick::Nothing;
        while !matches!(env.policy().health, Health::Parked { .. }) {
            let before = env.policy().failures;
            last = env.tick();
            if env.policy().failures > before {
                tried.push(env.seconds);
            }
        }
        assert_eq!(tried, [1, 2, 4, 8, 16]);
        assert_eq!(last, parked);
        assert!(env.ticks(100).iter().all(|tick| *tick == Tick::Nothing));
        assert_eq!(env.policy().failures, 5);
        env.seconds += 500;
        env.tick();
        assert_eq!(env.policy().failures, 6, "after ten minutes it is tried again");
    }
}

#[test]
fn a_parked_policy_is_tried_again_when_an_operator_asks_for_it() {
    let mut env = Env::new(version("first", Does::TrapsFrom(1)));
    env.ticks(16);
    assert_eq!(env.policy().health.as_str(), "parked");
    assert!(!env.policies.retry("unknown"));
    assert!(env.policies.retry(NAME));
    env.tick();
    assert_eq!((env.policy().health.as_str(), env.policy().failures), ("backing-off", 6));
}

#[test]
fn a_policy_that_starts_anew_after_a_failure_says_all_that_it_wants() {
    let mut env = Env::new(version("first", Does::TrapsFrom(2)));
    assert_eq!(env.ticks(3), [Tick::Staged(vec![], true), Tick::Nothing, Tick::Staged(vec![], true)]);
    assert_eq!(env.policy().health, Health::Running);
}

#[test]
fn problems_that_a_policy_reported_go_when_it_fails() {
    let mut env = Env::new(version("first", Does::ReportsUntil(2)));
    env.tick();
    assert_eq!(env.policy().key_problems.len(), 1);
    assert!(env.policies.take_key_problem_changes());
    env.tick();
    assert_eq!((env.policy().failures, env.policy().key_problems.len()), (1, 0));
    assert!(env.policies.take_key_problem_changes());
    assert!(!env.policies.take_key_problem_changes());
}

#[test]
fn problems_that_a_version_reported_go_with_it() {
    let mut env = Env::new(version("first", Does::ReportsUntil(99)));
    env.tick();
    env.policies.take_key_problem_changes();
    env.ask_for(&[&version("second", Does::TrapsFrom(3))]);
    env.ticks(2);
    assert_eq!((env.runs().as_str(), env.changes_problems), ("second", true), "the second one reports none");

    env.policies.take_changes();
    env.ticks(6);
    assert_eq!((env.runs().as_str(), env.policies.take_changes().problems), ("first", true), "it came back");
}

//! Prometheus metrics of the agent. Labels are small closed sets, no pod and no UID, except for the optional series
//! of `containers`.

pub(crate) mod containers;
mod process;
mod text;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode_registry;
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry, Unit};
use qosm_engine::{CONTRACT_VERSION, Interface};
use qosm_host::OwnUse;
use qosm_model::alarm::Trigger;
use qosm_model::knob::Knob;
use qosm_model::lease::Leases;
use qosm_model::node_resource::ResourceState;
use qosm_model::numa::MigrationProgress;
use qosm_model::resctrl::ClassOutcome;
use qosm_nri::StartOutcome;

use crate::config::PolicyMode;
use crate::policy::{Health, Policy};
use crate::policy_set::resolved::LoadFailed;
use crate::shadow::{Comparison, Kind};

use self::process::Process;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PolicyLabels {
    policy: String,
    mode: &'static str,
}

impl PolicyLabels {
    fn of(policy: &Arc<str>, mode: PolicyMode) -> Self {
        Self { policy: policy.to_string(), mode: mode.as_str() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

/// Result of asking a registry for an artefact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PullResult {
    /// The artefact was fetched.
    Fetched,
    /// A tag was looked up, and stands for the artefact in the store.
    Unchanged,
    /// The artefact could not be fetched, or is another one than asked for.
    Failed,
    /// The artefact is not signed as the trust rules ask for.
    Untrusted,
}

impl PullResult {
    fn as_str(self) -> &'static str {
        match self {
            Self::Fetched => "fetched",
            Self::Unchanged => "unchanged",
            Self::Failed => "failed",
            Self::Untrusted => "untrusted",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ModuleLabels {
    policy: String,
    mode: &'static str,
    module: String,
    digest: String,
    artifact: String,
    trusted: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TriggerLabel {
    trigger: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AgreementLabels {
    policy: String,
    knob: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DifferenceLabels {
    policy: String,
    knob: &'static str,
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WriteLabels {
    knob: &'static str,
    policy: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusalLabels {
    knob: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DriftLabels {
    knob: &'static str,
    writer: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ColumnLabel {
    column: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ErrnoLabel {
    errno: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WhenLabel {
    when: &'static str,
}

/// A histogram of ratios between 0 and 1.
fn shares() -> Histogram {
    Histogram::new([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99])
}

/// Buckets for waits that should be milliseconds and may be a second: fine enough to estimate a 99th percentile in between.
const SECONDS: [f64; 13] = [0.000_05, 0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0];

fn seconds() -> Histogram {
    Histogram::new(SECONDS)
}

/// The registered metrics, and the names under which they are printed.
#[derive(Debug, Default)]
struct Catalogue {
    registry: Registry,
    names: Vec<String>,
}

impl Catalogue {
    const PREFIX: &str = "qosm";

    fn register(&mut self, name: &str, help: &str, metric: impl Metric) {
        self.names.push(Self::printed(name, metric.metric_type()));
        self.registry.register(name, help, metric);
    }

    fn register_seconds(&mut self, name: &str, help: &str, metric: impl Metric) {
        self.names.push(Self::printed(&format!("{name}_{}", Unit::Seconds.as_str()), metric.metric_type()));
        self.registry.register_with_unit(name, help, Unit::Seconds, metric);
    }

    /// The name as scraped; for a histogram, the common part of its three series' names.
    fn printed(name: &str, kind: MetricType) -> String {
        let suffix = match kind {
            MetricType::Counter => "_total",
            MetricType::Info => "_info",
            _ => "",
        };
        format!("{}_{name}{suffix}", Self::PREFIX)
    }
}

/// All metrics of the agent. Shared with the endpoint that serves them.
#[derive(Debug)]
pub struct Metrics {
    catalogue: Catalogue,
    process: Process,
    step: Histogram,
    ticks: Counter,
    evaluation: Family<PolicyLabels, Histogram, fn() -> Histogram>,
    column: Family<ColumnLabel, Histogram, fn() -> Histogram>,
    failures: Family<PolicyLabels, Counter>,
    log_dropped: Family<PolicyLabels, Counter>,
    modules: Family<ModuleLabels, Gauge>,
    pulls: Family<ResultLabels, Counter>,
    swaps: Family<ResultLabels, Counter>,
    running: Family<PolicyLabels, Gauge>,
    behind: Family<PolicyLabels, Gauge>,
    leases: Family<PolicyLabels, Gauge>,
    remarks: Family<PolicyLabels, Gauge>,
    writes: Family<WriteLabels, Counter>,
    refusals: Family<RefusalLabels, Counter>,
    drift: Family<DriftLabels, Counter>,
    events: Family<KindLabel, Counter>,
    pods: Gauge,
    containers: Gauge,
    problems: Gauge,
    journal_failures: Counter<u64, AtomicU64>,
    alarms: Family<TriggerLabel, Counter>,
    runtime_connected: Gauge,
    starts: Family<OutcomeLabel, Counter>,
    start_wait: Histogram,
    adjustments: Counter,
    watches: Gauge,
    watches_missing: Gauge,
    agreements: Family<AgreementLabels, Counter>,
    differences: Family<DifferenceLabels, Counter>,
    pages_moved: Counter,
    pages_failed: Family<ErrnoLabel, Counter>,
    migrations: Family<StateLabel, Counter>,
    evictions: Family<OutcomeLabel, Counter>,
    resources: Family<StateLabel, Gauge>,
    classes: Family<StateLabel, Gauge>,
    class_threads_moved: Counter,
    migration_busy: Counter<f64, AtomicU64>,
    migration_local: Family<WhenLabel, Histogram>,
    local_pages: Gauge,
    remote_pages: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        let catalogue = Catalogue { registry: Registry::with_prefix(Catalogue::PREFIX), names: Vec::new() };
        let step = seconds();
        let ticks = Counter::default();
        let evaluation = Family::new_with_constructor(seconds as fn() -> Histogram);
        let column = Family::new_with_constructor(seconds as fn() -> Histogram);
        let start_wait = seconds();
        let mut metrics = Self {
            step: step.clone(),
            ticks: ticks.clone(),
            evaluation: evaluation.clone(),
            column: column.clone(),
            failures: Family::default(),
            log_dropped: Family::default(),
            modules: Family::default(),
            pulls: Family::default(),
            swaps: Family::default(),
            running: Family::default(),
            behind: Family::default(),
            leases: Family::default(),
            remarks: Family::default(),
            writes: Family::default(),
            refusals: Family::default(),
            drift: Family::default(),
            events: Family::default(),
            pods: Gauge::default(),
            containers: Gauge::default(),
            problems: Gauge::default(),
            journal_failures: Counter::default(),
            alarms: Family::default(),
            runtime_connected: Gauge::default(),
            starts: Family::default(),
            start_wait: start_wait.clone(),
            adjustments: Counter::default(),
            watches: Gauge::default(),
            watches_missing: Gauge::default(),
            agreements: Family::default(),
            differences: Family::default(),
            pages_moved: Counter::default(),
            pages_failed: Family::default(),
            evictions: Family::default(),
            resources: Family::default(),
            migrations: Family::default(),
            classes: Family::default(),
            class_threads_moved: Counter::default(),
            migration_busy: Counter::default(),
            migration_local: Family::new_with_constructor(shares as fn() -> Histogram),
            local_pages: Gauge::default(),
            remote_pages: Gauge::default(),
            catalogue,
            process: Process::new(),
        };
        let r = &mut metrics.catalogue;
        let build = [("version", env!("CARGO_PKG_VERSION").to_owned()), ("contract", CONTRACT_VERSION.to_string())];
        r.register("build", "The agent's version, and the contract that it speaks", Info::new(build.to_vec()));
        // Printed only if series of containers are turned on.
        r.names.extend(containers::NAMES.map(str::to_owned));
        r.register_seconds("step", "One step of the loop, all phases", step);
        r.register("ticks", "Steps by the clock; other steps are caused by alarms or changes", ticks);
        r.register_seconds("policy_evaluation", "One evaluation of a policy", evaluation);
        r.register_seconds("column_read", "Reading one column of all containers", column);
        r.register(
            "policy_module",
            "1 for each policy, with its module and why that is trusted",
            metrics.modules.clone(),
        );
        r.register("module_pulls", "Requests for artefacts to registries", metrics.pulls.clone());
        r.register(
            "policy_swaps",
            "Module versions that came into force, were refused, or were rolled back",
            metrics.swaps.clone(),
        );
        r.register("policy_failures", "Evaluations that were discarded", metrics.failures.clone());
        r.register(
            "policy_log_lines_dropped",
            "Lines of a module's log that were not written, because it logs too much",
            metrics.log_dropped.clone(),
        );
        r.register(
            "policy_running",
            "1 while the policy is evaluated, 0 while it backs off, is parked or could not be loaded",
            metrics.running.clone(),
        );
        r.register(
            "policy_behind",
            "1 while the policy goes on with an earlier specification, because the newest cannot be loaded",
            metrics.behind.clone(),
        );
        r.register(
            "leases",
            "Leases of a policy, or of a shadow, whether or not they are in force",
            metrics.leases.clone(),
        );
        r.register(
            "remarks",
            "Settings that the last evaluation of a policy wanted and did not make; `qosm explain` has the reasons",
            metrics.remarks.clone(),
        );
        r.register("knob_writes", "Writes to the kernel", metrics.writes.clone());
        r.register(
            "knob_refusals",
            "Settings not in force: the errno of the kernel, or unavailable",
            metrics.refusals.clone(),
        );
        r.register("knob_drift", "Held knobs that another writer changed", metrics.drift.clone());
        r.register("pod_events", "Events for the owners of pods", metrics.events.clone());
        r.register(
            "runtime_connected",
            "1 while the container runtime tells by NRI which containers start",
            metrics.runtime_connected.clone(),
        );
        r.register(
            "container_starts",
            "Containers whose first instruction waited for their settings, by outcome",
            metrics.starts.clone(),
        );
        r.register_seconds("container_start_wait", "Wait of containers for their settings", start_wait);
        r.register(
            "runtime_adjustments",
            "Containers whose resources another NRI plug-in changed",
            metrics.adjustments.clone(),
        );
        r.register("pods", "Pods that are known", metrics.pods.clone());
        r.register("containers", "Containers whose cgroup is open", metrics.containers.clone());
        r.register(
            "config_problems",
            "Annotations, ConfigMaps and manifests that cannot be used as written",
            metrics.problems.clone(),
        );
        r.register("migration_pages_moved", "Pages moved to the NUMA node of their CPUs", metrics.pages_moved.clone());
        r.register(
            "migration_pages_failed",
            "Pages that stay where they are: the errno of the kernel, or no-room",
            metrics.pages_failed.clone(),
        );
        r.register("migrations", "Migrations that ended, by outcome", metrics.migrations.clone());
        r.register("evictions", "Evictions that policies requested, by outcome", metrics.evictions.clone());
        r.register("published_resources", "Extended resources of the node", metrics.resources.clone());
        r.register_seconds(
            "migration_busy",
            "Time spent on moving pages, without pauses",
            metrics.migration_busy.clone(),
        );
        r.register(
            "migration_local_ratio",
            "Share of a container's pages that are local, before and after a migration",
            metrics.migration_local.clone(),
        );
        r.register(
            "numa_local_pages",
            "Pages on the NUMA nodes of their containers' CPUs, of pods whose locality is watched",
            metrics.local_pages.clone(),
        );
        r.register(
            "numa_remote_pages",
            "Pages on other NUMA nodes, of pods whose locality is watched",
            metrics.remote_pages.clone(),
        );
        r.register("resctrl_classes", "Classes of shares of caches and memory bandwidth", metrics.classes.clone());
        r.register(
            "resctrl_threads_moved",
            "Threads moved into the groups of classes; new threads start in the group of their parent",
            metrics.class_threads_moved.clone(),
        );
        r.register("alarms", "Triggers that fired, by what they watch", metrics.alarms.clone());
        r.register(
            "watches",
            "Pressure thresholds, event counts and cgroup directories that are watched",
            metrics.watches.clone(),
        );
        r.register(
            "watches_missing",
            "Requested watches that are not possible on this node",
            metrics.watches_missing.clone(),
        );
        r.register("journal_failures", "Commits that the journal refused", metrics.journal_failures.clone());
        r.register(
            "shadow_agreements",
            "Knobs, summed over ticks, for which a shadow asked what is asked for without it",
            metrics.agreements.clone(),
        );
        r.register(
            "shadow_differences",
            "Knobs, summed over ticks, for which a shadow asked something else: another value, or one asks and the other does not",
            metrics.differences.clone(),
        );
        metrics.begin_at_zero();
        metrics
    }
}

impl Metrics {
    /// Creates the series whose labels are known in advance: the first count is an increase only if the series was there with 0 before.
    fn begin_at_zero(&self) {
        for result in [PullResult::Fetched, PullResult::Unchanged, PullResult::Failed, PullResult::Untrusted] {
            drop(self.pulls.get_or_create(&ResultLabels { result: result.as_str() }));
        }
        for result in ["switched", "refused", "rolled-back"] {
            drop(self.swaps.get_or_create(&ResultLabels { result }));
        }
        for knob in Knob::ALL {
            for writer in ["kubelet", "reset", "sync", "person", "fight", "settled"] {
                drop(self.drift.get_or_create(&DriftLabels { knob: knob.kind_name(), writer }));
            }
            // The errors with which kernels refuse values; other reasons are rare, and their series begin with the first refusal.
            for reason in ["EINVAL", "EBUSY", "EPERM", "EACCES", "EIO"] {
                drop(self.refusals.get_or_create(&RefusalLabels { knob: knob.kind_name(), reason }));
            }
        }
        for kind in ["Normal", "Warning"] {
            drop(self.events.get_or_create(&KindLabel { kind }));
        }
        for trigger in ["throttling", "pressure", "memory-events", "container-started"] {
            drop(self.alarms.get_or_create(&TriggerLabel { trigger }));
        }
        for outcome in ["in-time", "late", "skipped", "unknown-pod"] {
            drop(self.starts.get_or_create(&OutcomeLabel { outcome }));
        }
        for errno in ["EPERM", "EACCES", "no-room"] {
            drop(self.pages_failed.get_or_create(&ErrnoLabel { errno }));
        }
        for state in ["done", "failed", "stopped"] {
            drop(self.migrations.get_or_create(&StateLabel { state }));
        }
        for outcome in ["pending", "accepted", "refused", "gone", "killed", "failed"] {
            drop(self.evictions.get_or_create(&OutcomeLabel { outcome }));
        }
        for state in ["in-force", "not-in-force"] {
            drop(self.classes.get_or_create(&StateLabel { state }));
            drop(self.resources.get_or_create(&StateLabel { state }));
        }
    }

    /// The content type and text of a scrape, in the format that the request's `Accept` asks for. `more` are additional series from
    /// [`containers::text`].
    pub fn text(&self, accept: &str, more: &str) -> (&'static str, String) {
        let mut text = more.to_owned();
        // Writing to a String does not fail.
        let _ = encode_registry(&mut text, &self.catalogue.registry);
        let _ = encode_registry(&mut text, self.process.registry());
        if accept.contains(text::OPEN_METRICS) {
            text.push_str("# EOF\n");
            return (text::OPEN_METRICS_TYPE, text);
        }
        (text::PROMETHEUS_TYPE, text::prometheus(&text))
    }

    /// Sets the CPU time and memory that the agent itself uses.
    pub(crate) fn process(&self, own: OwnUse) {
        self.process.used(own);
    }

    /// Sets when the agent began, in seconds since the epoch.
    pub(crate) fn started(&self, seconds: f64) {
        self.process.started(seconds);
    }

    /// The names of all metrics, whether or not there is anything to be printed yet.
    pub fn names(&self) -> &[String] {
        &self.catalogue.names
    }

    pub(crate) fn tick(&self) {
        self.ticks.inc();
    }

    pub(crate) fn step(&self, seconds: f64, (pods, running): (usize, usize), leases: &Leases, policies: &[Policy]) {
        self.step.observe(seconds);
        self.pods.set(count(pods));
        self.containers.set(count(running));
        for policy in policies {
            let label = PolicyLabels::of(policy.name(), policy.mode());
            drop(self.failures.get_or_create(&label));
            self.leases.get_or_create(&label).set(count(policy.count(leases)));
            self.remarks.get_or_create(&label).set(count(policy.remarks.len()));
            self.running.get_or_create(&label).set(i64::from(policy.health == Health::Running));
            let is_behind = policy.pending_update.as_ref().is_some_and(|pending_update| !pending_update.is_pending);
            self.behind.get_or_create(&label).set(i64::from(is_behind));
        }
    }

    pub(crate) fn evaluation(&self, policy: &Arc<str>, mode: PolicyMode, seconds: f64) {
        self.evaluation.get_or_create(&PolicyLabels::of(policy, mode)).observe(seconds);
    }

    /// Removes the gauges of a policy that is gone; its counters stay.
    pub(crate) fn unload(&self, policy: &Arc<str>, mode: PolicyMode) {
        let label = PolicyLabels::of(policy, mode);
        self.leases.remove(&label);
        self.remarks.remove(&label);
        self.running.remove(&label);
        self.behind.remove(&label);
    }

    /// Sets policies that could not be loaded to not running.
    pub(crate) fn load_failed(&self, before: &[LoadFailed], now: &[LoadFailed]) {
        let label = |policy: &LoadFailed| PolicyLabels::of(&Arc::from(policy.policy.as_str()), policy.mode);
        for policy in before {
            self.running.remove(&label(policy));
        }
        for policy in now {
            self.running.get_or_create(&label(policy)).set(0);
        }
    }

    /// Sets which modules run.
    pub(crate) fn modules(&self, policies: &[Policy]) {
        self.modules.clear();
        for policy in policies {
            let artifact = policy.origin.artifact.as_ref();
            let labels = ModuleLabels {
                policy: policy.name().to_string(),
                mode: policy.mode().as_str(),
                module: policy.origin.reference.to_string(),
                digest: policy.module.digest().to_string(),
                artifact: artifact.map(|(digest, _)| digest.to_string()).unwrap_or_default(),
                trusted: artifact.map(|(_, trusted)| trusted.to_string()).unwrap_or_default(),
            };
            self.modules.get_or_create(&labels).set(1);
        }
    }

    /// Counts a request for an artefact.
    pub(crate) fn pulled(&self, result: PullResult) {
        self.pulls.get_or_create(&ResultLabels { result: result.as_str() }).inc();
    }

    /// Counts a swap: `switched`, `refused` or `rolled-back`.
    pub(crate) fn swapped(&self, result: &'static str) {
        self.swaps.get_or_create(&ResultLabels { result }).inc();
    }

    pub(crate) fn failure(&self, policy: &Arc<str>, mode: PolicyMode) {
        self.failures.get_or_create(&PolicyLabels::of(policy, mode)).inc();
    }

    /// Counts dropped lines of a policy's log.
    pub(crate) fn log_dropped(&self, policy: &Arc<str>, mode: PolicyMode, lines: u64) {
        if lines > 0 {
            self.log_dropped.get_or_create(&PolicyLabels::of(policy, mode)).inc_by(lines);
        }
    }

    /// Counts one tick's comparison of a shadow.
    pub(crate) fn compared(&self, policy: &Arc<str>, comparison: &Comparison) {
        for (&knob, counts) in &comparison.counts {
            let agreements = AgreementLabels { policy: policy.to_string(), knob: knob.kind_name() };
            self.agreements.get_or_create(&agreements).inc_by(counts.agreed);
            for kind in Kind::ALL {
                let labels =
                    DifferenceLabels { policy: policy.to_string(), knob: knob.kind_name(), kind: kind.as_str() };
                self.differences.get_or_create(&labels).inc_by(counts.of(kind));
            }
        }
    }

    pub(crate) fn column(&self, column: Interface, seconds: f64) {
        self.column.get_or_create(&ColumnLabel { column: column.to_string() }).observe(seconds);
    }

    pub(crate) fn write(&self, knob: Knob, policy: &Arc<str>) {
        self.writes.get_or_create(&WriteLabels { knob: knob.kind_name(), policy: policy.to_string() }).inc();
    }

    pub(crate) fn refusal(&self, knob: Knob, reason: &'static str) {
        self.refusals.get_or_create(&RefusalLabels { knob: knob.kind_name(), reason }).inc();
    }

    pub(crate) fn drift(&self, knob: Knob, writer: &'static str) {
        self.drift.get_or_create(&DriftLabels { knob: knob.kind_name(), writer }).inc();
    }

    pub(crate) fn event(&self, kind: &'static str) {
        self.events.get_or_create(&KindLabel { kind }).inc();
    }

    pub(crate) fn problems(&self, problems: usize) {
        self.problems.set(count(problems));
    }

    pub(crate) fn locality(&self, local: u64, remote: u64) {
        self.local_pages.set(i64::try_from(local).unwrap_or(i64::MAX));
        self.remote_pages.set(i64::try_from(remote).unwrap_or(i64::MAX));
    }

    /// Counts the progress of a migration since `before`.
    pub(crate) fn migration(&self, before: &MigrationProgress, now: &MigrationProgress) {
        self.pages_moved.inc_by(now.pages_moved.saturating_sub(before.pages_moved));
        for &(errno, pages) in &now.pages_failed {
            let known = before.pages_failed.iter().find(|(known, _)| *known == errno).map_or(0, |(_, pages)| *pages);
            self.pages_failed.get_or_create(&ErrnoLabel { errno }).inc_by(pages.saturating_sub(known));
        }
        let without_room = now.pages_without_room.saturating_sub(before.pages_without_room);
        if without_room > 0 {
            self.pages_failed.get_or_create(&ErrnoLabel { errno: "no-room" }).inc_by(without_room);
        }
        let busy = std::time::Duration::from_micros(now.busy.0.saturating_sub(before.busy.0));
        self.migration_busy.inc_by(busy.as_secs_f64());
        if now.state.has_ended() && !before.state.has_ended() {
            self.migrations.get_or_create(&StateLabel { state: now.state.as_str() }).inc();
        }
    }

    /// Counts a trigger that fired.
    pub(crate) fn alarm(&self, trigger: &Trigger) {
        self.alarms.get_or_create(&TriggerLabel { trigger: trigger.kind() }).inc();
    }

    /// Sets whether the container runtime is connected by NRI.
    pub(crate) fn runtime_connected(&self, is_connected: bool) {
        self.runtime_connected.set(i64::from(is_connected));
    }

    /// Counts a container whose start waited for its settings, and how long it waited.
    pub(crate) fn container_start(&self, outcome: StartOutcome, waited_seconds: f64) {
        self.starts.get_or_create(&OutcomeLabel { outcome: outcome.as_str() }).inc();
        self.start_wait.observe(waited_seconds);
    }

    /// Counts a container that started and whose pod no source knows yet.
    pub(crate) fn unknown_start(&self) {
        self.starts.get_or_create(&OutcomeLabel { outcome: "unknown-pod" }).inc();
    }

    /// Counts a container whose resources another NRI plug-in changed.
    pub(crate) fn adjusted(&self) {
        self.adjustments.inc();
    }

    /// Sets the number of watches, and the number of those that cannot be set up.
    pub(crate) fn watches(&self, watched: usize, missing: usize) {
        self.watches.set(i64::try_from(watched).unwrap_or(i64::MAX));
        self.watches_missing.set(i64::try_from(missing).unwrap_or(i64::MAX));
    }

    /// Records the share of a container's local pages, in percent, when a migration began or ended.
    pub(crate) fn migration_local(&self, when: &'static str, percent: u64) {
        let percent = u32::try_from(percent).unwrap_or(100);
        self.migration_local.get_or_create(&WhenLabel { when }).observe(f64::from(percent) / 100.0);
    }

    /// Sets the numbers of classes in force and not in force, and counts the threads that were moved.
    pub(crate) fn classes(&self, outcomes: &[ClassOutcome]) {
        let in_force = outcomes.iter().filter(|outcome| outcome.in_force).count();
        for (state, classes) in [("in-force", in_force), ("not-in-force", outcomes.len() - in_force)] {
            self.classes.get_or_create(&StateLabel { state }).set(count(classes));
        }
        let moved = outcomes.iter().map(|outcome| outcome.threads_moved).sum::<usize>();
        self.class_threads_moved.inc_by(u64::try_from(moved).unwrap_or(u64::MAX));
    }

    /// Counts an eviction by its new outcome, or as `failed` if the node could not end the pod.
    pub(crate) fn eviction(&self, outcome: &'static str) {
        self.evictions.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    /// Sets the numbers of published resources in force and not in force.
    pub(crate) fn resources(&self, states: &[(Arc<str>, ResourceState)]) {
        let in_force = states.iter().filter(|(_, state)| state.in_force).count();
        for (state, resources) in [("in-force", in_force), ("not-in-force", states.len() - in_force)] {
            self.resources.get_or_create(&StateLabel { state }).set(count(resources));
        }
    }

    pub(crate) fn journal_failure(&self) {
        self.journal_failures.inc();
    }
}

fn count(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

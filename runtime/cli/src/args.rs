//! The command line. Help and completions are generated from these types.

mod ask;
mod author;
mod policy;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use jiff::SignedDuration;
use qosm_agent::config::MountPoint;
use qosm_terminal::log::LogFormat;
use qosm_terminal::manual::ManualArgs;
pub(crate) use qosm_terminal::{Output, OutputArgs};

pub(crate) use self::ask::*;
pub(crate) use self::author::*;
pub(crate) use self::policy::*;

/// QoS policies as WebAssembly modules: memory QoS and CPU Burst for the pods of this node.
#[derive(Debug, Parser)]
#[command(name = "qosm", version, after_help = qosm_terminal::EXIT_CODES, propagate_version = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the agent on this node.
    #[command(
        after_help = "Examples:\n  qosm agent --kubernetes --node-name \"$NODE_NAME\"\n  qosm agent --pods /etc/qosm/pods --config /etc/qosm/slo.yaml --create-cgroups    # a host without Kubernetes"
    )]
    Agent(Box<AgentArgs>),
    /// Run the controller of a cluster: count which nodes run which modules, and report problems of PolicyModules and ConfigMaps; with
    /// --colocation, publish extended resources and evict pods.
    #[command(
        after_help = "Examples:\n  qosm controller\n  qosm controller --colocation --publish kubernetes.io/batch-cpu --publish kubernetes.io/batch-memory"
    )]
    Controller(ControllerArgs),
    /// Show how far changes of PolicyModules have reached the nodes of a cluster.
    #[command(subcommand)]
    Rollout(RolloutCommand),
    /// Print the CustomResourceDefinitions of this version.
    #[command(after_help = "Example:\n  qosm crds | kubectl apply --server-side -f -")]
    Crds {
        /// Print only this one.
        #[arg(value_parser = ["policymodules", "nodepolicyreports"])]
        name: Option<String>,
    },
    /// Show what the agent would write, and why, without writing anything.
    #[command(
        after_help = "Examples:\n  qosm plan --facts examples/plan/node.yaml\n  qosm plan --pods /etc/qosm/pods --config slo.yaml -o json\n\nExit codes: 0 everything would be written; 1 a setting is refused, something is wrong, or a policy does not run; 2 wrong arguments or input."
    )]
    Plan(PlanArgs),
    /// Play a recording through the policies and print each tick's decisions.
    #[command(
        after_help = "Examples:\n  qosm replay examples/replay/burst.jsonl\n  qosm replay node.jsonl --policy cpu-burst=./candidate.wasm --policy-config cpu-burst='{\"profile\":\"koordinator\"}'\n  qosm replay node.jsonl --policy old.wasm --against new.wasm -o table\n\nExit codes: 0 success, with --against: both versions decide the same; 1 a policy does not run, with --against: or the versions differ; 2 wrong arguments or input."
    )]
    Replay(ReplayArgs),
    #[command(flatten)]
    Ask(AskCommand),
    /// The old name of `pause` and, with --lift, of `resume`.
    #[command(hide = true)]
    Hold(HoldArgs),
    /// Restore every knob to its value before qosm. Works without a running agent, also after a crash; ends a running agent.
    #[command(after_help = "Example:\n  qosm restore --dry-run")]
    Restore(RestoreArgs),
    /// Write policies, inspect modules, publish them.
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Show what this host offers: cgroups, knobs, pressure, NUMA, resctrl, capabilities.
    Doctor(DoctorArgs),
    /// Demonstrate qosm on this machine.
    #[command(subcommand)]
    Demo(DemoCommand),
    /// Emulate resctrl, to try out policies for cache and memory bandwidth without the hardware.
    #[command(subcommand)]
    Resctrl(ResctrlCommand),
    /// Print shell completions. Names of pods, policies and namespaces come from the local agent.
    #[command(after_help = "Example:\n  qosm completions bash > /etc/bash_completion.d/qosm")]
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Print a reference of all verbs, or write pages for `man`.
    #[command(hide = true)]
    Manual(ManualArgs),
    /// Write the seccomp profile of the chart's agents into the kubelet's folder of profiles. The chart runs this in an init container.
    #[command(hide = true)]
    SeccompProfile {
        /// Path of the profile.
        #[arg(long, value_name = "FILE")]
        install: PathBuf,
    },
    /// Relay standard input to the agent's admin socket, and its answer to standard output. `kubectl qosm` starts this in the agent's
    /// container.
    #[command(hide = true)]
    Relay(SocketArgs),
    /// Move pages between NUMA nodes for an agent. The agent starts this as a child; the chart runs it as a DaemonSet of its own.
    #[command(hide = true)]
    MovePages(MoverArgs),
    /// Compile a module from standard input. The agent starts this as a short-lived child.
    #[command(hide = true)]
    CompileModule,
}

/// Default path of the agent's admin socket.
pub(crate) const ADMIN_SOCKET: &str = "/run/qosm/qosm.sock";

/// Default path of the agent's state folder.
pub(crate) const STATE_DIR: &str = "/var/lib/qosm";

/// Where the node's own directories are.
#[derive(Debug, Args)]
pub(crate) struct HostArgs {
    /// Where cgroup hierarchies are mounted.
    #[arg(long, default_value = "/sys/fs/cgroup", value_name = "DIR")]
    pub(crate) cgroup_mount: PathBuf,
    /// The kubelet's cgroupRoot: the cgroup in each hierarchy that contains kubepods. If it is not /, qosm ignores all cgroups outside of
    /// it.
    #[arg(long, default_value = "/", value_name = "PATH")]
    pub(crate) cgroup_root: String,
    /// The kubelet's cgroup driver. Default: detected from the cgroup directories.
    #[arg(long, value_enum, value_name = "DRIVER")]
    pub(crate) cgroup_driver: Option<DriverArg>,
    /// The kubelet's folder (its --root-dir, mostly /var/lib/kubelet), for the state of its CPU manager. Pods' secrets are below it; qosm
    /// reads only `cpu_manager_state` (doctor also the configuration and `memory_manager_state`). Default: exclusive CPUs are inferred from
    /// the containers' cpusets.
    #[arg(long, value_name = "DIR")]
    pub(crate) kubelet_root: Option<PathBuf>,
    /// Mount point of resctrl. Default: the one in the kernel's mount table; an emulated resctrl is used only if it is given here.
    #[arg(long, value_name = "PATH")]
    pub(crate) resctrl: Option<MountPoint>,
    /// The proc file system.
    #[arg(long, default_value = "/proc", value_name = "DIR", hide = true)]
    pub(crate) proc: PathBuf,
    /// The sys file system.
    #[arg(long, default_value = "/sys", value_name = "DIR", hide = true)]
    pub(crate) sys: PathBuf,
    /// Writable mount of the node's /proc/sys, or of a part of it, used if it exists. The chart mounts it, since a container's own
    /// /proc/sys is read-only.
    #[arg(long, default_value = "/host/proc/sys", value_name = "DIR", hide = true)]
    pub(crate) sysctl: PathBuf,
}

impl DriverArg {
    /// The value on a command line.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Systemd => "systemd",
            Self::Cgroupfs => "cgroupfs",
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum DriverArg {
    /// Slices and scopes.
    Systemd,
    /// Plain directories.
    Cgroupfs,
}

/// Which modules run.
#[derive(Clone, Debug, Args)]
pub(crate) struct ModuleArgs {
    /// Policy to run: the name of a default module, NAME=FILE, or, except for an agent, FILE (x.wasm, x.tar.gz, or a path with a slash),
    /// named as the module names itself. May be repeated. Default: those of the agent's file or the recording, else the default policies (with --kubernetes,
    /// none).
    #[arg(long = "policy", value_name = "NAME|[NAME=]FILE")]
    pub(crate) policies: Vec<String>,
    /// Policy-level configuration of one policy. May be repeated.
    #[arg(long, value_name = "NAME=JSON")]
    pub(crate) policy_config: Vec<String>,
    /// Interfaces that a policy may import. May be repeated. Without it, a default policy has those that it needs, others none.
    #[arg(long = "grant", value_name = "NAME=INTERFACE,…")]
    pub(crate) grants: Vec<String>,
    /// Folder of the default modules.
    #[arg(long, env = "QOSM_MODULE_DIR", value_name = "DIR")]
    pub(crate) module_dir: Option<PathBuf>,
}

/// How to reach a cluster.
#[derive(Clone, Debug, Args)]
pub(crate) struct ClusterArgs {
    /// Path of the kubeconfig. Default: $KUBECONFIG or ~/.kube/config, else the pod's service account.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
}

/// Flags for a node of a Kubernetes cluster.
#[derive(Clone, Debug, Args)]
pub(crate) struct KubernetesArgs {
    /// Take pods, ConfigMaps and PolicyModules from the API server.
    #[arg(long, requires = "node_name")]
    pub(crate) kubernetes: bool,
    /// The name of this node.
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    pub(crate) node_name: Option<String>,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    /// The DaemonSet that the agent belongs to. With `onShutdown: auto`, held knobs keep their values for the next agent as long as the
    /// DaemonSet wants an agent on this node.
    #[arg(long, value_name = "daemonset/NAMESPACE/NAME", requires = "kubernetes")]
    pub(crate) owner: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ControllerArgs {
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    /// Address of /healthz and /readyz, or `none`.
    #[arg(long, default_value = "127.0.0.1:9465", value_name = "ADDRESS")]
    pub(crate) metrics_listen: MetricsListen,
    /// Format of the log on standard error; its level is set by QOSM_LOG.
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) log_format: LogFormat,
    /// Act only while holding this Lease, so that one of several controllers acts.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = NamespacedName::parse)]
    pub(crate) lease: Option<NamespacedName>,
    /// What to do with the NodeResourceTopologies of nodes whose agents report CPUs.
    #[arg(long, value_enum, value_name = "ACTION")]
    pub(crate) node_topology: Option<NodeTopologyArg>,
    #[command(flatten)]
    pub(crate) colocation: ColocationArgs,
}

/// What the controller does with NodeResourceTopologies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum NodeTopologyArg {
    /// Create them, and keep them as reported. Those of other programs stay unchanged.
    Publish,
    /// Remove those that the controller created.
    Withdraw,
}

/// Flags for what the controller does on request of the agents' reports.
#[derive(Debug, Args)]
#[command(next_help_heading = "Colocation")]
pub(crate) struct ColocationArgs {
    /// Publish extended resources on nodes and evict pods, as the agents' reports request.
    #[arg(long)]
    pub(crate) colocation: bool,
    /// Extended resource that may be published, such as kubernetes.io/batch-cpu. May be repeated. Default: none.
    #[arg(long = "publish", value_name = "RESOURCE", requires = "colocation", value_parser = resource_name)]
    pub(crate) publish: Vec<String>,
    /// Maximum share of a node's CPU or memory that is published under one name.
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) max_percent_of_capacity: u32,
    /// Maximum number of pods of one node that are evicted within a minute.
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    pub(crate) max_evictions_of_node: u32,
    /// Maximum number of pods of one namespace that are evicted within a minute.
    #[arg(long, value_name = "NUMBER", default_value_t = 20)]
    pub(crate) max_evictions_of_namespace: u32,
    /// Maximum number of pods that are evicted within a minute.
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    pub(crate) max_evictions: u32,
    /// Namespace whose pods are never evicted; replaces the default. May be repeated.
    #[arg(long = "protected-namespace", value_name = "NAMESPACE", default_value = "kube-system", value_parser = namespace)]
    pub(crate) protected_namespaces: Vec<String>,
    /// Protect the pods of no namespace.
    #[arg(long, conflicts_with = "protected_namespaces")]
    pub(crate) no_protected_namespaces: bool,
    /// Also evict pods of DaemonSets, although their controller creates them again at once.
    #[arg(long)]
    pub(crate) evict_daemon_set_pods: bool,
}

/// An object's namespace and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamespacedName {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl NamespacedName {
    fn parse(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
                Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            _ => Err("it is not NAMESPACE/NAME".to_owned()),
        }
    }
}

fn namespace(text: &str) -> Result<String, String> {
    qosm_model::namespace::fault(text).map_or_else(|| Ok(text.to_owned()), Err)
}

/// Parses an extended resource's name, which has a domain: names without one are Kubernetes' own, such as `cpu`.
fn resource_name(text: &str) -> Result<String, String> {
    match text.split_once('/') {
        Some((domain, name)) if !domain.is_empty() && !name.is_empty() && !name.contains('/') => Ok(text.to_owned()),
        _ => Err("an extended resource's name is DOMAIN/NAME, such as kubernetes.io/batch-cpu".to_owned()),
    }
}

/// Parses a duration above 0.
fn duration(text: &str) -> Result<SignedDuration, String> {
    let above = text.parse::<SignedDuration>().ok().filter(SignedDuration::is_positive);
    above.ok_or_else(|| "expected a duration above 0, such as 90s, 30m or 24h".to_owned())
}

/// Parses the time between two updates of a screen or page.
fn interval(text: &str) -> Result<SignedDuration, String> {
    let enough = |interval: &SignedDuration| *interval >= SignedDuration::from_millis(200);
    let interval = text.parse::<SignedDuration>().ok().filter(enough);
    interval.ok_or_else(|| "expected a duration of at least 200ms, such as 2s".to_owned())
}

/// Parses the time to wait, of which 0 means that nothing is waited for.
fn wait(text: &str) -> Result<SignedDuration, String> {
    let enough = |wait: &SignedDuration| !wait.is_negative();
    let wait = text.parse::<SignedDuration>().ok().filter(enough);
    wait.ok_or_else(|| "expected a duration of 0 or more, such as 90s or 10m".to_owned())
}

#[derive(Debug, Subcommand)]
pub(crate) enum RolloutCommand {
    /// Show how many nodes run which digest of a module, and why other nodes do not run it yet.
    #[command(
        after_help = "Examples:\n  qosm rollout status cpu-burst\n  qosm rollout status cpu-burst --wait 10m\n\nExit codes: 0 rolled out as far as the PolicyModule says; 1 not yet, or nodes fail; 2 wrong arguments or input."
    )]
    Status(RolloutArgs),
}

#[derive(Debug, Args)]
pub(crate) struct RolloutArgs {
    /// Name of the PolicyModule.
    pub(crate) module: String,
    /// Maximum time to wait for the rollout, such as 90s or 10m.
    #[arg(long, value_name = "DURATION", value_parser = wait)]
    pub(crate) wait: Option<SignedDuration>,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct MoverArgs {
    /// Socket to listen on, for root only. Default: standard input is a socket that is connected to an agent.
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Run this command as a child, and restart it as long as the agent is connected.
    #[arg(long, conflicts_with = "socket")]
    pub(crate) supervise: bool,
    #[command(flatten)]
    pub(crate) host: HostArgs,
    /// Format of the log on standard error; its level is set by QOSM_LOG.
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) log_format: LogFormat,
}

#[derive(Debug, Args)]
pub(crate) struct AgentArgs {
    /// Folder of Pod manifests, watched for changes; for hosts without Kubernetes.
    #[arg(long, value_name = "DIR", required_unless_present = "kubernetes", conflicts_with = "kubernetes")]
    pub(crate) pods: Option<PathBuf>,
    /// File of ConfigMaps and PolicyModules (and a Node), watched for changes. May be repeated.
    #[arg(long, value_name = "FILE", conflicts_with = "kubernetes")]
    pub(crate) config: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) kubernetes: KubernetesArgs,
    /// The agent's configuration file: policies, grants, guard rails, drift, shutdown.
    #[arg(long, value_name = "FILE")]
    pub(crate) agent_config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) modules: ModuleArgs,
    /// Module to run as a shadow: its settings are compared with those of the policy whose module has the same name, and never written. It
    /// needs grants of its own (--grant); see `qosm diff`. May be repeated.
    #[arg(long = "shadow", value_name = "NAME=FILE")]
    pub(crate) shadows: Vec<String>,
    #[command(flatten)]
    pub(crate) host: HostArgs,
    /// Create cgroups in the layout of kubepods for pods that have none, with the pods' CPU and memory limits; for hosts without a kubelet.
    #[arg(long)]
    pub(crate) create_cgroups: bool,
    /// Folder of the journal and of compiled modules.
    #[arg(long, default_value = STATE_DIR, value_name = "DIR")]
    pub(crate) state_dir: PathBuf,
    /// Path of the admin socket, for root only. Its folder is created.
    #[arg(long, default_value = ADMIN_SOCKET, env = "QOSM_ADMIN_SOCKET", value_name = "PATH")]
    pub(crate) admin_socket: PathBuf,
    /// Address of /metrics, /healthz and /readyz, or `none`.
    #[arg(long, default_value = "127.0.0.1:9464", value_name = "ADDRESS")]
    pub(crate) metrics_listen: MetricsListen,
    /// Number of containers that get series of their own in /metrics (throttling, quota, bursts, held memory), the first by name. Labels
    /// contain the pods' names.
    #[arg(long, default_value_t = 0, value_name = "NUMBER", value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(0..=10_000))]
    pub(crate) metrics_containers: usize,
    /// File to which each decision is appended as a line of JSON, in the form of OPA's decision log; `-` = standard output. The agent does
    /// not rotate the file; use logrotate with `copytruncate`.
    #[arg(long, value_name = "FILE")]
    pub(crate) decision_log: Option<PathBuf>,
    /// Interval between ticks in milliseconds, 100 to 60000.
    #[arg(long, default_value_t = 1000, value_name = "MS", value_parser = clap::value_parser!(u64).range(100..=60_000))]
    pub(crate) tick_millis: u64,
    /// What to do with held knobs when the agent ends; overrides the agent's file.
    #[arg(long, value_enum, value_name = "ACTION")]
    pub(crate) on_shutdown: Option<OnShutdownArg>,
    /// Socket of a page mover that runs beside the agent. Default: without --kubernetes, the agent starts a page mover as its child if a
    /// policy may move pages or put containers into core scheduling groups.
    #[arg(long, value_name = "PATH")]
    pub(crate) page_mover: Option<PathBuf>,
    /// Whether the agent gives up the paths, capabilities and system calls that it does not need; overrides the agent's file.
    #[arg(long, value_enum, value_name = "MODE")]
    pub(crate) confine: Option<ConfineArg>,
    /// Format of the log on standard error; its level is set by QOSM_LOG.
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ConfineArg {
    /// Confine the agent as far as the kernel can.
    Auto,
    /// Do not start unless paths, capabilities and system calls can all be confined.
    Require,
    /// Do not confine the agent.
    Off,
}

impl From<ConfineArg> for qosm_agent::config::ConfinementMode {
    fn from(arg: ConfineArg) -> Self {
        match arg {
            ConfineArg::Auto => Self::Auto,
            ConfineArg::Require => Self::Require,
            ConfineArg::Off => Self::Off,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum OnShutdownArg {
    /// Restore every knob to its baseline.
    Restore,
    /// Keep the values; the next agent takes them over.
    Keep,
    /// Keep while the DaemonSet of --owner wants an agent on this node, else restore.
    Auto,
}

/// An address, or none.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MetricsListen {
    None,
    At(SocketAddr),
}

impl std::str::FromStr for MetricsListen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::None),
            address => address
                .parse()
                .map(Self::At)
                .map_err(|_| "expected an address and a port, such as 127.0.0.1:9464, or `none`".to_owned()),
        }
    }
}

impl std::fmt::Display for MetricsListen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::At(address) => address.fmt(f),
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// File that describes a node to plan for instead of this host; `-` = standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["cgroup_mount", "cgroup_root", "cgroup_driver", "resctrl", "agent_config"])]
    pub(crate) facts: Option<PathBuf>,
    /// Folder or file of Pod manifests, in addition to those in --facts. May be repeated.
    #[arg(long, value_name = "PATH")]
    pub(crate) pods: Vec<PathBuf>,
    /// File of ConfigMaps (and a Node), in addition to those in --facts. May be repeated.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Vec<PathBuf>,
    /// The agent's configuration file; its policies, grants and guard rails apply.
    #[arg(long, value_name = "FILE")]
    pub(crate) agent_config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) modules: ModuleArgs,
    #[command(flatten)]
    pub(crate) host: HostArgs,
    /// List settings in the order of writing instead of by pod.
    #[arg(long)]
    pub(crate) in_order: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// The recording; `-` = standard input.
    pub(crate) recording: PathBuf,
    #[command(flatten)]
    pub(crate) modules: ModuleArgs,
    /// Another version of one policy, replayed beside it; only the differences are printed. FILE is compared with the policy that has the
    /// module's own name; NAME alone is the same module again, with --against-config.
    #[arg(long, value_name = "NAME|[NAME=]FILE")]
    pub(crate) against: Option<String>,
    /// Policy-level configuration of the --against version. Default: that of the policy.
    #[arg(long, value_name = "JSON", requires = "against")]
    pub(crate) against_config: Option<String>,
    /// Output format: `json` prints one line per tick, `table` one row per decision or, with --against, one row whenever a difference
    /// begins, changes or ends.
    #[arg(short, long, value_enum, default_value_t = Output::Json)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct SocketArgs {
    /// Path of the agent's admin socket.
    #[arg(long, default_value = ADMIN_SOCKET, env = "QOSM_ADMIN_SOCKET", value_name = "PATH")]
    pub(crate) admin_socket: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct HoldArgs {
    #[command(flatten)]
    pub(crate) pause: PauseArgs,
    /// Resume the pod.
    #[arg(long, conflicts_with = "duration")]
    pub(crate) lift: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// Folder of the journal. If it is given, an agent at the admin socket that keeps its state elsewhere runs on. Default: /var/lib/qosm.
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Print what would be restored, without writing anything.
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) socket: SocketArgs,
    #[command(flatten)]
    pub(crate) host: HostArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) socket: SocketArgs,
    #[command(flatten)]
    pub(crate) host: HostArgs,
    /// The kubelet's configuration: a file, or the answer of /configz; `-` = standard input. Default: `config.yaml` in the kubelet's folder
    /// (--kubelet-root, else /var/lib/kubelet).
    #[arg(long, value_name = "FILE")]
    pub(crate) kubelet_config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

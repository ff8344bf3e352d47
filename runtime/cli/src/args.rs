//! The command line. Help and completions are generated from these types.

mod ask;
mod author;
mod policy;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
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
    /// Count, for a whole cluster, which nodes run which modules, and report problems to the authors of PolicyModules and ConfigMaps;
    /// with --colocation, publish extended resources and evict pods.
    #[command(
        after_help = "Examples:\n  qosm controller\n  qosm controller --colocation --publish kubernetes.io/batch-cpu --publish kubernetes.io/batch-memory"
    )]
    Controller(ControllerArgs),
    /// How changes of PolicyModules reach the nodes of a cluster.
    #[command(subcommand)]
    Rollout(RolloutCommand),
    /// Print the CustomResourceDefinitions of this version.
    #[command(after_help = "Example:\n  qosm crds | kubectl apply --server-side -f -")]
    Crds {
        /// One of them alone.
        #[arg(value_parser = ["policymodules", "nodepolicyreports"])]
        name: Option<String>,
    },
    /// Show what would be written, and why; nothing is touched.
    #[command(
        after_help = "Examples:\n  qosm plan --facts examples/plan/node.yaml\n  qosm plan --pods /etc/qosm/pods --config slo.yaml -o json\n\nExit codes: 0 all of it would be written; 1 something is refused, wrong, or a policy does not run; 2 it was asked wrongly."
    )]
    Plan(PlanArgs),
    /// Play a recording through the policies and print each tick's decisions.
    #[command(
        after_help = "Examples:\n  qosm replay examples/replay/burst.jsonl\n  qosm replay node.jsonl --policy cpu-burst=./candidate.wasm --policy-config cpu-burst='{\"profile\":\"koordinator\"}'\n  qosm replay node.jsonl --policy old.wasm --against new.wasm -o table\n\nExit codes: 0 done, with --against: both decide the same; 1 a policy does not run, with --against: or they differ; 2 it was asked wrongly."
    )]
    Replay(ReplayArgs),
    #[command(flatten)]
    Ask(AskCommand),
    /// The old name of `pause` and, with --lift, of `resume`.
    #[command(hide = true)]
    Hold(HoldArgs),
    /// Put every knob back to what it was before qosm. Works without a running agent, after a crash too; a running one ends.
    #[command(after_help = "Example:\n  qosm restore --dry-run")]
    Restore(RestoreArgs),
    /// Write policies, look at modules, publish them.
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Show what this host offers: cgroups, knobs, pressure, NUMA, resctrl, capabilities.
    Doctor(DoctorArgs),
    /// Show what qosm does, on this machine.
    #[command(subcommand)]
    Demo(DemoCommand),
    /// Try out policies for the cache and the memory bandwidth without the hardware.
    #[command(subcommand)]
    Resctrl(ResctrlCommand),
    /// Print shell completions. Pods, policies and namespaces are those of the agent that runs here.
    #[command(after_help = "Example:\n  qosm completions bash > /etc/bash_completion.d/qosm")]
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Print a reference of all verbs, or write pages for `man`.
    #[command(hide = true)]
    Manual(ManualArgs),
    /// Write the seccomp profile that the chart's agents run under to where the kubelet looks for it: what an init container does.
    #[command(hide = true)]
    SeccompProfile {
        /// The file.
        #[arg(long, value_name = "FILE")]
        install: PathBuf,
    },
    /// Hand standard input on to the agent's socket, and its answer back: what `kubectl qosm` starts in the agent's container.
    #[command(hide = true)]
    Relay(SocketArgs),
    /// Move pages between NUMA nodes for an agent: what the agent starts as a child, or the chart beside it.
    #[command(hide = true)]
    MovePages(MoverArgs),
    /// Compile a module from standard input: what the agent starts as a short-lived child.
    #[command(hide = true)]
    CompileModule,
}

/// Default path of the agent's admin socket.
pub(crate) const ADMIN_SOCKET: &str = "/run/qosm/qosm.sock";

/// Where the node's own directories are.
#[derive(Debug, Args)]
pub(crate) struct HostArgs {
    /// Where cgroup hierarchies are mounted.
    #[arg(long, default_value = "/sys/fs/cgroup", value_name = "DIR")]
    pub(crate) cgroup_mount: PathBuf,
    /// The kubelet's cgroupRoot: where kubepods stands within a hierarchy. Other than /, nothing outside of it is looked at.
    #[arg(long, default_value = "/", value_name = "PATH")]
    pub(crate) cgroup_root: String,
    /// The cgroup driver, where looking at the directories is not enough.
    #[arg(long, value_enum, value_name = "DRIVER")]
    pub(crate) cgroup_driver: Option<DriverArg>,
    /// The kubelet's folder (its --root-dir, mostly /var/lib/kubelet), for the state of its CPU manager. Pods' secrets lie below it, and only
    /// `cpu_manager_state` is read (by doctor the configuration and `memory_manager_state`, too). Without it containers' cpusets tell which CPUs are exclusive.
    #[arg(long, value_name = "DIR")]
    pub(crate) kubelet_root: Option<PathBuf>,
    /// Where resctrl is mounted, if not where the kernel says; an emulation counts only where it is named.
    #[arg(long, value_name = "PATH")]
    pub(crate) resctrl: Option<MountPoint>,
    /// The proc file system.
    #[arg(long, default_value = "/proc", value_name = "DIR", hide = true)]
    pub(crate) proc: PathBuf,
    /// The sys file system.
    #[arg(long, default_value = "/sys", value_name = "DIR", hide = true)]
    pub(crate) sys: PathBuf,
    /// Where the node's /proc/sys, or a part of it, can be written, if it is there: a container's own is read-only, and the chart mounts it.
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
    /// A policy to run: the name of a default module, NAME=FILE, or FILE (x.wasm or with a slash) under the name that the module
    /// gives itself. May be repeated; none = all default ones.
    #[arg(long = "policy", value_name = "NAME|[NAME=]FILE")]
    pub(crate) policies: Vec<String>,
    /// The policy-level configuration of one policy. May be repeated.
    #[arg(long, value_name = "NAME=JSON")]
    pub(crate) policy_config: Vec<String>,
    /// Interfaces that a policy may import; a default policy has what it needs. May be repeated.
    #[arg(long = "grant", value_name = "NAME=INTERFACE,…")]
    pub(crate) grants: Vec<String>,
    /// Where the default modules are.
    #[arg(long, env = "QOSM_MODULE_DIR", value_name = "DIR")]
    pub(crate) module_dir: Option<PathBuf>,
}

/// How to reach a cluster.
#[derive(Clone, Debug, Args)]
pub(crate) struct ClusterArgs {
    /// The kubeconfig; not given: $KUBECONFIG or ~/.kube/config, else the pod's service account.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
}

/// What a cluster says of this node.
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
    /// The DaemonSet that the agent belongs to: with `onShutdown: auto`, what is held is kept for the next agent as long as it wants
    /// one on this node.
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
    /// Of several controllers act only while holding this Lease.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = NamespacedName::parse)]
    pub(crate) lease: Option<NamespacedName>,
    /// What becomes of NodeResourceTopologies of nodes whose agents report CPUs.
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) node_topology: Option<NodeTopologyArg>,
    #[command(flatten)]
    pub(crate) colocation: ColocationArgs,
}

/// What the controller does with NodeResourceTopologies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum NodeTopologyArg {
    /// Make them, and keep them as reported. Those of other programs are left alone.
    Publish,
    /// Remove those that it made.
    Withdraw,
}

/// What the controller does on behalf of the agents' reports.
#[derive(Debug, Args)]
#[command(next_help_heading = "Colocation")]
pub(crate) struct ColocationArgs {
    /// Publish extended resources on nodes and evict pods, as the agents' reports ask for.
    #[arg(long)]
    pub(crate) colocation: bool,
    /// An extended resource that may be published, such as kubernetes.io/batch-cpu; none without this flag. Repeatable.
    #[arg(long = "publish", value_name = "RESOURCE", requires = "colocation", value_parser = resource_name)]
    pub(crate) publish: Vec<String>,
    /// Publish no more than this share of a node's CPU or memory under one name.
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) max_percent_of_capacity: u32,
    /// Evict no more pods of one node within a minute.
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    pub(crate) max_evictions_of_node: u32,
    /// Evict no more pods of one namespace within a minute.
    #[arg(long, value_name = "NUMBER", default_value_t = 20)]
    pub(crate) max_evictions_of_namespace: u32,
    /// Evict no more pods within a minute.
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    pub(crate) max_evictions: u32,
    /// A namespace whose pods are never evicted. Repeatable.
    #[arg(long = "protected-namespace", value_name = "NAMESPACE", default_value = "kube-system", value_parser = namespace)]
    pub(crate) protected_namespaces: Vec<String>,
    /// Also evict pods of DaemonSets, which come back at once.
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

#[derive(Debug, Subcommand)]
pub(crate) enum RolloutCommand {
    /// Show how many nodes run which digest of a module, and what keeps the others from it.
    #[command(
        after_help = "Examples:\n  qosm rollout status cpu-burst\n  qosm rollout status cpu-burst --wait 10m\n\nExit codes: 0 rolled out as far as the PolicyModule says; 1 not yet, or nodes fail; 2 it was asked wrongly."
    )]
    Status(RolloutArgs),
}

#[derive(Debug, Args)]
pub(crate) struct RolloutArgs {
    /// The PolicyModule.
    pub(crate) module: String,
    /// How long to wait for it to be rolled out, such as 90s or 10m.
    #[arg(long, value_name = "DURATION")]
    pub(crate) wait: Option<jiff::SignedDuration>,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct MoverArgs {
    /// The socket to listen on, for root alone; without it, standard input is one that an agent is connected to.
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Start another one of this command again and again instead, as long as the agent is there.
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
    /// The agent's own file: policies, grants, guard rails, drift, shutdown.
    #[arg(long, value_name = "FILE")]
    pub(crate) agent_config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) modules: ModuleArgs,
    /// A module to try out beside the policies: evaluated and compared with the policy whose module gives itself the same name, but
    /// never written. It needs its grants (--grant); see `qosm diff`. May be repeated.
    #[arg(long = "shadow", value_name = "NAME=FILE")]
    pub(crate) shadows: Vec<String>,
    #[command(flatten)]
    pub(crate) host: HostArgs,
    /// Make kubepods-shaped cgroups for pods that have none, with their CPU and memory limits; for hosts without a kubelet.
    #[arg(long)]
    pub(crate) create_cgroups: bool,
    /// Folder of the journal and of compiled modules.
    #[arg(long, default_value = "/var/lib/qosm", value_name = "DIR")]
    pub(crate) state_dir: PathBuf,
    /// The admin socket, for root alone; its folder is made.
    #[arg(long, default_value = ADMIN_SOCKET, env = "QOSM_ADMIN_SOCKET", value_name = "PATH")]
    pub(crate) admin_socket: PathBuf,
    /// Address of /metrics, /healthz and /readyz, or `none`.
    #[arg(long, default_value = "127.0.0.1:9464", value_name = "ADDRESS")]
    pub(crate) metrics_listen: MetricsListen,
    /// Add series of so many containers to /metrics (throttling, quota, bursts, held memory), the first by name. They have the names of pods.
    #[arg(long, default_value_t = 0, value_name = "NUMBER", value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(0..=10_000))]
    pub(crate) metrics_containers: usize,
    /// File to which each decision is appended as a line of JSON, in the form of OPA's decision log; `-` = standard output. Others rotate it,
    /// by a copy that is then cut.
    #[arg(long, value_name = "FILE")]
    pub(crate) decision_log: Option<PathBuf>,
    /// Milliseconds between ticks.
    #[arg(long, default_value_t = 1000, value_name = "MS", value_parser = clap::value_parser!(u64).range(100..=60_000))]
    pub(crate) tick_millis: u64,
    /// What becomes of held knobs when the agent ends; wins over the agent's file.
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) on_shutdown: Option<OnShutdownArg>,
    /// The socket of a page mover that runs beside the agent; without it, the agent starts one as its child where pages may have to be
    /// moved, or containers put into core scheduling groups.
    #[arg(long, value_name = "PATH")]
    pub(crate) page_mover: Option<PathBuf>,
    /// Whether the agent takes from itself what it does not need: paths, capabilities, system calls; wins over the agent's file.
    #[arg(long, value_enum, value_name = "WHETHER")]
    pub(crate) confine: Option<ConfineArg>,
    /// Format of the log on standard error; its level is set by QOSM_LOG.
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ConfineArg {
    /// As far as the kernel can.
    Auto,
    /// Do not start unless paths, capabilities and system calls can all be confined.
    Require,
    /// Keep everything.
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
    /// Put every knob back.
    Restore,
    /// Leave the values; the next start takes them over.
    Keep,
    /// Keep while the DaemonSet given as --owner wants an agent here, else restore.
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
    /// A node in a file, instead of this host; `-` = standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["cgroup_mount", "cgroup_root", "cgroup_driver", "resctrl", "agent_config"])]
    pub(crate) facts: Option<PathBuf>,
    /// Folder or file of Pod manifests; added to those of the facts. May be repeated.
    #[arg(long, value_name = "PATH")]
    pub(crate) pods: Vec<PathBuf>,
    /// File of ConfigMaps (and a Node); added to those of the facts. May be repeated.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Vec<PathBuf>,
    /// The agent's own file, so that its policies, grants and guard rails count.
    #[arg(long, value_name = "FILE")]
    pub(crate) agent_config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) modules: ModuleArgs,
    #[command(flatten)]
    pub(crate) host: HostArgs,
    /// Rows in the order of writing, not pod by pod.
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
    /// Another version of one policy, played beside it; what is printed are the differences. FILE stands against the policy of the
    /// name that the module gives itself; NAME alone is the same module once more, with --against-config.
    #[arg(long, value_name = "NAME|[NAME=]FILE")]
    pub(crate) against: Option<String>,
    /// The policy-level configuration of that other version; if not given, the same.
    #[arg(long, value_name = "JSON", requires = "against")]
    pub(crate) against_config: Option<String>,
    /// `json` prints one line a tick, `table` one row a decision, or with --against one row whenever a difference begins, changes
    /// or ends.
    #[arg(short, long, value_enum, default_value_t = Output::Json)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct SocketArgs {
    /// The agent's admin socket.
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
    /// Folder of the journal.
    #[arg(long, default_value = "/var/lib/qosm", value_name = "DIR")]
    pub(crate) state_dir: PathBuf,
    /// Say what would be done, and do nothing.
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
    /// The kubelet's configuration, where it is not `config.yaml` in the kubelet's folder (/var/lib/kubelet without --kubelet-root): a file, or
    /// the answer of /configz; `-` = standard input.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubelet_config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

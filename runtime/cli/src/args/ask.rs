//! Arguments of the verbs that query a running agent, on its node or remotely by `kubectl qosm`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand, ValueEnum};
use clap_complete::engine::ArgValueCandidates;
use jiff::SignedDuration;
use qosm_terminal::OutputArgs;
use qosm_watch::table::Order;

use super::{ModuleArgs, SocketArgs, duration, interval};
use crate::completions::{names, namespaces, pods, policies};

/// Verbs that query a running agent.
#[derive(Debug, Subcommand)]
pub(crate) enum AskCommand {
    /// Show continuously what containers use and which knobs are held for them, from a running agent or a recording.
    #[command(
        after_help = "Examples:\n  qosm top\n  qosm top -n shop --sort throttled\n  qosm top --replay node.jsonl\n  qosm top --once -o json\n\nKeys: ↑↓ choose, enter look closer, s next order, / find, space stop, ←→ back and forth, end newest, q quit.\nWithout a terminal, one snapshot is printed, as with --once."
    )]
    Top(TopArgs),
    /// Serve a web page that shows the same as `top`, with charts and every decision, from a running agent or a recording.
    #[command(after_help = "Examples:\n  qosm ui\n  qosm ui node.jsonl\n  qosm ui --listen 0.0.0.0:8080")]
    Ui(UiArgs),
    /// Record what a running agent sees, for `replay`.
    #[command(
        after_help = "Examples:\n  qosm record --for 60s > node.jsonl\n  qosm record --max-ticks 600 --max-size 64Mi --file node.jsonl\n\nThe recording ends at the first bound that is reached, after a whole line. Exit codes: 0 success; 1 the agent ended it before its bounds, or the facts alone are larger than --max-size; 2 wrong arguments or input."
    )]
    Record(RecordArgs),
    /// List pods, policies, held knobs and other state of a running agent.
    #[command(after_help = "Example:\n  qosm get knobs -o json")]
    Get(GetArgs),
    /// Explain one pod: every held knob with its policy, baseline and reason, and every setting that is not in force.
    #[command(after_help = "Example:\n  qosm explain default/web")]
    Explain(ExplainArgs),
    /// Show how the settings of a shadow differ from those of the active policy.
    #[command(
        after_help = "Examples:\n  qosm diff cpu-burst-next\n  qosm diff cpu-burst-next -o json\n\nExit codes: 0 both ask for the same now; 1 they differ, or the shadow does not run; 2 wrong arguments or input."
    )]
    Diff(DiffArgs),
    /// Pause a pod: the agent writes nothing to it during the pause, not even when the agent ends. Only `qosm restore` overrides a pause.
    #[command(after_help = "Examples:\n  qosm pause default/web\n  qosm pause default/web --for 2h")]
    Pause(PauseArgs),
    /// End a pod's pause: its policies act on it again.
    #[command(
        after_help = "Example:\n  qosm resume default/web\n\nA pause by annotation (qosm.io/paused) ends with the annotation."
    )]
    Resume(ResumeArgs),
}

impl AskCommand {
    /// The path of the agent's admin socket.
    pub(crate) fn socket_mut(&mut self) -> &mut PathBuf {
        let socket = match self {
            Self::Top(args) => &mut args.socket,
            Self::Ui(args) => &mut args.socket,
            Self::Record(args) => &mut args.socket,
            Self::Get(args) => &mut args.socket,
            Self::Explain(args) => &mut args.socket,
            Self::Diff(args) => &mut args.socket,
            Self::Pause(args) => &mut args.socket,
            Self::Resume(args) => &mut args.socket,
        };
        &mut socket.admin_socket
    }

    /// Sets the title of the screen or page.
    pub(crate) fn set_title(&mut self, title: String) {
        match self {
            Self::Top(args) => args.title = Some(title),
            Self::Ui(args) => args.title = Some(title),
            _ => {}
        }
    }

    /// The pod that the verb is about; `None` if it is not about one pod.
    pub(crate) fn pod_mut(&mut self) -> Option<&mut String> {
        match self {
            Self::Explain(args) => Some(&mut args.pod),
            Self::Pause(args) => Some(&mut args.pod),
            Self::Resume(args) => Some(&mut args.pod),
            Self::Top(_) | Self::Ui(_) | Self::Record(_) | Self::Get(_) | Self::Diff(_) => None,
        }
    }

    /// Whether the verb shows a recording, and needs no agent.
    pub(crate) fn is_of_a_recording(&self) -> bool {
        match self {
            Self::Top(args) => args.replay.is_some(),
            Self::Ui(args) => args.recording.is_some(),
            _ => false,
        }
    }

    /// Whether the verb handles signals and ends by itself.
    pub(crate) fn ends_on_signals(&self) -> bool {
        matches!(self, Self::Ui(_) | Self::Record(_))
    }
}

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Title; `None` for this node.
    #[arg(skip)]
    pub(crate) title: Option<String>,
    #[command(flatten)]
    pub(crate) socket: SocketArgs,
    /// Show a recording instead of a running agent; `-` = standard input, only with --once.
    #[arg(long, value_name = "FILE")]
    pub(crate) replay: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) modules: ModuleArgs,
    /// Print one snapshot and exit: one interval of a running agent, or the last tick of a recording.
    #[arg(long)]
    pub(crate) once: bool,
    /// Time between two updates, at least 200ms.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = interval)]
    pub(crate) interval: SignedDuration,
    /// Show only pods of this namespace.
    #[arg(short, long, value_name = "NAMESPACE", add = ArgValueCandidates::new(namespaces))]
    pub(crate) namespace: Option<String>,
    /// Show only containers whose NAMESPACE/POD/CONTAINER contains this text.
    #[arg(long, value_name = "TEXT")]
    pub(crate) find: Option<String>,
    /// Show only containers with knobs that this policy holds.
    #[arg(long = "held-by", value_name = "POLICY", add = ArgValueCandidates::new(policies))]
    pub(crate) policy_held: Option<String>,
    /// Order of the list.
    #[arg(long, value_parser = orders(), default_value = Order::default().as_str(), value_name = "ORDER")]
    pub(crate) sort: Order,
    /// Output format; `json` implies --once.
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct UiArgs {
    /// Title; `None` for this node.
    #[arg(skip)]
    pub(crate) title: Option<String>,
    /// Show this recording instead of a running agent.
    #[arg(value_name = "RECORDING")]
    pub(crate) recording: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) socket: SocketArgs,
    #[command(flatten)]
    pub(crate) modules: ModuleArgs,
    /// Address to listen on. The printed address contains a token, which every request for data needs.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    /// Time between two updates, at least 200ms.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = interval)]
    pub(crate) interval: SignedDuration,
}

/// Parses the order of a list; the keys of `qosm top` go through the same orders.
fn orders() -> impl TypedValueParser<Value = Order> {
    let word = |order: Order| PossibleValue::new(order.as_str()).help(order.meaning());
    PossibleValuesParser::new(Order::ALL.map(word)).try_map(|word| Order::named(&word).ok_or("there is no such order"))
}

#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    #[command(flatten)]
    pub(crate) socket: SocketArgs,
    /// Maximum duration, such as 90s or 5m. Default: until interrupted.
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    pub(crate) duration: Option<SignedDuration>,
    /// Maximum number of ticks. The first line, the facts, is not a tick.
    #[arg(long, value_name = "TICKS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_ticks: Option<u64>,
    /// Maximum size, such as 64Mi.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) max_size: Option<u64>,
    /// File to write to. Default: standard output.
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
}

/// Parses a size in bytes, written as a Kubernetes quantity.
fn size(text: &str) -> Result<u64, String> {
    qosm_cluster::parse_bytes(text).map(|bytes| bytes.0).map_err(|error| error.to_string())
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Noun {
    /// Pods, and their number of held knobs.
    #[value(alias = "pod")]
    Pods,
    /// Policies and their health.
    #[value(alias = "policy")]
    Policies,
    /// Held knobs, of pods and of tiers.
    #[value(alias = "knob")]
    Knobs,
    /// Classes of shares of caches and memory bandwidth (resctrl), and their members.
    #[value(alias = "class")]
    Classes,
    /// Extended resources that policies publish on the Kubernetes node.
    #[value(alias = "resource")]
    Resources,
    /// Evictions that policies requested, and their outcomes.
    #[value(alias = "eviction")]
    Evictions,
    /// Events of pods.
    #[value(alias = "event")]
    Events,
    /// Problems of annotations, ConfigMaps and manifests.
    #[value(alias = "problem")]
    Problems,
}

/// The form in which a list is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum GetOutput {
    /// For people.
    #[default]
    Table,
    /// The table with all columns, and numbers as in the kernel's files.
    Wide,
    /// For scripts.
    Json,
    /// For scripts.
    Yaml,
}

#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// What to list.
    pub(crate) noun: Noun,
    /// List only these: pods as NAMESPACE/NAME or NAME, policies, tiers (`"tier burstable"`); of problems, those that contain every NAME.
    #[arg(value_name = "NAME", add = ArgValueCandidates::new(names))]
    pub(crate) names: Vec<String>,
    /// List only what concerns pods of this namespace.
    #[arg(short, long, value_name = "NAMESPACE", add = ArgValueCandidates::new(namespaces))]
    pub(crate) namespace: Option<String>,
    /// List only what belongs to this policy.
    #[arg(long, value_name = "POLICY", add = ArgValueCandidates::new(policies))]
    pub(crate) policy: Option<String>,
    /// Keep running, and print each row that is new or has changed.
    #[arg(short, long)]
    pub(crate) watch: bool,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: GetOutput,
    #[command(flatten)]
    pub(crate) socket: SocketArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// The pod as NAMESPACE/NAME, or only NAME if it is unique.
    #[arg(add = ArgValueCandidates::new(pods))]
    pub(crate) pod: String,
    #[command(flatten)]
    pub(crate) socket: SocketArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// Name of the shadow, or of its active policy if that has no other shadow.
    #[arg(add = ArgValueCandidates::new(policies))]
    pub(crate) policy: String,
    #[command(flatten)]
    pub(crate) socket: SocketArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PauseArgs {
    /// The pod as NAMESPACE/NAME.
    #[arg(add = ArgValueCandidates::new(pods))]
    pub(crate) pod: String,
    /// Duration of the pause, such as 30m or 2h. Default: until `qosm resume`.
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    pub(crate) duration: Option<SignedDuration>,
    #[command(flatten)]
    pub(crate) socket: SocketArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ResumeArgs {
    /// The pod as NAMESPACE/NAME.
    #[arg(add = ArgValueCandidates::new(pods))]
    pub(crate) pod: String,
    #[command(flatten)]
    pub(crate) socket: SocketArgs,
}

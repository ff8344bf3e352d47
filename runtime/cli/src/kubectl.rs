//! `kubectl qosm`: queries agents through `kubectl`, from a machine that is none of their nodes.
//!
//! The API server authorizes each connection: for each one, `kubectl exec … qosm relay` starts in the container of the node's
//! agent (docs/decisions/0026-agents-are-asked-through-kubectl.md).

mod tunnel;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches, Parser};
use qosm_terminal::{Answer, Usage};

use crate::args::AskCommand;
use crate::kubectl::tunnel::Tunnel;
use crate::{ask, client};

/// Show what qosm does on the nodes of a cluster: query the agent of a node through kubectl.
#[derive(Debug, Parser)]
#[command(
    name = "kubectl-qosm",
    bin_name = "kubectl qosm",
    version,
    after_help = "Examples:\n  kubectl qosm explain shop/web-0\n  kubectl qosm top --node node-7\n  kubectl qosm get knobs --node node-7 -n shop\n\nNeeds the permission for `kubectl exec` into the agents: see Kubernetes in the book."
)]
struct Cli {
    /// Name of the node. Default: the node that the pod runs on, or the only node with an agent.
    #[arg(long, value_name = "NAME", global = true)]
    node: Option<String>,
    /// The namespace that the chart is installed in.
    #[arg(long, value_name = "NAMESPACE", default_value = "qosm-system", global = true)]
    agent_namespace: String,
    /// Context in kubectl's configuration.
    #[arg(long, value_name = "NAME", global = true)]
    context: Option<String>,
    /// Path of kubectl's configuration.
    #[arg(long, value_name = "FILE", global = true)]
    kubeconfig: Option<PathBuf>,
    #[command(subcommand)]
    command: AskCommand,
}

/// Whether this program was started as kubectl's plug-in.
pub(crate) fn is_called() -> bool {
    std::env::args_os().next().is_some_and(|program| is_plugin(&program))
}

fn is_plugin(program: &OsStr) -> bool {
    Path::new(program).file_stem() == Some(OsStr::new("kubectl-qosm"))
}

/// The command line: the verbs of `qosm`, without the socket's flag.
fn command() -> clap::Command {
    Cli::command().mut_subcommands(|verb| {
        let examples = verb.get_after_help().map(|text| text.to_string().replace("  qosm ", "  kubectl qosm "));
        let verb = verb.mut_arg("admin_socket", |socket| socket.hide(true));
        match examples {
            Some(text) => verb.after_help(text),
            None => verb,
        }
    })
}

pub(crate) fn run() -> anyhow::Result<Answer> {
    let matches = command().get_matches();
    if let Some((_, verb)) = matches.subcommand()
        && verb.value_source("admin_socket") == Some(ValueSource::CommandLine)
    {
        bail!(Usage("--admin-socket: an agent's socket is its node's own; --node says which node is meant".to_owned()));
    }
    let mut cli = Cli::from_arg_matches(&matches)?;
    if cli.command.is_of_a_recording() {
        return ask::run(&cli.command);
    }
    let kubectl = Kubectl { context: cli.context, kubeconfig: cli.kubeconfig, agent_namespace: cli.agent_namespace };
    let agent = kubectl.agent_for(&mut cli.command, cli.node)?;
    let tunnel = Tunnel::open(kubectl.relay(&agent), cli.command.ends_on_signals())?;
    *cli.command.socket_mut() = tunnel.socket();
    cli.command.set_title(format!("node {}", agent.node));
    let trouble = tunnel.trouble();
    client::explain_failures_by(move || {
        let trouble = trouble().unwrap_or_else(|| "the connection ended".to_owned());
        format!("{agent} cannot be asked: {trouble}")
    });
    ask::run(&cli.command)
}

/// An agent's pod and node.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Agent {
    namespace: String,
    pod: String,
    node: String,
}

impl std::fmt::Display for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the agent {}/{} on node {}", self.namespace, self.pod, self.node)
    }
}

/// Output of one line for each agent's pod; [`running`] selects those that run and are not being deleted. Names contain no tab.
const AGENTS: &str = r#"jsonpath={range .items[*]}{.metadata.namespace}{"\t"}{.metadata.name}{"\t"}{.spec.nodeName}{"\t"}{.status.phase}{"\t"}{.metadata.deletionTimestamp}{"\n"}{end}"#;
const POD: &str = r#"jsonpath={.metadata.namespace}{"\t"}{.spec.nodeName}"#;
/// The chart's labels of agents, for any release name.
const SELECTOR: &str = "--selector=app.kubernetes.io/name=qosm,app.kubernetes.io/component=agent";
/// Maximum number of nodes that an error lists.
const MOST_LISTED: usize = 10;

/// The program `kubectl` with the user's options.
struct Kubectl {
    context: Option<String>,
    kubeconfig: Option<PathBuf>,
    /// Only agents in this namespace are asked: in another one, a user could label a pod like an agent.
    agent_namespace: String,
}

impl Kubectl {
    fn command(&self) -> Command {
        let mut command = Command::new("kubectl");
        if let Some(context) = &self.context {
            command.arg(format!("--context={context}"));
        }
        if let Some(kubeconfig) = &self.kubeconfig {
            command.arg("--kubeconfig").arg(kubeconfig);
        }
        command
    }

    /// Runs kubectl, and returns its standard output.
    fn ask(&self, args: &[&str]) -> anyhow::Result<String> {
        let output = self.command().args(args).output().context("kubectl cannot be run; is it on the PATH?")?;
        if !output.status.success() {
            let says = String::from_utf8_lossy(&output.stderr);
            // The last line only: kubectl prints an error for each attempt.
            bail!("kubectl: {}", says.trim().lines().last().unwrap_or("it failed without a word"));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The command that is started for each connection.
    fn relay(&self, agent: &Agent) -> Command {
        let mut command = self.command();
        command.args(["exec", "--stdin", "--quiet", "--namespace", &agent.namespace, &agent.pod]);
        command.args(["--container=agent", "--", "qosm", "relay"]);
        command
    }

    /// The agent for the command. Adds the namespace to the command's pod if it is missing.
    fn agent_for(&self, command: &mut AskCommand, node: Option<String>) -> anyhow::Result<Agent> {
        let node = match (node, command.pod_mut()) {
            // The pod need not exist, if the node is named.
            (Some(node), _) => Some(node),
            (None, Some(pod)) => Some(self.node_of(pod)?),
            (None, None) => None,
        };
        let on_node = match &node {
            Some(node) => self.agents(&[&format!("--field-selector=spec.nodeName={node}")])?,
            None => self.agents(&[])?,
        };
        let namespace = &self.agent_namespace;
        match (on_node.as_slice(), node) {
            ([agent], _) => Ok(agent.clone()),
            ([], Some(node)) => bail!(
                "no agent of qosm runs on node {node}; {} (namespace {namespace}; --agent-namespace names another)",
                listed(&self.agents(&[])?)
            ),
            ([], None) => bail!(
                "no agent of qosm runs in the namespace {namespace}; --agent-namespace says where the chart is installed"
            ),
            ([agent, other, ..], Some(node)) => {
                bail!(
                    "several agents run on node {node}: {} and {}; one of them is to be removed",
                    agent.pod,
                    other.pod
                )
            }
            (several, None) => bail!(Usage(format!("--node: which node? {}", listed(several)))),
        }
    }

    /// The node of a pod. Adds the namespace to the pod's name.
    fn node_of(&self, pod: &mut String) -> anyhow::Result<String> {
        let said = match pod.split_once('/') {
            Some((namespace, name)) => {
                self.ask(&["get", "pod", "--namespace", namespace, "--output", POD, "--", name])?
            }
            // In the namespace of kubectl's context.
            None => self.ask(&["get", "pod", "--output", POD, "--", pod])?,
        };
        let (namespace, node) = said.trim_end_matches('\n').split_once('\t').context("kubectl printed no pod")?;
        if node.is_empty() {
            bail!("pod {pod} waits for a node: no agent acts on it");
        }
        if !pod.contains('/') {
            *pod = format!("{namespace}/{pod}");
        }
        Ok(node.to_owned())
    }

    fn agents(&self, which: &[&str]) -> anyhow::Result<Vec<Agent>> {
        let all = ["get", "pods", "--namespace", &self.agent_namespace, SELECTOR, "--output", AGENTS];
        Ok(running(&self.ask(&[&all, which].concat())?))
    }
}

/// The running agents in kubectl's output.
fn running(printed: &str) -> Vec<Agent> {
    let agent = |line: &str| {
        let mut fields = line.split('\t').map(str::to_owned);
        let agent = Agent { namespace: fields.next()?, pod: fields.next()?, node: fields.next()? };
        (fields.next()? == "Running" && fields.next().is_none_or(|deleted| deleted.is_empty())).then_some(agent)
    };
    printed.lines().filter_map(agent).collect()
}

/// The nodes with an agent, for an error.
fn listed(agents: &[Agent]) -> String {
    let mut nodes: Vec<&str> = agents.iter().map(|agent| agent.node.as_str()).collect();
    nodes.sort_unstable();
    nodes.dedup();
    if nodes.is_empty() {
        return "none does on any other".to_owned();
    }
    let more = nodes.len().saturating_sub(MOST_LISTED);
    nodes.truncate(MOST_LISTED);
    match more {
        0 => format!("one runs on: {}", nodes.join(", ")),
        more => format!("one runs on: {}, and {more} more", nodes.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_plugin_under_the_name_that_kubectl_looks_for() {
        for (program, expected) in [
            ("kubectl-qosm", true),
            ("/usr/local/bin/kubectl-qosm", true),
            ("qosm", false),
            ("/usr/bin/qosm", false),
            ("kubectl-qosm-next", false),
        ] {
            assert_eq!(is_plugin(OsStr::new(program)), expected, "{program}");
        }
    }

    #[test]
    fn the_plugin_takes_the_verbs_without_the_socket() {
        command().debug_assert();
        let help = command().try_get_matches_from(["kubectl-qosm", "explain", "--help"]).unwrap_err().to_string();
        assert!(help.contains("Usage: kubectl qosm explain [OPTIONS] <POD>"), "{help}");
        assert!(help.contains("  kubectl qosm explain default/web") && help.contains("--node"), "{help}");
        assert!(!help.contains("--admin-socket"), "{help}");
        assert!(command().try_get_matches_from(["kubectl-qosm", "agent"]).is_err(), "no verb of the daemon");
    }

    #[test]
    fn agents_that_run_are_found_by_node() {
        let printed = "qosm-system\tqosm-agent-a\tnode-1\tRunning\t\n\
                       qosm-system\tqosm-agent-b\tnode-2\tRunning\t2026-11-25T10:00:00Z\n\
                       qosm-system\tqosm-agent-c\t\tPending\t\n\
                       other\tqosm-agent-d\tnode-3\tRunning\t\n";
        let agents = running(printed);
        let names: Vec<String> = agents.iter().map(ToString::to_string).collect();
        assert_eq!(
            names,
            ["the agent qosm-system/qosm-agent-a on node node-1", "the agent other/qosm-agent-d on node node-3"]
        );
        assert_eq!(listed(&agents), "one runs on: node-1, node-3");
        assert_eq!(listed(&[]), "none does on any other");
        let many: Vec<Agent> =
            (10..25).map(|number| Agent { node: format!("node-{number}"), ..agents[0].clone() }).collect();
        assert!(listed(&many).ends_with("node-19, and 5 more"), "{}", listed(&many));
    }
}

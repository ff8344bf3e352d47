//! The components: their command lines, and how to tell that they are ready.

use std::process::Command;

use super::choices::{Choices, NODE, RUN, StateDir};
use super::programs::Programs;

/// One process of the cluster. In the order in which they are started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Component {
    /// Where the API server keeps everything.
    Etcd,
    /// kube-apiserver.
    Apiserver,
    /// kube-controller-manager: makes DaemonSets' pods and service accounts, collects what lost its owner.
    ControllerManager,
    /// kube-scheduler: DaemonSets' pods wait for it.
    Scheduler,
    /// The node's container runtime.
    Containerd,
    /// The node's agent.
    Kubelet,
}

impl Component {
    /// Those of the control plane, in the order in which they are started.
    pub(crate) const CONTROL_PLANE: [Self; 4] = [Self::Etcd, Self::Apiserver, Self::ControllerManager, Self::Scheduler];
    /// Those of the node.
    pub(crate) const NODE: [Self; 2] = [Self::Containerd, Self::Kubelet];

    /// All that a cluster has.
    pub(crate) fn of(choices: &Choices) -> Vec<Self> {
        let node = if choices.node { Self::NODE.as_slice() } else { &[] };
        Self::CONTROL_PLANE.iter().chain(node).copied().collect()
    }

    /// Its name: that of its log, its record and on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::Apiserver => "apiserver",
            Self::ControllerManager => "controller-manager",
            Self::Scheduler => "scheduler",
            Self::Containerd => "containerd",
            Self::Kubelet => "kubelet",
        }
    }

    /// An argument that only this cluster's component has.
    pub(crate) fn mark(self, state: &StateDir) -> String {
        match self {
            Self::Etcd => format!("--data-dir={}", state.text("etcd")),
            Self::Apiserver => format!("--cert-dir={}", state.text("apiserver")),
            Self::ControllerManager => format!("--kubeconfig={}", state.text("controller-manager.kubeconfig")),
            Self::Scheduler => format!("--kubeconfig={}", state.text("scheduler.kubeconfig")),
            Self::Containerd => format!("--config={}", state.text("containerd.toml")),
            Self::Kubelet => format!("--config={}", state.text("kubelet.json")),
        }
    }

    /// Its command line.
    pub(crate) fn command(self, state: &StateDir, choices: &Choices, programs: &Programs) -> Command {
        let flags = match self {
            Self::Etcd => etcd(state, choices),
            Self::Apiserver => apiserver(state, choices),
            Self::ControllerManager => controller_manager(state),
            Self::Scheduler => scheduler(state),
            Self::Containerd => vec![("config", state.text("containerd.toml"))],
            Self::Kubelet => kubelet(state),
        };
        let program = match self {
            Self::Etcd => &programs.etcd,
            Self::Apiserver => &programs.apiserver,
            Self::ControllerManager => &programs.controller_manager,
            Self::Scheduler => &programs.scheduler,
            Self::Containerd => &programs.containerd,
            Self::Kubelet => &programs.kubelet,
        };
        let mut command = Command::new(program);
        command.args(flags.into_iter().map(|(flag, value)| format!("--{flag}={value}")));
        // containerd looks for its shim beside itself; what either of them runs is named by its path.
        command
    }

    /// Questions to kubectl whose answers tell that it is ready, and what each answer must hold; none where having been started is
    /// enough, since the next component asks for it.
    pub(crate) fn readiness(self) -> &'static [(&'static [&'static str], &'static str)] {
        match self {
            Self::Apiserver => &[(&["get", "--raw", "/readyz"], "ok")],
            // The first thing that it does for a namespace, and that pods wait for.
            Self::ControllerManager => {
                &[(&["get", "--namespace=default", "serviceaccount/default", "--output=name"], "default")]
            }
            // Started again it is not there at once, but what it said before still stands: so it is asked itself first.
            Self::Kubelet => &[
                (&["get", "--raw", "/api/v1/nodes/qosm-test-node/proxy/healthz"], "ok"),
                (&["get", "node", NODE, "--output=jsonpath={.status.conditions[?(@.type==\"Ready\")].status}"], "True"),
            ],
            Self::Etcd | Self::Scheduler | Self::Containerd => &[],
        }
    }
}

type Flags = Vec<(&'static str, String)>;

fn etcd(state: &StateDir, choices: &Choices) -> Flags {
    let [clients, peers] = choices.etcd.map(|port| format!("http://127.0.0.1:{port}"));
    vec![
        ("data-dir", state.text("etcd")),
        ("listen-client-urls", clients.clone()),
        ("advertise-client-urls", clients),
        ("listen-peer-urls", peers.clone()),
        ("initial-advertise-peer-urls", peers.clone()),
        ("initial-cluster", format!("default={peers}")),
    ]
}

fn apiserver(state: &StateDir, choices: &Choices) -> Flags {
    vec![
        ("etcd-servers", format!("http://127.0.0.1:{}", choices.etcd[0])),
        ("bind-address", choices.server.ip().to_string()),
        ("secure-port", choices.server.port().to_string()),
        ("cert-dir", state.text("apiserver")),
        ("service-cluster-ip-range", choices.services().to_owned()),
        // There is one server, and pods reach it by the service's own address.
        ("endpoint-reconciler-type", "none".to_owned()),
        ("authorization-mode", "Node,RBAC".to_owned()),
        ("enable-admission-plugins", "NodeRestriction".to_owned()),
        ("token-auth-file", state.text("tokens.csv")),
        ("service-account-issuer", "https://kubernetes.default.svc".to_owned()),
        ("service-account-key-file", state.text("service-accounts.pub")),
        ("service-account-signing-key-file", state.text("service-accounts.key")),
        ("kubelet-client-certificate", state.text("apiserver-client.crt")),
        ("kubelet-client-key", state.text("apiserver-client.key")),
        ("kubelet-preferred-address-types", "InternalIP".to_owned()),
        ("allow-privileged", "true".to_owned()),
        ("audit-policy-file", state.text("audit-policy.yaml")),
        ("audit-log-path", state.text("audit.log")),
        // When asked to end it ends, rather than let its clients go one by one over a minute.
        ("shutdown-delay-duration", "0s".to_owned()),
    ]
}

fn controller_manager(state: &StateDir) -> Flags {
    vec![
        ("kubeconfig", state.text("controller-manager.kubeconfig")),
        ("leader-elect", "false".to_owned()),
        ("secure-port", "0".to_owned()),
        // Each controller with the rights of its own, as in a real cluster.
        ("use-service-account-credentials", "true".to_owned()),
        ("service-account-private-key-file", state.text("service-accounts.key")),
        ("root-ca-file", state.text("apiserver/apiserver.crt")),
    ]
}

fn scheduler(state: &StateDir) -> Flags {
    vec![
        ("kubeconfig", state.text("scheduler.kubeconfig")),
        ("leader-elect", "false".to_owned()),
        ("secure-port", "0".to_owned()),
    ]
}

fn kubelet(state: &StateDir) -> Flags {
    vec![
        ("config", state.text("kubelet.json")),
        ("kubeconfig", state.text("kubelet.kubeconfig")),
        ("root-dir", state.text("kubelet")),
        ("cert-dir", state.text("kubelet/pki")),
        ("hostname-override", NODE.to_owned()),
        ("v", "2".to_owned()),
    ]
}

/// `ctr`'s flags before its verb.
pub(crate) fn ctr(programs: &Programs) -> Command {
    let mut command = Command::new(&programs.ctr);
    command.arg("--address").arg(format!("{RUN}/containerd.sock")).args(["--namespace", "k8s.io"]);
    command
}

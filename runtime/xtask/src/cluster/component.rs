//! The components: their command lines, and their readiness.

use std::process::Command;

use super::choices::{Choices, NODE, RUN, StateDir};
use super::programs::Programs;

/// One process of the cluster. In the order in which they are started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Component {
    /// The store of the API server.
    Etcd,
    /// kube-apiserver.
    Apiserver,
    /// kube-controller-manager: creates DaemonSets' pods and service accounts, and collects objects without owners.
    ControllerManager,
    /// kube-scheduler: DaemonSets' pods wait for it.
    Scheduler,
    /// The node's container runtime.
    Containerd,
    /// The node's agent.
    Kubelet,
}

impl Component {
    /// The components of the control plane, in the order in which they are started.
    pub(crate) const CONTROL_PLANE: [Self; 4] = [Self::Etcd, Self::Apiserver, Self::ControllerManager, Self::Scheduler];
    /// The components of the node.
    pub(crate) const NODE: [Self; 2] = [Self::Containerd, Self::Kubelet];

    /// All components of a cluster.
    pub(crate) fn of(choices: &Choices) -> Vec<Self> {
        let node = if choices.node { Self::NODE.as_slice() } else { &[] };
        Self::CONTROL_PLANE.iter().chain(node).copied().collect()
    }

    /// Name of the component: in its log, its record and on the command line.
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

    /// An argument that identifies this cluster's component.
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

    /// The component's command line.
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
        // containerd finds its shim next to itself; other programs are named by their paths.
        command
    }

    /// kubectl commands whose output shows that the component is ready, each with the text that the output has to contain. Empty if it is
    /// enough that the component was started, since the next component needs it.
    pub(crate) fn readiness(self) -> &'static [(&'static [&'static str], &'static str)] {
        match self {
            Self::Apiserver => &[(&["get", "--raw", "/readyz"], "ok")],
            // The first thing that it creates in a namespace, which pods wait for.
            Self::ControllerManager => {
                &[(&["get", "--namespace=default", "serviceaccount/default", "--output=name"], "default")]
            }
            // After a restart its old status is still on the API server, so query the kubelet itself first.
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
        // There is one server, and pods reach it by the service's address.
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
        // Ends immediately on request, instead of draining its clients for a minute.
        ("shutdown-delay-duration", "0s".to_owned()),
    ]
}

fn controller_manager(state: &StateDir) -> Flags {
    vec![
        ("kubeconfig", state.text("controller-manager.kubeconfig")),
        ("leader-elect", "false".to_owned()),
        ("secure-port", "0".to_owned()),
        // Each controller has its own permissions, as in a real cluster.
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

/// `ctr` with the flags that come before its verb.
pub(crate) fn ctr(programs: &Programs) -> Command {
    let mut command = Command::new(&programs.ctr);
    command.arg("--address").arg(format!("{RUN}/containerd.sock")).args(["--namespace", "k8s.io"]);
    command
}

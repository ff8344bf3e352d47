//! Fixed names and addresses of a cluster's node, and addresses of a cluster.

use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

pub(crate) use crate::state_dir::StateDir;

/// The node's name.
pub(crate) const NODE: &str = "qosm-test-node";
/// The cgroup at the top of each hierarchy that contains the node's pods, relative to the hierarchy.
pub(crate) const CGROUP: &str = "qosm-test-node";
/// The node's sockets and containerd's state. The path of a socket has at most 107 characters, and a checkout's path may be longer.
pub(crate) const RUN: &str = "/run/qosm-test-node";
/// The NRI socket of the node's containerd, which is not that of the machine's containerd.
pub(crate) const NRI_SOCKET: &str = "/run/qosm-test-node/nri/nri.sock";

/// The cgroup driver: kubelet and runtime create the pods' cgroups themselves, or ask systemd to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Driver {
    /// Cgroups below a cgroup of the test node.
    #[default]
    Cgroupfs,
    /// Cgroups in `kubepods.slice`, as on a node in production. Needs a machine whose first process is systemd and that has no other
    /// kubelet.
    Systemd,
}

impl Driver {
    /// The driver's name for the kubelet and the chart.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Cgroupfs => "cgroupfs",
            Self::Systemd => "systemd",
        }
    }

    /// The kubelet's `cgroupRoot`.
    pub(crate) fn root(self) -> String {
        match self {
            Self::Cgroupfs => format!("/{CGROUP}"),
            Self::Systemd => "/".to_owned(),
        }
    }

    /// The cgroup at the top of each hierarchy that contains all pods.
    pub(crate) fn top(self) -> &'static str {
        match self {
            Self::Cgroupfs => CGROUP,
            Self::Systemd => "kubepods.slice",
        }
    }
}

/// The choices at the creation of the cluster, which have to stay the same when a component is restarted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Choices {
    /// Whether the cluster has a node.
    pub(crate) node: bool,
    /// The cgroup driver of the node.
    #[serde(default)]
    pub(crate) driver: Driver,
    /// Address of the API server.
    pub(crate) server: SocketAddrV4,
    /// Ports of etcd, for clients and for peers.
    pub(crate) etcd: [u16; 2],
    /// Port of the kubelet.
    pub(crate) kubelet: u16,
}

/// The API server of a cluster with a node. It has the first of the services' addresses, so pods find it without a kube-proxy; and this is
/// an address of this machine, like all of 127.0.0.0/8. The port is the one that the service `kubernetes` always has.
const NODE_SERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(127, 96, 0, 1), 443);

impl Choices {
    /// Chooses free ports, which the cluster uses immediately.
    ///
    /// # Errors
    ///
    /// If there are none, or the address that pods use is taken.
    pub(crate) fn make(node: bool, driver: Driver) -> Result<Self> {
        let bind = |address: SocketAddrV4| TcpListener::bind(address);
        let any = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
        // Bind all before closing any; otherwise the same port could be chosen several times.
        let listeners = [bind(any), bind(any), bind(any), bind(if node { NODE_SERVER } else { any })];
        let mut ports = [0; 4];
        for (port, listener) in ports.iter_mut().zip(listeners) {
            let listener = listener.with_context(|| {
                format!("{NODE_SERVER}, where pods look for the API server, is not free; does another test node run?")
            })?;
            *port = listener.local_addr().context("a listener has no address")?.port();
        }
        let [etcd, peers, kubelet, server] = ports;
        let host = if node { *NODE_SERVER.ip() } else { Ipv4Addr::LOCALHOST };
        Ok(Self { node, driver, server: SocketAddrV4::new(host, server), etcd: [etcd, peers], kubelet })
    }

    /// The address range of services.
    pub(crate) fn services(&self) -> &'static str {
        if self.node { "127.96.0.0/24" } else { "10.96.0.0/24" }
    }
}

/// Choices that are stored in a cluster's folder.
impl StateDir {
    /// The choices of the cluster; `None` if there is no cluster.
    ///
    /// # Errors
    ///
    /// If the file exists but is invalid.
    pub(crate) fn choices(&self) -> Result<Option<Choices>> {
        let file = self.path("cluster.json");
        match fs::read_to_string(&file) {
            Ok(text) => serde_json::from_str(&text).map(Some).with_context(|| format!("{} is damaged", file.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("{} cannot be read", file.display())),
        }
    }

    /// The choices of a cluster that has to exist.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub(crate) fn chosen(&self) -> Result<Choices> {
        match self.choices()? {
            Some(choices) => Ok(choices),
            None => bail!("there is no cluster in {}: `cargo xtask cluster up` starts one", self.dir().display()),
        }
    }

    /// Stores the choices.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub(crate) fn choose(&self, choices: &Choices) -> Result<()> {
        self.write("cluster.json", &serde_json::to_string_pretty(choices).context("choices are no JSON")?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_remembers_what_was_chosen() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::at(folder.path().to_path_buf()).unwrap();
        assert!(state.choices().unwrap().is_none());
        assert!(state.chosen().unwrap_err().to_string().contains("there is no cluster"));
        let choices = Choices::make(false, Driver::Systemd).unwrap();
        state.choose(&choices).unwrap();
        let chosen = state.chosen().unwrap();
        assert_eq!((chosen.server, chosen.driver), (choices.server, Driver::Systemd));
    }
}

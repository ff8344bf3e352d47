//! What is fixed about a cluster's node, and where a cluster listens.

use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

pub(crate) use crate::state_dir::StateDir;

/// The node's name.
pub(crate) const NODE: &str = "qosm-test-node";
/// The cgroup at the top of each hierarchy that holds the node's pods, relative to the hierarchy.
pub(crate) const CGROUP: &str = "qosm-test-node";
/// The node's sockets and containerd's state: the path of a socket has 107 characters at most, and a checkout's may be longer.
pub(crate) const RUN: &str = "/run/qosm-test-node";
/// Where the node's containerd serves plug-ins, and not where a containerd of the machine's does.
pub(crate) const NRI_SOCKET: &str = "/run/qosm-test-node/nri/nri.sock";

/// Who makes the pods' cgroups: kubelet and runtime themselves, or systemd on their word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Driver {
    /// Below a group of the test node's own.
    #[default]
    Cgroupfs,
    /// In `kubepods.slice`, as a node in production has it: for a machine whose first process is systemd, and that has no other kubelet.
    Systemd,
}

impl Driver {
    /// As kubelet and chart call it.
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

    /// The group at the top of each hierarchy in which all pods are.
    pub(crate) fn top(self) -> &'static str {
        match self {
            Self::Cgroupfs => CGROUP,
            Self::Systemd => "kubepods.slice",
        }
    }
}

/// What was chosen when the cluster was made, and must be the same at the next start of a component.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Choices {
    /// Whether there is a node.
    pub(crate) node: bool,
    /// The node's driver.
    #[serde(default)]
    pub(crate) driver: Driver,
    /// Where the API server listens.
    pub(crate) server: SocketAddrV4,
    /// Where etcd listens, for clients and for its like.
    pub(crate) etcd: [u16; 2],
    /// Where the kubelet listens.
    pub(crate) kubelet: u16,
}

/// The API server of a cluster with a node. It is the first of the services' addresses, so it is where pods look for it without
/// there being a kube-proxy; and it is this machine's, as all of 127.0.0.0/8 is. The port is the one that the service
/// `kubernetes` always has.
const NODE_SERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(127, 96, 0, 1), 443);

impl Choices {
    /// Free ports; the next moment they are the cluster's.
    ///
    /// # Errors
    ///
    /// When there are none, or the address that pods look for is taken.
    pub(crate) fn make(node: bool, driver: Driver) -> Result<Self> {
        let bind = |address: SocketAddrV4| TcpListener::bind(address);
        let any = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
        // All at once, or the same port would be free several times.
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

    /// The services' addresses.
    pub(crate) fn services(&self) -> &'static str {
        if self.node { "127.96.0.0/24" } else { "10.96.0.0/24" }
    }
}

/// What a cluster keeps in its folder.
impl StateDir {
    /// What was chosen when the cluster was made; `None` where there is no cluster.
    ///
    /// # Errors
    ///
    /// When the file is there and says something else.
    pub(crate) fn choices(&self) -> Result<Option<Choices>> {
        let file = self.path("cluster.json");
        match fs::read_to_string(&file) {
            Ok(text) => serde_json::from_str(&text).map(Some).with_context(|| format!("{} is damaged", file.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("{} cannot be read", file.display())),
        }
    }

    /// The same, where a cluster is needed.
    ///
    /// # Errors
    ///
    /// Where there is none.
    pub(crate) fn chosen(&self) -> Result<Choices> {
        match self.choices()? {
            Some(choices) => Ok(choices),
            None => bail!("there is no cluster in {}: `cargo xtask cluster up` starts one", self.dir().display()),
        }
    }

    /// Keeps what was chosen.
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

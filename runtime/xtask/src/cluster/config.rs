//! The files that the components are started with: tokens and keys, kubeconfigs, and the node's configuration.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::json;

use super::choices::{Choices, Driver, NRI_SOCKET, RUN, StateDir};
use super::programs::Programs;
use crate::keys;

/// Users of the API server: name of the kubeconfig, user, group.
const USERS: [(&str, &str, &str); 4] = [
    ("admin", "qosm-test-admin", "system:masters"),
    ("controller-manager", "system:kube-controller-manager", ""),
    ("scheduler", "system:kube-scheduler", ""),
    ("kubelet", "system:node:qosm-test-node", "system:nodes"),
];

/// The image of pod sandboxes.
pub(crate) const PAUSE: &str = "qosm.test/pause:1";
/// A shell for tests, under its name in Docker Hub, so that the pods of examples run here too.
pub(crate) const BUSYBOX: &str = "docker.io/library/busybox:1";

/// Addresses of pods that do not use the host's network: a range for network tests (RFC 2544), which collides with no real network.
const PODS: &str = "198.18.213.0/24";

/// Writes all files for the control plane, unless they exist.
///
/// # Errors
///
/// When one cannot be written.
pub(crate) fn control_plane(state: &StateDir, choices: &Choices) -> Result<()> {
    state.make("")?;
    for folder in ["etcd", "apiserver"] {
        state.make(folder)?;
    }
    if state.path("admin.kubeconfig").exists() {
        return Ok(());
    }
    make_keys(state)?;
    state.write("audit-policy.yaml", AUDIT)?;
    let mut tokens = String::new();
    for (name, user, group) in USERS {
        let token = keys::random()?;
        tokens += &format!("{token},{user},{user},\"{group}\"\n");
        state.write(&format!("{name}.kubeconfig"), &kubeconfig(state, choices, user, &token))?;
    }
    state.write("tokens.csv", &tokens)
}

/// Writes all files for the node, unless they exist.
///
/// # Errors
///
/// When one cannot be written.
pub(crate) fn node(state: &StateDir, choices: &Choices, programs: &Programs) -> Result<()> {
    for folder in ["containerd", "kubelet", "manifests", "pod-logs", "cni"] {
        state.make(folder)?;
    }
    fs::create_dir_all(RUN).with_context(|| format!("{RUN} cannot be made"))?;
    state.write("containerd.toml", &containerd(state, choices.driver, programs))?;
    state.write("cni/10-qosm-test.conflist", &network(state))?;
    state.write("kubelet.json", &kubelet(state, choices))?;
    state.write(VALUES, &values(state, choices.driver))
}

/// The chart's values for this node.
pub(crate) const VALUES: &str = "qosm-values.json";

/// What such a cluster lacks (a service network, a registry), and the paths of its kubelet and its cgroups. The agent's state is in the
/// cluster's folder.
fn values(state: &StateDir, driver: Driver) -> String {
    let values = json!({
        "image": {"pullPolicy": "Never"},
        "agent": {
            "hostNetwork": true, "cgroupRoot": driver.root(), "cgroupDriver": driver.name(),
            "stateDir": state.text("qosm-state"), "runDir": state.text("qosm-run"),
            "seccomp": {"kubeletDir": state.text("kubelet/seccomp")},
        },
        "pageMover": {"seccomp": {"kubeletDir": state.text("kubelet/seccomp")}},
        "controller": {"hostNetwork": true},
    });
    format!("{values:#}\n")
}

/// Logs one event for each answered request: enough to see which user used which verb on which object.
const AUDIT: &str =
    "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n";

/// Creates the key that signs service account tokens, and the certificate by which the kubelet authenticates the API server.
fn make_keys(state: &StateDir) -> Result<()> {
    keys::private(state, "service-accounts.key")?;
    keys::openssl(state, &["pkey", "-in", "service-accounts.key", "-pubout", "-out", "service-accounts.pub"])?;
    keys::private(state, "apiserver-client.key")?;
    let request = ["req", "-x509", "-new", "-key", "apiserver-client.key", "-out", "apiserver-client.crt"];
    let said = ["-days", "3650", "-subj", "/O=system:masters/CN=qosm-test-apiserver"];
    keys::openssl(state, &[&request[..], &said].concat())
}

fn kubeconfig(state: &StateDir, choices: &Choices, user: &str, token: &str) -> String {
    let cluster = json!({
        "server": format!("https://{}", choices.server),
        // The API server creates this certificate for itself at its first start.
        "certificate-authority": state.text("apiserver/apiserver.crt"),
    });
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
    });
    format!("{config:#}\n")
}

/// A separate root and state, so that images and containers of other containerds are not visible; and settings for machines on which root
/// lacks `CAP_SYS_RESOURCE` or there is no overlayfs.
fn containerd(state: &StateDir, driver: Driver, programs: &Programs) -> String {
    let root = state.text("containerd");
    let cni = state.text("cni");
    let nri = state.text("nri");
    let quote = |path: &Path| json!(path.display().to_string()).to_string();
    let (images, cri) = ("plugins.\"io.containerd.cri.v1.images\"", "plugins.\"io.containerd.cri.v1.runtime\"");
    format!(
        "version = 3\nroot = {root:?}\nstate = \"{RUN}/containerd\"\n\
         [grpc]\naddress = \"{RUN}/containerd.sock\"\n\
         [plugins.\"io.containerd.internal.v1.opt\"]\npath = \"{root}/opt\"\n\
         [plugins.\"io.containerd.nri.v1.nri\"]\nsocket_path = \"{NRI_SOCKET}\"\nplugin_path = \"{nri}/plugins\"\n\
         plugin_config_path = \"{nri}/conf.d\"\n\
         [plugins.\"io.containerd.grpc.v1.cri\"]\nstream_server_address = \"127.0.0.1\"\n\
         [{images}]\nsnapshotter = \"native\"\n[{images}.pinned_images]\nsandbox = \"{PAUSE}\"\n\
         [{cri}]\nrestrict_oom_score_adj = true\nnetns_mounts_under_state_dir = true\n\
         disable_apparmor = true\ntolerate_missing_hugetlb_controller = true\n\
         [{cri}.containerd]\ndefault_runtime_name = \"runc\"\n\
         [{cri}.containerd.runtimes.runc]\nruntime_type = \"io.containerd.runc.v2\"\nsnapshotter = \"native\"\n\
         [{cri}.containerd.runtimes.runc.options]\nBinaryName = {runc}\nRoot = \"{RUN}/runc\"\nSystemdCgroup = {systemd}\n\
         [{cri}.cni]\nbin_dirs = [{plugins}]\nconf_dir = {cni:?}\n",
        systemd = driver == Driver::Systemd,
        runc = quote(&programs.runc),
        plugins = quote(&programs.cni),
    )
}

/// Each pod has a link of its own to the host and no route further, so the host's packet filter is not changed.
fn network(state: &StateDir) -> String {
    let addresses = json!({
        "type": "host-local", "dataDir": state.text("cni-addresses"),
        "ranges": [[{"subnet": PODS}]], "routes": [{"dst": "0.0.0.0/0"}],
    });
    let config = json!({
        "cniVersion": "0.4.0", "name": "qosm-test", "plugins": [{"type": "ptp", "ipam": addresses}],
    });
    format!("{config:#}\n")
}

fn kubelet(state: &StateDir, choices: &Choices) -> String {
    let mut config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "port": choices.kubelet, "healthzPort": 0,
        // `kubectl exec` and `logs` come from the API server, which presents this certificate.
        "authentication": {
            "anonymous": {"enabled": false}, "webhook": {"enabled": true},
            "x509": {"clientCAFile": state.text("apiserver-client.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": format!("unix://{RUN}/containerd.sock"),
        "cgroupDriver": choices.driver.name(), "cgroupRoot": choices.driver.root(), "failCgroupV1": false,
        "staticPodPath": state.text("manifests"), "podLogsDir": state.text("pod-logs"),
        "volumePluginDir": state.text("kubelet/volume-plugins"),
        // Tests may use all resources of the machine, and must not change its swap, packet filter and DNS.
        "evictionHard": {}, "imageGCHighThresholdPercent": 100, "failSwapOn": false, "makeIPTablesUtilChains": false,
        "resolvConf": "",
        // Without CAP_SYS_RESOURCE, which root may lack, a process cannot lower its own `oom_score_adj`.
        "oomScoreAdj": 0,
    });
    if choices.driver == Driver::Systemd {
        // The default of kubelets from 1.37 on: the kubelet protects and throttles memory itself, as a second owner of the knobs of memory
        // QoS.
        config["featureGates"] = json!({"MemoryQoS": true});
        config["memoryReservationPolicy"] = "TieredReservation".into();
    }
    format!("{config:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::choices::NODE;

    #[test]
    fn the_kubelet_is_who_the_node_authorizer_takes_for_the_node() {
        let kubelet = USERS.iter().find(|(name, ..)| *name == "kubelet").unwrap();
        assert_eq!(*kubelet, ("kubelet", &*format!("system:node:{NODE}"), "system:nodes"));
    }
}

//! The files that the components are started with: tokens and keys, kubeconfigs, and what a node is configured by.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::json;

use super::place::{CGROUP, Choices, Place, RUN};
use super::programs::Programs;
use crate::keys;

/// Who talks to the API server: the kubeconfig's name, the user, its group.
const USERS: [(&str, &str, &str); 4] = [
    ("admin", "qosm-test-admin", "system:masters"),
    ("controller-manager", "system:kube-controller-manager", ""),
    ("scheduler", "system:kube-scheduler", ""),
    ("kubelet", "system:node:qosm-test-node", "system:nodes"),
];

/// The image of pods' sandboxes.
pub(crate) const PAUSE: &str = "qosm.test/pause:1";
/// A shell for tests, under the name that it has in the world's largest registry: the examples' pods run here too.
pub(crate) const BUSYBOX: &str = "docker.io/library/busybox:1";

/// Where pods have their addresses, for those that do not use the host's: a range for tests of networks (RFC 2544), which is in
/// nobody's way.
const PODS: &str = "198.18.213.0/24";

/// All files for the control plane, unless they are there.
///
/// # Errors
///
/// When one cannot be made.
pub(crate) fn control_plane(place: &Place, choices: &Choices) -> Result<()> {
    place.make("")?;
    for folder in ["etcd", "apiserver"] {
        place.make(folder)?;
    }
    if place.path("admin.kubeconfig").exists() {
        return Ok(());
    }
    make_keys(place)?;
    place.write("audit-policy.yaml", AUDIT)?;
    let mut tokens = String::new();
    for (name, user, group) in USERS {
        let token = keys::random()?;
        tokens += &format!("{token},{user},{user},\"{group}\"\n");
        place.write(&format!("{name}.kubeconfig"), &kubeconfig(place, choices, user, &token))?;
    }
    place.write("tokens.csv", &tokens)
}

/// All files for the node, unless they are there.
///
/// # Errors
///
/// When one cannot be made.
pub(crate) fn node(place: &Place, choices: &Choices, programs: &Programs) -> Result<()> {
    for folder in ["containerd", "kubelet", "manifests", "pod-logs", "cni"] {
        place.make(folder)?;
    }
    fs::create_dir_all(RUN).with_context(|| format!("{RUN} cannot be made"))?;
    place.write("containerd.toml", &containerd(place, programs))?;
    place.write("cni/10-qosm-test.conflist", &network(place))?;
    place.write("kubelet.json", &kubelet(place, choices))?;
    place.write(VALUES, &values(place))
}

/// The chart's values for this node.
pub(crate) const VALUES: &str = "qosm-values.json";

/// What such a cluster lacks (a network of services, a registry), and where its kubelet and its cgroups are. What the agent keeps
/// goes with the cluster's folder.
fn values(place: &Place) -> String {
    let values = json!({
        "image": {"pullPolicy": "Never"},
        "agent": {
            "hostNetwork": true, "cgroupRoot": format!("/{CGROUP}"), "cgroupDriver": "cgroupfs",
            "stateDir": place.text("qosm-state"), "runDir": place.text("qosm-run"),
            "seccomp": {"kubeletDir": place.text("kubelet/seccomp")},
        },
        "controller": {"hostNetwork": true},
    });
    format!("{values:#}\n")
}

/// One event for each request, when it is answered: enough to see who used which verb on what.
const AUDIT: &str =
    "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n";

/// The key that signs the service accounts' tokens, and the certificate by which the kubelet knows the API server.
fn make_keys(place: &Place) -> Result<()> {
    keys::private(place, "service-accounts.key")?;
    keys::openssl(place, &["pkey", "-in", "service-accounts.key", "-pubout", "-out", "service-accounts.pub"])?;
    keys::private(place, "apiserver-client.key")?;
    let request = ["req", "-x509", "-new", "-key", "apiserver-client.key", "-out", "apiserver-client.crt"];
    let said = ["-days", "3650", "-subj", "/O=system:masters/CN=qosm-test-apiserver"];
    keys::openssl(place, &[&request[..], &said].concat())
}

fn kubeconfig(place: &Place, choices: &Choices, user: &str, token: &str) -> String {
    let cluster = json!({
        "server": format!("https://{}", choices.server),
        // The API server makes it for itself at its first start.
        "certificate-authority": place.text("apiserver/apiserver.crt"),
    });
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
    });
    format!("{config:#}\n")
}

/// An own root and state, so that no other containerd's images or containers are seen; and what a machine asks for where root
/// lacks `CAP_SYS_RESOURCE` or there is no overlayfs.
fn containerd(place: &Place, programs: &Programs) -> String {
    let root = place.text("containerd");
    let cni = place.text("cni");
    let quote = |path: &Path| json!(path.display().to_string()).to_string();
    let cri = "plugins.\"io.containerd.grpc.v1.cri\"";
    format!(
        "version = 2\nroot = {root:?}\nstate = \"{RUN}/containerd\"\n\
         [grpc]\naddress = \"{RUN}/containerd.sock\"\n\
         [plugins.\"io.containerd.internal.v1.opt\"]\npath = \"{root}/opt\"\n\
         [{cri}]\nsandbox_image = \"{PAUSE}\"\nrestrict_oom_score_adj = true\nnetns_mounts_under_state_dir = true\n\
         disable_apparmor = true\ntolerate_missing_hugetlb_controller = true\nstream_server_address = \"127.0.0.1\"\n\
         [{cri}.containerd]\nsnapshotter = \"native\"\ndefault_runtime_name = \"runc\"\n\
         [{cri}.containerd.runtimes.runc]\nruntime_type = \"io.containerd.runc.v2\"\n\
         [{cri}.containerd.runtimes.runc.options]\nBinaryName = {runc}\nRoot = \"{RUN}/runc\"\nSystemdCgroup = false\n\
         [{cri}.cni]\nbin_dir = {plugins}\nconf_dir = {cni:?}\n",
        runc = quote(&programs.runc),
        plugins = quote(&programs.cni),
    )
}

/// Each pod on a wire of its own to the host; no way out, so nothing is changed in the host's packet filter.
fn network(place: &Place) -> String {
    let addresses = json!({
        "type": "host-local", "dataDir": place.text("cni-addresses"),
        "ranges": [[{"subnet": PODS}]], "routes": [{"dst": "0.0.0.0/0"}],
    });
    let config = json!({
        "cniVersion": "0.4.0", "name": "qosm-test", "plugins": [{"type": "ptp", "ipam": addresses}],
    });
    format!("{config:#}\n")
}

fn kubelet(place: &Place, choices: &Choices) -> String {
    let config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "port": choices.kubelet, "healthzPort": 0,
        // `kubectl exec` and `logs` come through the API server, which shows this certificate.
        "authentication": {
            "anonymous": {"enabled": false}, "webhook": {"enabled": true},
            "x509": {"clientCAFile": place.text("apiserver-client.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": format!("unix://{RUN}/containerd.sock"),
        "cgroupDriver": "cgroupfs", "cgroupRoot": format!("/{CGROUP}"), "failCgroupV1": false,
        "staticPodPath": place.text("manifests"), "podLogsDir": place.text("pod-logs"),
        "volumePluginDir": place.text("kubelet/volume-plugins"),
        // Whatever the machine has left is enough for tests, and its swap, packet filter and DNS are none of their business.
        "evictionHard": {}, "imageGCHighThresholdPercent": 100, "failSwapOn": false, "makeIPTablesUtilChains": false,
        "resolvConf": "",
        // Root may lack CAP_SYS_RESOURCE, without which nobody can make himself less likely to be killed.
        "oomScoreAdj": 0,
    });
    format!("{config:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::place::NODE;

    #[test]
    fn the_kubelet_is_who_the_node_authorizer_takes_for_the_node() {
        let kubelet = USERS.iter().find(|(name, ..)| *name == "kubelet").unwrap();
        assert_eq!(*kubelet, ("kubelet", &*format!("system:node:{NODE}"), "system:nodes"));
    }
}

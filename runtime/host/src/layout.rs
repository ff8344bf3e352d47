//! The names that the kubelet and container runtimes give their cgroups. Pure functions over names; `search` checks
//! which of them exist.
//!
//! Kubernetes: `pkg/kubelet/cm`, cgroup names of the systemd and cgroupfs drivers. systemd.slice(5) for nested slices.

use qosm_model::pod::Tier;

/// How the kubelet names and creates cgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Driver {
    /// Through systemd: slices and scopes.
    Systemd,
    /// Plain directories.
    Cgroupfs,
}

impl std::fmt::Display for DriverSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Given => "as given",
            Self::Directory => "from the directory that is there",
            Self::Pods => "from the directory with more pods",
            Self::Assumed => "assumed: no kubepods here yet",
        })
    }
}

impl Driver {
    /// The name in the kubelet's configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Systemd => "systemd",
            Self::Cgroupfs => "cgroupfs",
        }
    }

    pub(crate) fn other(self) -> Self {
        match self {
            Self::Systemd => Self::Cgroupfs,
            Self::Cgroupfs => Self::Systemd,
        }
    }
}

/// How the driver was determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverSource {
    /// Configured by the operator.
    Given,
    /// Only one driver's kubepods directory exists.
    Directory,
    /// Both drivers' directories exist; this driver's has more pods.
    Pods,
    /// No kubepods directory exists yet.
    Assumed,
}

/// Layout settings by the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayoutOptions {
    /// The driver; `None` to detect it.
    pub driver: Option<Driver>,
    /// The kubelet's `cgroupRoot`; the default is `/`. With the systemd driver both forms are valid: `/kubelet` and
    /// `/kubelet.slice`.
    pub cgroup_root: String,
}

impl Default for LayoutOptions {
    fn default() -> Self {
        Self { driver: None, cgroup_root: "/".to_owned() }
    }
}

impl LayoutOptions {
    pub(crate) fn configured_driver(&self) -> Option<(Driver, DriverSource)> {
        self.driver.map(|driver| (driver, DriverSource::Given))
    }

    /// The root without leading and trailing slashes; empty for the hierarchy's root.
    pub(crate) fn root(&self) -> String {
        self.cgroup_root.trim_matches('/').to_owned()
    }
}

/// The kubepods directory of a driver below a `cgroupRoot`.
///
/// systemd names a slice after all slices above it, joined by dashes, so dashes within a name become underscores:
/// `/kubelet` gives `kubelet.slice/kubelet-kubepods.slice`.
pub fn kubepods(driver: Driver, cgroup_root: &str) -> String {
    let root = cgroup_root.trim_matches('/');
    match driver {
        Driver::Cgroupfs if root.is_empty() => "kubepods".to_owned(),
        Driver::Cgroupfs => format!("{root}/kubepods"),
        Driver::Systemd if root.is_empty() => "kubepods.slice".to_owned(),
        Driver::Systemd => {
            let base = if root.ends_with(".slice") { root.to_owned() } else { slices(root) };
            format!("{base}/{}-kubepods.slice", stem(&base))
        }
    }
}

fn slices(root: &str) -> String {
    let mut path = String::new();
    let mut name = String::new();
    for part in root.split('/').filter(|part| !part.is_empty()) {
        if !name.is_empty() {
            name.push('-');
            path.push('/');
        }
        name.push_str(&part.replace('-', "_"));
        path.push_str(&name);
        path.push_str(".slice");
    }
    path
}

/// The last part of a path, without `.slice`.
fn stem(path: &str) -> &str {
    let last = path.rsplit('/').next().unwrap_or(path);
    last.strip_suffix(".slice").unwrap_or(last)
}

/// A tier's directory.
pub fn tier(driver: Driver, kubepods: &str, tier: Tier) -> String {
    let name = match tier {
        Tier::Guaranteed => return kubepods.to_owned(),
        Tier::Burstable => "burstable",
        Tier::BestEffort => "besteffort",
    };
    match driver {
        Driver::Cgroupfs => format!("{kubepods}/{name}"),
        Driver::Systemd => format!("{kubepods}/{}-{name}.slice", stem(kubepods)),
    }
}

/// A pod's directory.
pub fn pod(driver: Driver, kubepods: &str, of: Tier, uid: &str) -> String {
    let above = tier(driver, kubepods, of);
    match driver {
        Driver::Cgroupfs => format!("{above}/pod{uid}"),
        Driver::Systemd => format!("{above}/{}-pod{}.slice", stem(&above), uid.replace('-', "_")),
    }
}

/// Whether a directory with this name is the pod's, under any driver and root.
pub fn names_pod(name: &str, uid: &str) -> bool {
    if name.strip_prefix("pod") == Some(uid) {
        return true;
    }
    name.strip_suffix(".slice")
        .and_then(|name| name.strip_suffix(uid.replace('-', "_").as_str()))
        .is_some_and(|above| above.ends_with("-pod"))
}

/// Whether a directory with this name may belong to any pod.
pub(crate) fn names_some_pod(name: &str) -> bool {
    match name.strip_suffix(".slice") {
        Some(slice) => slice.contains("-pod"),
        None => name.starts_with("pod"),
    }
}

/// Runtimes as in `containerID`, and their prefixes of the ID in scope names.
const RUNTIMES: [(&str, &str); 4] =
    [("containerd", "cri-containerd"), ("docker", "docker"), ("cri-o", "crio"), ("pouch", "pouch")];

/// A container ID as in the pod's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuntimeId<'a> {
    prefix: &'static str,
    id: &'a str,
}

impl<'a> RuntimeId<'a> {
    /// Parses `<runtime>://<id>`.
    ///
    /// # Errors
    ///
    /// The reason: no `://`, an unknown runtime, an empty ID (its directory would be the pod's), or an ID with a path.
    pub fn parse(text: &'a str) -> Result<Self, &'static str> {
        let (runtime, id) = text.split_once("://").ok_or("it should read <runtime>://<id>")?;
        let prefix = RUNTIMES
            .iter()
            .find(|(name, _)| *name == runtime)
            .map(|&(_, prefix)| prefix)
            .ok_or("the runtime is none of containerd, docker, cri-o, pouch")?;
        if id.is_empty() {
            return Err("the ID is empty");
        }
        if id.contains('/') || id == "." || id == ".." {
            return Err("the ID holds a path");
        }
        Ok(Self { prefix, id })
    }

    /// The names that this runtime may give the container's directory. Under cgroupfs, CRI-O also puts `crio-` before
    /// the ID, which some agents do not expect; both names are returned.
    pub fn names(self, driver: Driver) -> Vec<String> {
        match driver {
            Driver::Systemd => vec![format!("{}-{}.scope", self.prefix, self.id)],
            Driver::Cgroupfs if self.prefix == "crio" => vec![format!("crio-{}", self.id), self.id.to_owned()],
            Driver::Cgroupfs => vec![self.id.to_owned()],
        }
    }

    /// Whether a directory with this name is the container's: named for either driver, or by a runtime that was passed
    /// a systemd path under the cgroupfs driver (`…slice:cri-containerd:<id>`).
    pub fn is_named(self, name: &str) -> bool {
        let Some(before) = name.strip_suffix(".scope").unwrap_or(name).strip_suffix(self.id) else { return false };
        before.is_empty() || before.ends_with(':') || before.strip_suffix('-') == Some(self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_pods_as_the_kubelet_does() {
        use Driver::{Cgroupfs, Systemd};
        const UID: &str = "6553a60b-2b97-442a-b6da-a5704d81dd98";
        for (driver, root, of, uid, path) in [
            (Systemd, "/", Tier::Guaranteed, "uid1", "kubepods.slice/kubepods-poduid1.slice"),
            (
                Systemd,
                "/",
                Tier::Burstable,
                "uid1",
                "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poduid1.slice",
            ),
            (
                Systemd,
                "/",
                Tier::BestEffort,
                UID,
                "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod6553a60b_2b97_442a_b6da_a5704d81dd98.slice",
            ),
            (Cgroupfs, "/", Tier::Guaranteed, "uid1", "kubepods/poduid1"),
            (Cgroupfs, "/", Tier::BestEffort, UID, "kubepods/besteffort/pod6553a60b-2b97-442a-b6da-a5704d81dd98"),
            (
                Systemd,
                "/kubelet",
                Tier::BestEffort,
                "u-1",
                "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-podu_1.slice",
            ),
            (
                Systemd,
                "/kubelet.slice",
                Tier::Guaranteed,
                "u-1",
                "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-podu_1.slice",
            ),
            (
                Systemd,
                "/a-b/c",
                Tier::Guaranteed,
                "u",
                "a_b.slice/a_b-c.slice/a_b-c-kubepods.slice/a_b-c-kubepods-podu.slice",
            ),
            (Cgroupfs, "/kubelet/", Tier::Burstable, "u", "kubelet/kubepods/burstable/podu"),
        ] {
            let got = pod(driver, &kubepods(driver, root), of, uid);
            assert_eq!(got, path);
            let name = got.rsplit('/').next().unwrap_or_default();
            assert!(names_pod(name, uid), "{name}");
            assert!(names_some_pod(name), "{name}");
            assert!(!names_pod(name, "uid"), "{name}");
        }
        for name in ["kubepods.slice", "kubelet-kubepods.slice", "kubepods-burstable.slice", "kubepods", "burstable"] {
            assert!(!names_some_pod(name), "{name}");
        }
    }

    #[test]
    fn names_containers_as_their_runtimes_do() {
        for (id, systemd, cgroupfs) in [
            ("containerd://X", "cri-containerd-X.scope", "X"),
            ("docker://X", "docker-X.scope", "X"),
            ("cri-o://X", "crio-X.scope", "crio-X"),
            ("pouch://X", "pouch-X.scope", "X"),
        ] {
            let parsed = RuntimeId::parse(id);
            let names = |driver| parsed.map(|id| id.names(driver)).unwrap_or_default();
            assert_eq!(names(Driver::Systemd), [systemd]);
            assert_eq!(names(Driver::Cgroupfs).first().map(String::as_str), Some(cgroupfs));
            assert_eq!(names(Driver::Cgroupfs).last().map(|name| name.ends_with('X')), Some(true));
            for name in [systemd, cgroupfs, "X", "kubepods-burstable-podu.slice:cri-containerd:X"] {
                assert_eq!(parsed.map(|id| id.is_named(name)), Ok(true), "{name}");
            }
            for name in ["XX", "aX", "X.slice", "crio-conmon-X.scope", "other-X.scope", "X-1"] {
                assert_eq!(parsed.map(|id| id.is_named(name)), Ok(false), "{name}");
            }
        }
    }

    #[test]
    fn refuses_what_is_no_container_id() {
        for id in ["crio://X", "X", "", "containerd://", "containerd://..", "containerd://a/b", "://X"] {
            assert!(RuntimeId::parse(id).is_err(), "{id:?}");
        }
    }

    #[test]
    fn the_operator_may_say_driver_and_root() {
        let given = LayoutOptions { driver: Some(Driver::Cgroupfs), cgroup_root: "/mine/".to_owned() };
        assert_eq!(given.root(), "mine");
        assert_eq!(given.configured_driver(), Some((Driver::Cgroupfs, DriverSource::Given)));
        assert_eq!(
            (LayoutOptions::default().root(), LayoutOptions::default().configured_driver()),
            (String::new(), None)
        );
    }
}

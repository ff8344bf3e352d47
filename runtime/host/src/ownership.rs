//! Ownership of cgroups: the cgroups that a manifest may bind a pod and its containers to.
//!
//! A pod's own directory is the kubelet's directory for the pod; or the one to which its manifest binds the pod; or, if
//! the manifest only binds containers, each of their cgroups. It never contains cgroups of other pods.

use qosm_model::pod::{ContainerCgroup, Pod};

use crate::Host;
use crate::backend::{Area, Backend as _};
use crate::error::HostError;
use crate::{layout, targets};

/// Whether one cgroup is a proper descendant of another.
pub(crate) fn is_below(path: &str, above: &str) -> bool {
    above.is_empty() || path.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'))
}

/// Whether the name of a directory refers to a container of the pod by the pod's slice:
/// `kubepods-podUID.slice:RUNTIME:ID`, which a runtime with the cgroupfs driver makes of a path from a kubelet with the
/// systemd driver.
pub(crate) fn names_scope_of(name: &str, uid: &str) -> bool {
    name.split_once(':').is_some_and(|(slice, _)| layout::names_pod(slice, uid))
}

/// Whether a directory with this name is the root of a kubelet's cgroups, under any driver and root.
fn names_kubepods(name: &str) -> bool {
    name == "kubepods" || name == "kubepods.slice" || name.ends_with("-kubepods.slice")
}

impl Host {
    /// Checks that a manifest may bind a pod to its cgroup.
    ///
    /// A binding must lie below the cgroup root if the operator configured one; it must neither be nor contain the
    /// kubelet's kubepods or one of its tiers; within kubepods it must lie in the pod's own directory; and its path
    /// must contain no symbolic link. A container's cgroup must lie below its pod's.
    ///
    /// # Errors
    ///
    /// [`HostError::NotOwn`] for the pod's own binding, [`HostError::Path`] for an invalid one.
    /// [`Host::container_path`] checks those of containers.
    pub fn check_binding(&self, pod: &Pod) -> Result<(), HostError> {
        match &pod.cgroup {
            Some(bound) => self.check_claim(pod, &targets::clean(bound)?),
            None => Ok(()),
        }
    }

    /// The same check for the cgroup that a container is bound to.
    pub(crate) fn check_container(&self, pod: &Pod, path: &str) -> Result<(), HostError> {
        self.check_claim(pod, path)?;
        let not_own = |why| Err(HostError::NotOwn { path: path.to_owned(), why });
        if let Some(bound) = &pod.cgroup {
            let bound = targets::clean(bound)?;
            if !is_below(path, &bound) {
                return not_own(format!("it does not lie below `{bound}`, to which the pod is bound"));
            }
        } else if path.rsplit('/').next().is_some_and(|name| layout::names_pod(name, &pod.uid)) {
            return not_own("it is the cgroup of the pod itself".to_owned());
        }
        let same = |other: &&qosm_model::pod::Container| match &other.cgroup {
            ContainerCgroup::Bound(bound) => targets::clean(bound).is_ok_and(|bound| bound == path),
            _ => false,
        };
        let mut bound_here = pod.containers.iter().filter(same);
        match (bound_here.next(), bound_here.next()) {
            (Some(one), Some(other)) => {
                not_own(format!("containers {} and {} are both bound to it", one.name, other.name))
            }
            _ => Ok(()),
        }
    }

    fn check_claim(&self, pod: &Pod, path: &str) -> Result<(), HostError> {
        let not_own = |why| Err(HostError::NotOwn { path: path.to_owned(), why });
        let crate::Layout { root, confined, .. } = &self.layout;
        if *confined && !is_below(path, root) {
            return not_own(format!("it does not lie below the cgroup root `{root}`"));
        }
        let (_, kubepods) = self.kubepods();
        if path == kubepods || is_below(&kubepods, path) {
            return not_own("it holds the cgroups of all pods".to_owned());
        }
        let mut names = path.split('/').skip_while(|name| !names_kubepods(name));
        if names.next().is_some() {
            match names.find(|name| layout::names_some_pod(name)) {
                Some(name) if layout::names_pod(name, &pod.uid) => {}
                Some(name) => return not_own(format!("`{name}` is another pod's")),
                None => return not_own("it holds the cgroups of other pods".to_owned()),
            }
        }
        if self.trees.iter().any(|&tree| self.backend.is_linked(Area::Cgroup(tree), path)) {
            return not_own("a symbolic link leads there".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn below_is_not_beside_and_not_the_same() {
        for (path, above, below) in
            [("a/b", "a", true), ("a", "a", false), ("ab", "a", false), ("a", "a/b", false), ("a/b", "", true)]
        {
            assert_eq!(is_below(path, above), below, "{path} {above}");
        }
    }

    #[test]
    fn a_scope_is_the_pods_by_the_slice_in_its_name() {
        for (name, own) in [
            ("kubepods-burstable-podu_1.slice:cri-containerd:0a", true),
            ("kubepods-burstable-podu_2.slice:cri-containerd:0a", false),
            ("podu-1:x", true),
            ("kubepods-burstable-podu_1.slice", false),
        ] {
            assert_eq!(names_scope_of(name, "u-1"), own, "{name}");
        }
    }

    #[test]
    fn kubelets_roots_are_known_under_every_driver() {
        for (name, is_root) in
            [("kubepods", true), ("kubepods.slice", true), ("kubelet-kubepods.slice", true), ("mykubepods", false)]
        {
            assert_eq!(names_kubepods(name), is_root, "{name}");
        }
    }
}

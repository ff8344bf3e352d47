//! Converts the runtime's notation of a cgroup to a path.

/// A cgroup's path below each hierarchy's root, from a container's `cgroupsPath` or a pod's cgroup parent: a path, or with the systemd
/// driver `SLICE:PREFIX:NAME`, or a slice. `None` if it names no cgroup: if it is empty, or leads out of the hierarchy.
///
/// OCI runtime specification, "Cgroups Path"; systemd.slice(5): dashes in a slice's name stand for the slices above it.
pub fn cgroup_path(given: &str) -> Option<String> {
    let parts: Vec<&str> = given.split(':').collect();
    let path = match parts[..] {
        [path] => match path.trim_matches('/') {
            slice if slice.ends_with(".slice") && !slice.contains('/') => expand(slice)?,
            path => path.to_owned(),
        },
        // As runc does: without a prefix the name is the unit's as it is, and a name may be a slice itself.
        [slice, prefix, name] if !name.is_empty() && !name.contains('/') && !prefix.contains('/') => {
            let slice = if slice.is_empty() { "system.slice" } else { slice };
            let unit = match (prefix, name) {
                (_, name) if name.ends_with(".slice") => name.to_owned(),
                ("", name) => format!("{name}.scope"),
                (prefix, name) => format!("{prefix}-{name}.scope"),
            };
            format!("{}/{unit}", expand(slice)?)
        }
        _ => return None,
    };
    let is_plain = |name: &str| !name.is_empty() && name != "." && name != "..";
    path.split('/').all(is_plain).then_some(path)
}

/// The path of a slice below the root, with the slices above it.
fn expand(slice: &str) -> Option<String> {
    let name = slice.rsplit('/').next()?.strip_suffix(".slice")?;
    if name.is_empty() || name == "-" {
        return None;
    }
    let mut path = String::new();
    let mut above = String::new();
    for part in name.split('-') {
        if part.is_empty() {
            return None;
        }
        if !above.is_empty() {
            above.push('-');
            path.push('/');
        }
        above.push_str(part);
        path.push_str(&above);
        path.push_str(".slice");
    }
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_to_write_a_cgroup_comes_to_its_path() {
        for (given, expected) in [
            ("/kubepods/burstable/pod1/abc", Some("kubepods/burstable/pod1/abc")),
            ("kubepods/pod1/crio-abc", Some("kubepods/pod1/crio-abc")),
            (
                "kubepods-burstable-pod1_2.slice:cri-containerd:abc",
                Some(
                    "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice/cri-containerd-abc.scope",
                ),
            ),
            ("kubepods-pod1.slice:crio:abc", Some("kubepods.slice/kubepods-pod1.slice/crio-abc.scope")),
            ("kubepods-pod1.slice::abc", Some("kubepods.slice/kubepods-pod1.slice/abc.scope")),
            (":docker:abc", Some("system.slice/docker-abc.scope")),
            // CRI-O gives the parent as a path of slices already.
            ("/kubepods.slice/kubepods-pod1.slice:crio:abc", Some("kubepods.slice/kubepods-pod1.slice/crio-abc.scope")),
            ("kubepods-pod1.slice", Some("kubepods.slice/kubepods-pod1.slice")),
            ("/kubepods.slice/kubepods-pod1.slice", Some("kubepods.slice/kubepods-pod1.slice")),
            ("", None),
            ("/", None),
            ("/kubepods/../../etc", None),
            ("a--b.slice:x:y", None),
            ("-.slice:x:y", None),
            ("kubepods.slice:crio:", None),
            ("kubepods:crio:abc", None),
            ("kubepods.slice:crio:../abc/..", None),
        ] {
            assert_eq!(cgroup_path(given).as_deref(), expected, "{given}");
        }
    }
}

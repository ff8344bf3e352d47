//! Opens the node's directories, once; the crates below work on the opened ones.

use std::path::Path;

use anyhow::Context;
use cap_std::ambient_authority;
use cap_std::fs::Dir;
use qosm_host::{Directories, Driver, Host, LayoutOptions};

use crate::args::{DriverArg, HostArgs};

/// Opens this host.
pub(crate) fn open(args: &HostArgs) -> anyhow::Result<Host> {
    let (directories, options) = directories(args)?;
    Host::open(directories, &options).context("the host's cgroups cannot be used")
}

/// Opens this host without probing what the kernel accepts.
pub(crate) fn open_read_only(args: &HostArgs) -> anyhow::Result<Host> {
    let (directories, options) = directories(args)?;
    Host::open_read_only(directories, &options).context("the host's cgroups cannot be used")
}

fn directories(args: &HostArgs) -> anyhow::Result<(Directories, LayoutOptions)> {
    let dir = |path: &Path| {
        Dir::open_ambient_dir(path, ambient_authority()).with_context(|| format!("cannot open {}", path.display()))
    };
    let kubelet = args.kubelet_root.as_deref().map(dir).transpose()?;
    let (cgroup, proc, sys) = (dir(&args.cgroup_mount)?, dir(&args.proc)?, dir(&args.sys)?);
    let sysctl = args.sysctl.is_dir().then(|| dir(&args.sysctl)).transpose()?;
    let directories = Directories { cgroup, proc, sys, kubelet, sysctl };
    let options = LayoutOptions {
        driver: args.cgroup_driver.map(|driver| match driver {
            DriverArg::Systemd => Driver::Systemd,
            DriverArg::Cgroupfs => Driver::Cgroupfs,
        }),
        cgroup_root: args.cgroup_root.clone(),
    };
    Ok((directories, options))
}

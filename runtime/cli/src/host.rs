//! Opening the node's directories, once; everything below works on what it is handed.

use anyhow::Context;
use cap_std::ambient_authority;
use cap_std::fs::Dir;
use qosm_host::{Directories, Driver, Host, LayoutOptions};

use crate::args::{DriverArg, HostArgs};

/// Opens this host.
pub(crate) fn open(args: &HostArgs) -> anyhow::Result<Host> {
    let dir = |path: &std::path::Path| {
        Dir::open_ambient_dir(path, ambient_authority()).with_context(|| format!("cannot open {}", path.display()))
    };
    let directories = Directories { cgroup: dir(&args.cgroup_mount)?, proc: dir(&args.proc)?, sys: dir(&args.sys)? };
    let options = LayoutOptions {
        driver: args.cgroup_driver.map(|driver| match driver {
            DriverArg::Systemd => Driver::Systemd,
            DriverArg::Cgroupfs => Driver::Cgroupfs,
        }),
        cgroup_root: args.cgroup_root.clone(),
        ..LayoutOptions::default()
    };
    Host::open(directories, &options).context("the host's cgroups cannot be used")
}

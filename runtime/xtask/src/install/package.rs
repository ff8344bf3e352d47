//! The Debian package: the same files under `/usr`, a configuration, and scripts that restore what the agent holds
//! (docs/decisions/0027-one-list-of-files.md).

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::image::architecture;
use crate::install::{CONFIGURATION, PODS, example, installation, write};
use crate::tree::glibc;
use crate::workspace::{Shipped, Workspace};
use crate::{command, setup};

/// Scripts that dpkg runs; a removal restores what the agent holds.
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// Which package to make.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// File to write. Default: `qosm_VERSION_ARCHITECTURE.deb` in the target directory.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) programs: Shipped,
}

/// Packs the built programs; builds nothing itself.
///
/// # Errors
///
/// When something was not built, or `dpkg-deb` is missing or refuses.
pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<()> {
    setup::program("dpkg-deb", "what packs a Debian package", "dpkg")?;
    let (version, architecture) = (env!("CARGO_PKG_VERSION"), architecture());
    let name = || workspace.target().join(format!("qosm_{version}_{architecture}.deb"));
    let output = args.output.clone().unwrap_or_else(name);
    let folder = tempfile::tempdir().context("no folder to pack from")?;
    let root = folder.path().join("root");
    let mut tree = installation(workspace, Path::new("/usr"))?;
    tree.add(&example(workspace), Path::new(CONFIGURATION))?;
    tree.add_folder(Path::new(PODS));
    write(&tree, &root)?;
    let control = root.join("DEBIAN");
    let put = |name: &str, mode: u32, text: &str| {
        let path = control.join(name);
        fs::write(&path, text)
            .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(mode)))
            .with_context(|| format!("{} cannot be written", path.display()))
    };
    fs::create_dir(&control)
        .and_then(|()| fs::set_permissions(&control, fs::Permissions::from_mode(0o755)))
        .and_then(|()| fs::set_permissions(&root, fs::Permissions::from_mode(0o755)))
        .with_context(|| format!("{} cannot be made", control.display()))?;
    // The package requires the C library of this machine: an older one may lack symbols.
    put("control", 0o644, &described(version, architecture, &glibc()?))?;
    put("conffiles", 0o644, &format!("{CONFIGURATION}\n"))?;
    for script in SCRIPTS {
        let path = workspace.root().join("deploy/debian").join(script);
        put(script, 0o755, &fs::read_to_string(&path).with_context(|| format!("{} cannot be read", path.display()))?)?;
    }
    command::output(
        Command::new("dpkg-deb").args(["--build", "--root-owner-group", "-Zgzip", "-z6"]).arg(&root).arg(&output),
    )?;
    command::heading("a Debian package");
    println!("    {}", output.display());
    println!("    apt install {}", output.display());
    Ok(())
}

fn described(version: &str, architecture: &str, libc: &str) -> String {
    let repository = env!("CARGO_PKG_REPOSITORY");
    format!(
        "Package: qosm\n\
         Version: {version}\n\
         Architecture: {architecture}\n\
         Maintainer: The authors of qosm <{repository}>\n\
         Homepage: {repository}\n\
         Section: admin\n\
         Priority: optional\n\
         Depends: libc6 (>= {libc}), libgcc-s1\n\
         Description: QoS policies as WebAssembly modules, for one host or a Kubernetes node\n \
         A node agent that lets sandboxed policies set cgroups, NUMA placement and resctrl: memory QoS, CPU Burst and\n \
         memory locality come with it. `systemctl enable --now qosm` starts it; removing the package puts back all that it set.\n"
    )
}

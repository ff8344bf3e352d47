//! The images that a node starts with, built here: there is no registry.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::choices::StateDir;
use super::component::ctr;
use super::config::{BUSYBOX, PAUSE};
use super::programs::Programs;
use crate::command;
use crate::image::{Image, REPOSITORY, write_qosm};
use crate::tree::Tree;
use crate::workspace::Workspace;

/// Builds both images and imports them into the node's containerd, unless it has them.
///
/// # Errors
///
/// If an image cannot be built or imported.
pub(crate) fn import_own(state: &StateDir, programs: &Programs) -> Result<()> {
    let known = command::output(ctr(programs).args(["images", "list", "--quiet"]))?;
    if [PAUSE, BUSYBOX].iter().all(|image| known.lines().any(|line| line == *image)) {
        return Ok(());
    }
    let tree = busybox(programs)?;
    // The process of a sandbox only has to exist, for which busybox is enough.
    let images: [(&str, &[&str]); 2] = [(PAUSE, &["/bin/busybox", "sleep", "2147483647"]), (BUSYBOX, &["/bin/sh"])];
    for (name, entrypoint) in images {
        let file = state.path("image.tar");
        Image { name, tree: &tree, entrypoint, labels: &[] }.write(&file)?;
        import(programs, &file)?;
        std::fs::remove_file(&file).with_context(|| format!("{} cannot be removed", file.display()))?;
    }
    Ok(())
}

/// Imports the images of a file into the node's containerd.
///
/// # Errors
///
/// If containerd refuses them.
pub(crate) fn import(programs: &Programs, file: &Path) -> Result<()> {
    command::output(ctr(programs).args(["images", "import"]).arg(file)).map(drop)
}

/// Builds the image of this workspace's programs under the chart's default name, and imports it into the node's containerd.
///
/// # Errors
///
/// If something is not built, or the image is refused.
pub(crate) fn import_qosm(workspace: &Workspace, state: &StateDir, programs: &Programs) -> Result<()> {
    let file = state.path("qosm-image.tar");
    write_qosm(workspace, &format!("{REPOSITORY}:{}", env!("CARGO_PKG_VERSION")), &file)?;
    import(programs, &file)
}

/// busybox, with links for all its commands.
fn busybox(programs: &Programs) -> Result<Tree> {
    let mut tree = Tree::default();
    tree.add_program(&programs.busybox, Path::new("/bin/busybox"))?;
    for name in command::output(Command::new(&programs.busybox).arg("--list"))?.lines() {
        if name != "busybox" {
            tree.add_link(&Path::new("/bin").join(name), Path::new("busybox"));
        }
    }
    tree.add_folder(Path::new("/tmp"));
    Ok(tree)
}

//! Installs qosm under a prefix of this machine, or packs it as a Debian package.
//!
//! Both use the same list of files. Nothing is started: an agent acts on a host only after an administrator enables it.

mod package;

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::command;
use crate::tree::{Node, Tree};
use crate::workspace::{Shipped, Workspace};

pub(crate) use self::package::{Args as PackageArgs, run as package};

/// The unit's paths of programs are those of `make install` with this prefix.
const UNIT_PREFIX: &str = "/usr/local";
/// Completion scripts: the shell, and the path under a prefix.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/qosm"),
    ("zsh", "share/zsh/site-functions/_qosm"),
    ("fish", "share/fish/vendor_completions.d/qosm.fish"),
];

/// Where to install.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Prefix of the folders of programs, modules and pages.
    #[arg(long, value_name = "DIR", default_value = UNIT_PREFIX)]
    prefix: PathBuf,
    /// Root of the installation instead of `/`, for packagers.
    #[arg(long, value_name = "DIR", default_value = "/")]
    destdir: PathBuf,
    /// Remove what was installed instead. `/etc/qosm` and `/var/lib/qosm` stay.
    #[arg(long)]
    remove: bool,
    #[command(flatten)]
    pub(crate) programs: Shipped,
}

/// Installs the built programs, or removes them; builds nothing itself.
///
/// # Errors
///
/// When something was not built, or a file cannot be written or removed.
pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<()> {
    ensure!(
        args.prefix.is_absolute(),
        "--prefix {}: write an absolute path, such as /usr/local",
        args.prefix.display()
    );
    let tree = installation(workspace, &args.prefix)?;
    if args.remove {
        remove(&tree, &args.destdir)?;
        command::heading(&format!("removed from {}", args.prefix.display()));
        return Ok(());
    }
    write(&tree, &args.destdir)?;
    configure(workspace, &args.destdir)?;
    command::heading(&format!("installed under {}", args.prefix.display()));
    println!("    try `qosm doctor`; docs/host.md says how the agent is configured and started");
    Ok(())
}

/// The administrator's configuration, which an installation never overwrites.
const CONFIGURATION: &str = "/etc/qosm/slo.yaml";
/// The folder in which an agent looks for pods.
const PODS: &str = "/etc/qosm/pods";

/// Writes the default configuration of the unit, unless there is one.
fn configure(workspace: &Workspace, root: &Path) -> Result<()> {
    let mut tree = Tree::default();
    tree.add_folder(Path::new(PODS));
    if !below(root, Path::new(CONFIGURATION)).exists() {
        tree.add(&example(workspace), Path::new(CONFIGURATION))?;
    }
    write(&tree, root)
}

fn example(workspace: &Workspace) -> PathBuf {
    workspace.root().join("examples/standalone/slo.yaml")
}

/// All files, by destination.
fn installation(workspace: &Workspace, prefix: &Path) -> Result<Tree> {
    let (qosm, policy) = (workspace.binary(), workspace.policy_binary());
    for program in [&qosm, &policy] {
        ensure!(program.is_file(), "{} is missing: run `make build`", program.display());
    }
    let mut tree = Tree::default();
    tree.add_stripped(&qosm, &prefix.join("bin/qosm"))?;
    tree.add_stripped(&policy, &prefix.join("bin/qosm-policy"))?;
    tree.add_link(&prefix.join("bin/kubectl-qosm"), Path::new("qosm"));
    let modules = workspace.modules();
    ensure!(modules.join("cpu-burst.wasm").is_file(), "{} holds no modules: run `make build`", modules.display());
    tree.add(&modules, &prefix.join("lib/qosm/policies"))?;
    for (shell, path) in COMPLETIONS {
        let script = command::output(Command::new(&qosm).args(["completions", shell]))?;
        tree.add_file(&prefix.join(path), false, script.into_bytes());
    }
    let pages = tempfile::tempdir().context("no folder for manual pages")?;
    // `qosm` comes last: its page `qosm-policy`, of `qosm policy`, has the verbs of both programs.
    for program in [&policy, &qosm] {
        command::output(Command::new(program).args(["manual", "--pages"]).arg(pages.path()))?;
    }
    tree.add(pages.path(), &prefix.join("share/man/man1"))?;
    let unit = workspace.root().join("deploy/systemd/qosm.service");
    let unit = fs::read_to_string(&unit).with_context(|| format!("{} cannot be read", unit.display()))?;
    let unit = unit.replace(UNIT_PREFIX, &prefix.display().to_string());
    // Drops the first line, a note for those who copy the unit by hand.
    let unit = unit.split_once('\n').map(|(_, unit)| unit.to_owned()).unwrap_or_default();
    tree.add_file(&prefix.join("lib/systemd/system/qosm.service"), false, unit.into_bytes());
    for name in ["LICENSE", "CHANGELOG.md", "SECURITY.md"] {
        tree.add(&workspace.root().join(name), &prefix.join("share/doc/qosm").join(name))?;
    }
    Ok(tree)
}

/// Writes all files below a folder. Each file appears complete.
fn write(tree: &Tree, root: &Path) -> Result<()> {
    for (path, node) in tree.nodes() {
        let path = below(root, path);
        write_one(&path, node).with_context(|| format!("{} cannot be written", path.display()))?;
    }
    Ok(())
}

fn write_one(path: &Path, node: &Node) -> std::io::Result<()> {
    let fresh = path.with_file_name(format!("{}.new", path.file_name().unwrap_or_default().to_string_lossy()));
    match node {
        Node::Folder if path.is_dir() => return Ok(()),
        Node::Folder => {
            fs::create_dir_all(path)?;
            return fs::set_permissions(path, fs::Permissions::from_mode(0o755));
        }
        Node::File { executable, content } => {
            fs::write(&fresh, content)?;
            fs::set_permissions(&fresh, fs::Permissions::from_mode(if *executable { 0o755 } else { 0o644 }))?;
        }
        Node::Link(target) => match fs::remove_file(&fresh) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => symlink(target, &fresh)?,
        },
    }
    fs::rename(&fresh, path)
}

/// Removes the files, and folders named after qosm that are empty then.
fn remove(tree: &Tree, root: &Path) -> Result<()> {
    let nodes: Vec<_> = tree.nodes().collect();
    for (path, node) in nodes.into_iter().rev() {
        let ours = path.components().any(|part| part.as_os_str() == "qosm");
        let path = below(root, path);
        let removed = match node {
            Node::Folder if ours => fs::remove_dir(&path),
            Node::Folder => Ok(()),
            Node::File { .. } | Node::Link(_) => fs::remove_file(&path),
        };
        match removed {
            Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::DirectoryNotEmpty) => {
                return Err(error).with_context(|| format!("{} cannot be removed", path.display()));
            }
            _ => {}
        }
    }
    Ok(())
}

fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_installed_twice_and_removed_leaves_what_was_there_before() {
        let root = tempfile::tempdir().unwrap();
        let others = root.path().join("usr/local/bin/other");
        fs::create_dir_all(others.parent().unwrap()).unwrap();
        fs::write(&others, "").unwrap();
        let mut tree = Tree::default();
        tree.add_script(Path::new("/usr/local/bin/qosm"), "true");
        tree.add_link(Path::new("/usr/local/bin/kubectl-qosm"), Path::new("qosm"));
        tree.add_file(Path::new("/usr/local/lib/qosm/policies/a.wasm"), false, Vec::new());
        for _ in 0..2 {
            write(&tree, root.path()).unwrap();
        }
        let mode = |path: &str| fs::metadata(root.path().join(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("usr/local/bin/kubectl-qosm"), mode("usr/local/lib/qosm/policies/a.wasm")), (0o755, 0o644));
        remove(&tree, root.path()).unwrap();
        remove(&tree, root.path()).unwrap();
        let left: Vec<_> =
            fs::read_dir(others.parent().unwrap()).unwrap().map(|left| left.unwrap().file_name()).collect();
        assert_eq!(left, ["other"]);
        assert!(!root.path().join("usr/local/lib/qosm").exists() && root.path().join("usr/local/lib").exists());
    }
}

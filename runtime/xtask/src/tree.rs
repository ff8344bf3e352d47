//! Files by their path in a root file system that is being made: the VM's, or an image's.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::command;
use crate::workspace;

/// What is at a path.
#[derive(Debug)]
pub(crate) enum Node {
    /// A folder, open to all.
    Folder,
    /// A file with mode 0644 or 0755.
    File {
        /// Whether it is executable.
        executable: bool,
        /// What it holds.
        content: Vec<u8>,
    },
    /// A symbolic link, with its target.
    Link(PathBuf),
}

/// The files by path.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    nodes: BTreeMap<PathBuf, Node>,
}

impl Tree {
    /// A file or a whole folder; programs bring the libraries that they are linked with.
    ///
    /// # Errors
    ///
    /// When something cannot be read.
    pub(crate) fn add(&mut self, host: &Path, guest: &Path) -> Result<()> {
        if !host.is_dir() {
            return self.add_program(host, guest);
        }
        self.make_parents(guest);
        self.nodes.insert(guest.to_path_buf(), Node::Folder);
        for entry in std::fs::read_dir(host).with_context(|| format!("{} cannot be listed", host.display()))? {
            let entry = entry.with_context(|| format!("{} cannot be listed", host.display()))?;
            self.add(&entry.path(), &guest.join(entry.file_name()))?;
        }
        Ok(())
    }

    /// A file, and if it is a program, its libraries at the very paths they have here.
    ///
    /// # Errors
    ///
    /// When it or a library cannot be read.
    pub(crate) fn add_program(&mut self, host: &Path, guest: &Path) -> Result<()> {
        use std::os::unix::fs::PermissionsExt;
        let read = |path: &Path| -> Result<(bool, Vec<u8>)> {
            let mut file = File::open(path).with_context(|| format!("{} cannot be read", path.display()))?;
            let mode =
                file.metadata().with_context(|| format!("{} cannot be read", path.display()))?.permissions().mode();
            let mut content = Vec::new();
            file.read_to_end(&mut content).with_context(|| format!("{} cannot be read", path.display()))?;
            Ok((mode & 0o111 != 0, content))
        };
        let (executable, content) = read(host)?;
        let is_program = executable && content.starts_with(b"\x7fELF");
        let content = if is_program { stripped(host).unwrap_or(content) } else { content };
        self.add_file(guest, executable, content);
        if is_program {
            for library in libraries(host) {
                if !self.nodes.contains_key(&library) {
                    let (_, content) = read(&library)?;
                    self.add_file(&library, true, content);
                }
            }
        }
        Ok(())
    }

    /// A program alone, without its symbols and its libraries.
    ///
    /// # Errors
    ///
    /// When it cannot be read.
    pub(crate) fn add_stripped(&mut self, host: &Path, guest: &Path) -> Result<()> {
        let content = match stripped(host) {
            Some(content) => content,
            None => std::fs::read(host).with_context(|| format!("{} cannot be read", host.display()))?,
        };
        self.add_file(guest, true, content);
        Ok(())
    }

    /// A shell script, executable.
    pub(crate) fn add_script(&mut self, guest: &Path, script: &str) {
        self.add_file(guest, true, script.as_bytes().to_vec());
    }

    /// A symbolic link.
    pub(crate) fn add_link(&mut self, guest: &Path, target: &Path) {
        self.make_parents(guest);
        self.nodes.insert(guest.to_path_buf(), Node::Link(target.to_path_buf()));
    }

    /// A folder, with those above it.
    pub(crate) fn add_folder(&mut self, guest: &Path) {
        self.make_parents(guest);
        self.nodes.entry(guest.to_path_buf()).or_insert(Node::Folder);
    }

    /// Everything in the order of the paths, so that a folder always comes before what is in it.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (&Path, &Node)> {
        self.nodes.iter().map(|(path, node)| (path.as_path(), node))
    }

    /// A file with this content.
    pub(crate) fn add_file(&mut self, guest: &Path, executable: bool, content: Vec<u8>) {
        self.make_parents(guest);
        self.nodes.insert(guest.to_path_buf(), Node::File { executable, content });
    }

    fn make_parents(&mut self, guest: &Path) {
        for folder in guest.ancestors().skip(1).filter(|folder| folder.parent().is_some()) {
            self.nodes.entry(folder.to_path_buf()).or_insert(Node::Folder);
        }
    }
}

/// The program without its symbols, which would only take room; `None` where there is no `strip`.
fn stripped(host: &Path) -> Option<Vec<u8>> {
    let strip = workspace::program("strip")?;
    let out = tempfile::NamedTempFile::new().ok()?;
    command::output(Command::new(strip).arg("-o").arg(out.path()).arg(host)).ok()?;
    std::fs::read(out.path()).ok()
}

/// What the dynamic linker would load, itself included; none for a static program, at which `ldd` fails.
fn libraries(host: &Path) -> Vec<PathBuf> {
    // cargo points LD_LIBRARY_PATH at folders that the guest does not have.
    let printed = command::output(Command::new("ldd").arg(host).env_remove("LD_LIBRARY_PATH")).unwrap_or_default();
    let paths = printed.split_whitespace().filter(|word| word.starts_with('/') && !word.ends_with(':'));
    paths.map(PathBuf::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_are_there_before_their_children() {
        let mut tree = Tree::default();
        tree.add_script(Path::new("/a/b/c"), "true");
        let paths: Vec<_> = tree.nodes.keys().map(|path| path.to_string_lossy().into_owned()).collect();
        assert_eq!(paths, ["/a", "/a/b", "/a/b/c"]);
    }

    #[test]
    fn a_program_brings_its_libraries() {
        let mut tree = Tree::default();
        let me = std::env::current_exe().unwrap();
        tree.add(&me, Path::new("/bin/me")).unwrap();
        assert!(tree.nodes.keys().any(|path| path.to_string_lossy().contains("libc.so")), "{:?}", tree.nodes.keys());
    }
}

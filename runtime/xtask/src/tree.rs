//! The files of a root file system for the VM or an image, by path.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::command;
use crate::workspace;

/// An entry of the file system.
#[derive(Debug)]
pub(crate) enum Node {
    /// A folder, accessible to all users.
    Folder,
    /// A file with mode 0644 or 0755.
    File {
        /// Whether it is executable.
        executable: bool,
        /// Content of the file.
        content: Vec<u8>,
    },
    /// A symbolic link to this target.
    Link(PathBuf),
}

/// The entries by path.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    nodes: BTreeMap<PathBuf, Node>,
}

impl Tree {
    /// Adds a file or a whole folder; programs are added with their shared libraries.
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

    /// Adds a file, and if it is a program, its shared libraries at the same paths as here.
    ///
    /// # Errors
    ///
    /// When it or a library cannot be read, or its libraries are not known.
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
        let libraries = if is_program { libraries(host, has_interpreter(&content))? } else { Vec::new() };
        let content = if is_program { stripped(host).unwrap_or(content) } else { content };
        self.add_file(guest, executable, content);
        if is_program {
            for library in libraries {
                if !self.nodes.contains_key(&library) {
                    let (_, content) = read(&library)?;
                    self.add_file(&library, true, content);
                }
            }
        }
        Ok(())
    }

    /// Adds a program without its symbols and its libraries.
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

    /// Adds an executable shell script.
    pub(crate) fn add_script(&mut self, guest: &Path, script: &str) {
        self.add_file(guest, true, script.as_bytes().to_vec());
    }

    /// Adds a symbolic link.
    pub(crate) fn add_link(&mut self, guest: &Path, target: &Path) {
        self.make_parents(guest);
        self.nodes.insert(guest.to_path_buf(), Node::Link(target.to_path_buf()));
    }

    /// Adds a folder and its parents.
    pub(crate) fn add_folder(&mut self, guest: &Path) {
        self.make_parents(guest);
        self.nodes.entry(guest.to_path_buf()).or_insert(Node::Folder);
    }

    /// All entries in the order of their paths, so that a folder comes before its content.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (&Path, &Node)> {
        self.nodes.iter().map(|(path, node)| (path.as_path(), node))
    }

    /// Adds a file with this content.
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

/// The program without its symbols, to save space; `None` if there is no `strip`.
fn stripped(host: &Path) -> Option<Vec<u8>> {
    let strip = workspace::program("strip")?;
    let out = tempfile::NamedTempFile::new().ok()?;
    command::output(Command::new(strip).arg("-o").arg(out.path()).arg(host)).ok()?;
    std::fs::read(out.path()).ok()
}

/// Whether the program needs a dynamic linker, by elf(5) for 64-bit little-endian machines, as all supported ones are.
fn has_interpreter(program: &[u8]) -> bool {
    const PT_INTERP: usize = 3;
    let number = |at: usize, size: usize| {
        let field = program.get(at..at.checked_add(size)?)?;
        field.iter().rev().try_fold(0_usize, |number, byte| Some(number.checked_mul(256)? | usize::from(*byte)))
    };
    let is_known = program.starts_with(b"\x7fELF\x02\x01");
    let (Some(table), Some(size), Some(count)) = (number(32, 8), number(54, 2), number(56, 2)) else { return false };
    let kind = |entry: usize| number(table.checked_add(entry.checked_mul(size)?)?, 4);
    is_known && (0..count).any(|entry| kind(entry) == Some(PT_INTERP))
}

/// The files that the dynamic linker loads, itself included.
///
/// # Errors
///
/// If the libraries are unknown or incomplete, so that the program would run here only.
fn libraries(host: &Path, has_interpreter: bool) -> Result<Vec<PathBuf>> {
    // cargo sets LD_LIBRARY_PATH to folders that the guest does not have.
    let printed = command::output(Command::new("ldd").arg(host).env_remove("LD_LIBRARY_PATH").env("LC_ALL", "C"));
    match printed {
        // `ldd` fails for a static program, which has no libraries.
        _ if !has_interpreter => Ok(listed(&printed.unwrap_or_default())),
        Ok(printed) => match printed.lines().find(|line| line.contains("not found")) {
            Some(line) => bail!(
                "{} lacks a library on this machine, `{}`: install it, or build the program here",
                host.display(),
                line.trim()
            ),
            None => Ok(listed(&printed)),
        },
        Err(error) => Err(error).with_context(|| {
            format!(
                "the libraries of {} are not known: `ldd`, of Debian's package libc-bin, must be able to list them",
                host.display()
            )
        }),
    }
}

/// The paths in what `ldd` prints.
fn listed(printed: &str) -> Vec<PathBuf> {
    let paths = printed.split_whitespace().filter(|word| word.starts_with('/') && !word.ends_with(':'));
    paths.map(PathBuf::from).collect()
}

/// The version of this machine's C library, with which programs are linked.
///
/// # Errors
///
/// When `getconf` is missing, or the library is not glibc.
pub(crate) fn glibc() -> Result<String> {
    let said = command::output(Command::new("getconf").arg("GNU_LIBC_VERSION"))?;
    said.split_whitespace().last().map(str::to_owned).context("getconf names no version of the C library")
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

    #[test]
    fn a_program_whose_libraries_are_not_known_is_refused_and_a_static_one_has_none() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let add = |kind: u8| {
            let mut program = vec![0; 64 + 56];
            program[..6].copy_from_slice(b"\x7fELF\x02\x01");
            (program[32], program[54], program[56], program[64]) = (64, 56, 1, kind);
            let path = folder.path().join("program");
            std::fs::write(&path, program).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            let mut tree = Tree::default();
            tree.add_program(&path, Path::new("/program")).map(|()| tree.nodes.len())
        };
        let (interpreter, loaded) = (3, 1);
        assert_eq!(add(loaded).unwrap(), 1);
        let error = add(interpreter).unwrap_err();
        assert!(error.to_string().contains("are not known: `ldd`"), "{error:#}");
        assert!(has_interpreter(&std::fs::read(std::env::current_exe().unwrap()).unwrap()));
    }
}

//! The guest's file system: a cpio archive that the kernel unpacks into memory.
//!
//! Format: Linux, Documentation/driver-api/early-userspace/buffer-format.rst ("newc").

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::command;
use crate::workspace;

/// What is at a path in the guest.
#[derive(Debug)]
enum Node {
    Folder,
    /// The console must be there before anything can be mounted, or the guest's first process has nowhere to print.
    Console,
    File {
        executable: bool,
        content: Vec<u8>,
    },
}

/// The guest's files by path.
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

    /// A shell script, executable.
    pub(crate) fn add_script(&mut self, guest: &Path, script: &str) {
        self.add_file(guest, true, script.as_bytes().to_vec());
    }

    fn add_file(&mut self, guest: &Path, executable: bool, content: Vec<u8>) {
        self.make_parents(guest);
        self.nodes.insert(guest.to_path_buf(), Node::File { executable, content });
    }

    fn make_parents(&mut self, guest: &Path) {
        for folder in guest.ancestors().skip(1).filter(|folder| folder.parent().is_some()) {
            self.nodes.entry(folder.to_path_buf()).or_insert(Node::Folder);
        }
    }

    /// Writes the archive.
    ///
    /// # Errors
    ///
    /// When the file cannot be written, or one in it is larger than the format can say (4 GiB).
    pub(crate) fn write(mut self, image: &Path) -> Result<()> {
        for folder in ["/proc", "/sys", "/dev", "/tmp", "/run", "/etc"] {
            self.nodes.entry(folder.into()).or_insert(Node::Folder);
        }
        self.nodes.insert("/dev/console".into(), Node::Console);
        let file = File::create(image).with_context(|| format!("{} cannot be made", image.display()))?;
        let mut out = BufWriter::new(file);
        // By path, so that a folder always comes before what is in it.
        for (number, (path, node)) in (1u32..).zip(&self.nodes) {
            let name = path.strip_prefix("/").unwrap_or(path).to_string_lossy().into_owned();
            entry(&mut out, number, &name, node).with_context(|| format!("{} cannot be packed", path.display()))?;
        }
        entry(&mut out, 0, "TRAILER!!!", &Node::File { executable: false, content: Vec::new() })?;
        out.flush().with_context(|| format!("{} cannot be written", image.display()))
    }
}

/// One header of 13 hexadecimal fields, the name and the content, the latter two padded to 4 bytes.
fn entry(out: &mut impl Write, number: u32, name: &str, node: &Node) -> Result<()> {
    let (mode, content, device): (u32, &[u8], (u32, u32)) = match node {
        Node::Folder => (0o040_755, &[], (0, 0)),
        Node::Console => (0o020_600, &[], (5, 1)),
        Node::File { executable: true, content } => (0o100_755, content, (0, 0)),
        Node::File { executable: false, content } => (0o100_644, content, (0, 0)),
    };
    let size = u32::try_from(content.len())?;
    let name_size = u32::try_from(name.len() + 1)?;
    // inode, mode, uid, gid, links, mtime, size, device, device of a device, name's size, checksum (unused)
    let fields = [number, mode, 0, 0, 1, 0, size, 0, 0, device.0, device.1, name_size, 0];
    write!(out, "070701")?;
    for field in fields {
        write!(out, "{field:08X}")?;
    }
    out.write_all(name.as_bytes())?;
    out.write_all(&[0])?;
    pad(out, 110 + name.len() + 1)?;
    out.write_all(content)?;
    pad(out, content.len())
}

fn pad(out: &mut impl Write, length: usize) -> Result<()> {
    Ok(out.write_all(&[0; 3][..length.next_multiple_of(4) - length])?)
}

/// The program without its symbols, which would only fill the guest's memory; `None` where there is no `strip`.
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
    fn an_entry_is_what_the_kernel_documents() {
        let mut out = Vec::new();
        entry(&mut out, 7, "a", &Node::File { executable: false, content: b"hello".to_vec() }).unwrap();
        let header = "070701\
            00000007000081A40000000000000000000000010000000000000005\
            000000000000000000000000000000000000000200000000";
        assert_eq!(&out[..110], header.as_bytes());
        assert_eq!(&out[110..], b"a\0hello\0\0\0");
    }

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

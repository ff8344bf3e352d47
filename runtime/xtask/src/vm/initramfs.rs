//! The guest's file system: a cpio archive that the kernel unpacks into memory.
//!
//! Format: Linux, Documentation/driver-api/early-userspace/buffer-format.rst ("newc").

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};

use crate::tree::{Node, Tree};

/// Folders on which the guest's first process mounts file systems.
const MOUNT_POINTS: [&str; 6] = ["/proc", "/sys", "/dev", "/tmp", "/run", "/etc"];

/// An entry's mode, content and device.
struct Entry<'a> {
    mode: u32,
    content: &'a [u8],
    device: (u32, u32),
}

/// The console has to exist before anything can be mounted; otherwise the guest's first process cannot print.
const CONSOLE: Entry<'static> = Entry { mode: 0o020_600, content: &[], device: (5, 1) };

/// Writes the archive.
///
/// # Errors
///
/// When the file cannot be written, or an entry is larger than the format supports (4 GiB).
pub(crate) fn write(mut tree: Tree, image: &Path) -> Result<()> {
    for folder in MOUNT_POINTS {
        tree.add_folder(Path::new(folder));
    }
    let file = File::create(image).with_context(|| format!("{} cannot be made", image.display()))?;
    let mut out = BufWriter::new(file);
    let mut last = 0;
    for (number, (path, node)) in (1u32..).zip(tree.nodes()) {
        let name = path.strip_prefix("/").unwrap_or(path).to_string_lossy().into_owned();
        entry(&mut out, number, &name, &Entry::of(node))
            .with_context(|| format!("{} cannot be packed", path.display()))?;
        last = number;
    }
    entry(&mut out, last + 1, "dev/console", &CONSOLE)?;
    entry(&mut out, 0, "TRAILER!!!", &Entry { mode: 0o100_644, content: &[], device: (0, 0) })?;
    out.flush().with_context(|| format!("{} cannot be written", image.display()))
}

impl<'a> Entry<'a> {
    fn of(node: &'a Node) -> Self {
        use std::os::unix::ffi::OsStrExt;
        let (mode, content): (u32, &[u8]) = match node {
            Node::Folder => (0o040_755, &[]),
            Node::File { executable: true, content } => (0o100_755, content),
            Node::File { executable: false, content } => (0o100_644, content),
            Node::Link(target) => (0o120_777, target.as_os_str().as_bytes()),
        };
        Self { mode, content, device: (0, 0) }
    }
}

/// Writes an entry: one header of 13 hexadecimal fields, the name and the content, the latter two padded to 4 bytes.
fn entry(out: &mut impl Write, number: u32, name: &str, entry: &Entry<'_>) -> Result<()> {
    let Entry { mode, content, device } = entry;
    let size = u32::try_from(content.len())?;
    let name_size = u32::try_from(name.len() + 1)?;
    // inode, mode, uid, gid, links, mtime, size, device, device of a device, name's size, checksum (unused)
    let fields = [number, *mode, 0, 0, 1, 0, size, 0, 0, device.0, device.1, name_size, 0];
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_what_the_kernel_documents() {
        let mut out = Vec::new();
        let file = Node::File { executable: false, content: b"hello".to_vec() };
        entry(&mut out, 7, "a", &Entry::of(&file)).unwrap();
        let header = "070701\
            00000007000081A40000000000000000000000010000000000000005\
            000000000000000000000000000000000000000200000000";
        assert_eq!(&out[..110], header.as_bytes());
        assert_eq!(&out[110..], b"a\0hello\0\0\0");
    }
}

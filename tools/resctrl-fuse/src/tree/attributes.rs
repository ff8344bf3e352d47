//! Owners and permissions of the files.

use rustix::io::Errno;

use super::{Node, Tree, Writer};

/// What `stat` returns for a file or directory. All sizes are 0, as in kernfs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Whether it is a directory.
    pub is_directory: bool,
    /// The permissions, e.g. 0o644.
    pub mode: u16,
    /// The owner: the creator, until `chown`.
    pub uid: u32,
    /// The owning group.
    pub gid: u32,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name.
    pub name: String,
    /// Whether it is a directory.
    pub is_directory: bool,
}

impl Tree {
    /// The entries of a directory.
    ///
    /// # Errors
    ///
    /// `ENOENT`, `ENOTDIR`.
    pub fn list(&self, path: &str) -> Result<Vec<Entry>, Errno> {
        let node = self.resolve(path)?;
        if !node.is_directory() {
            return Err(Errno::NOTDIR);
        }
        let children = self.children(node).into_iter();
        Ok(children.map(|(name, node)| Entry { name, is_directory: node.is_directory() }).collect())
    }

    /// Mode and owner of a file or directory.
    ///
    /// # Errors
    ///
    /// `ENOENT`, `ENOTDIR`.
    pub fn attributes(&self, path: &str) -> Result<Attributes, Errno> {
        self.resolve(path).map(|node| self.node_attributes(node))
    }

    /// Changes mode and owner, like `chmod` and `chown`. The caller checks permissions.
    ///
    /// # Errors
    ///
    /// `ENOENT`, `ENOTDIR`.
    pub fn set_attributes(
        &mut self,
        path: &str,
        mode: Option<u16>,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<(), Errno> {
        let node = self.resolve(path)?;
        self.set_node_attributes(node, mode, uid, gid);
        Ok(())
    }

    /// Makes the mounting user the owner of the root and `info`.
    pub(crate) fn belong_to(&mut self, writer: Writer) {
        if let Some(root) = self.groups.get_mut(&super::GroupId::ROOT) {
            root.owner = (writer.uid, writer.gid);
        }
    }

    pub(crate) fn node_attributes(&self, node: Node) -> Attributes {
        if let Some(&changed) = self.changed.get(&node) {
            return changed;
        }
        let of = node.group().unwrap_or(super::GroupId::ROOT);
        let (uid, gid) = self.groups.get(&of).map_or((0, 0), |group| group.owner);
        let is_directory = node.is_directory();
        let mode = match (is_directory, node.is_writable()) {
            (true, _) => 0o755,
            (false, true) => 0o644,
            (false, false) => 0o444,
        };
        Attributes { is_directory, mode, uid, gid }
    }

    pub(crate) fn set_node_attributes(&mut self, node: Node, mode: Option<u16>, uid: Option<u32>, gid: Option<u32>) {
        let now = self.node_attributes(node);
        let changed = Attributes {
            mode: mode.map_or(now.mode, |mode| mode & 0o7777),
            uid: uid.unwrap_or(now.uid),
            gid: gid.unwrap_or(now.gid),
            ..now
        };
        self.changed.insert(node, changed);
    }
}

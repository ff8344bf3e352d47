//! The rules of resctrl, one table for each. The crate's README lists the test for each rule.
#![expect(clippy::unwrap_used, reason = "tests")]

mod counters;
mod cpus;
mod files;
mod groups;
mod hotplug;
mod info;
mod masks;
mod mode;
mod mounts;
mod schemata;
mod tasks;

use qosm_resctrl_fuse::{Errno, Profile, Scripted, Tree, Writer};

/// A tree to which only root writes.
struct Root {
    tree: Tree,
}

impl Root {
    fn on(profile: Profile) -> Self {
        Self { tree: tree(profile) }
    }

    fn with_groups(profile: Profile, groups: &[&str]) -> Self {
        let mut root = Self::on(profile);
        for group in groups {
            root.tree.mkdir(group, Writer::ROOT).unwrap();
        }
        root
    }

    fn read(&mut self, path: &str) -> String {
        read(&mut self.tree, path)
    }

    fn write(&mut self, path: &str, text: &str) -> Result<(), Errno> {
        let written = self.tree.write(path, text.as_bytes(), Writer::ROOT)?;
        assert_eq!(written, text.len());
        Ok(())
    }

    /// The text of `last_cmd_status`, without its last newline.
    fn status(&mut self) -> String {
        let status = self.read("info/last_cmd_status");
        status.strip_suffix('\n').unwrap_or(&status).to_owned()
    }

    fn mkdir(&mut self, path: &str) -> Result<(), Errno> {
        self.tree.mkdir(path, Writer::ROOT)
    }
}

/// A tree with one arbitrary task.
fn tree(profile: Profile) -> Tree {
    Tree::new(profile, Scripted::new([1])).unwrap()
}

/// A tree with the groups `g` and `h`.
fn with_groups(profile: Profile) -> Tree {
    let mut tree = tree(profile);
    tree.mkdir("g", Writer::ROOT).unwrap();
    tree.mkdir("h", Writer::ROOT).unwrap();
    tree
}

fn read(tree: &mut Tree, path: &str) -> String {
    String::from_utf8(tree.read(path).unwrap()).unwrap()
}

fn number(tree: &mut Tree, path: &str) -> u64 {
    read(tree, path).trim_end().parse().unwrap()
}

/// Writes a text that the tree must accept as a whole.
fn write(tree: &mut Tree, path: &str, text: &str) {
    let taken = tree.write(path, text.as_bytes(), Writer::ROOT);
    let status = read(tree, "info/last_cmd_status");
    assert_eq!((taken, status.as_str()), (Ok(text.len()), "ok\n"), "{text:?} into {path}");
}

/// Writes a text that the tree must refuse, with this errno and this status without its last newline.
fn refused(tree: &mut Tree, path: &str, text: &str, errno: Errno, status: &str) {
    let answer = tree.write(path, text.as_bytes(), Writer::ROOT);
    assert_eq!(
        (answer, read(tree, "info/last_cmd_status")),
        (Err(errno), format!("{status}\n")),
        "{text:?} into {path}"
    );
}

fn names(tree: &Tree, path: &str) -> Vec<String> {
    let mut names: Vec<String> = tree.list(path).unwrap().into_iter().map(|entry| entry.name).collect();
    names.sort();
    names
}

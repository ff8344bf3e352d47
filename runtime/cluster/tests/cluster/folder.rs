//! Watching a folder.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use qosm_cluster::{Folder, Snapshot, Source as _};
use tempfile::TempDir;

use super::*;

fn manifest(name: &str, priority: i32) -> String {
    format!("kind: Pod\nmetadata: {{name: {name}}}\nspec: {{priority: {priority}, containers: [{{name: a}}]}}\n")
}

/// Names and priorities of the pods.
fn pods(snapshot: &Snapshot) -> Vec<(String, i32)> {
    snapshot.pods.iter().map(|pod| (pod.name.clone(), pod.priority.unwrap_or(0))).collect()
}

fn owned(pods: &[(&str, i32)]) -> Vec<(String, i32)> {
    pods.iter().map(|(name, priority)| ((*name).to_owned(), *priority)).collect()
}

/// Problems, without the folder's own name in them.
fn messages_in(snapshot: &Snapshot, dir: &Path) -> String {
    texts(&snapshot.problems).join("\n").replace(dir.to_str().unwrap(), "DIR")
}

struct Watched {
    dir: TempDir,
    folder: Folder,
}

fn watched(files: &[(&str, &str)]) -> Watched {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(dir.path().join(name), text).unwrap();
    }
    let folder = Folder::open(Some(dir.path().into()), vec![]).unwrap();
    Watched { dir, folder }
}

impl Watched {
    fn write(&self, name: &str, text: &str) {
        fs::write(self.dir.path().join(name), text).unwrap();
    }

    /// Polls until nothing changes any more, and returns the last snapshot.
    fn settle(&mut self) -> Option<Snapshot> {
        let mut last = None;
        for _ in 0..3 {
            last = self.folder.poll().or(last);
        }
        last
    }

    fn messages(&self, snapshot: &Snapshot) -> String {
        messages_in(snapshot, self.dir.path())
    }
}

#[test]
fn the_first_poll_gives_everything_and_the_next_nothing() {
    let mut watched = watched(&[
        ("b.yaml", &manifest("b", 1)),
        ("a.json", r#"{"kind":"Pod","metadata":{"name":"a"},"spec":{"priority":2,"containers":[{"name":"a"}]}}"#),
    ]);
    assert_eq!(pods(&watched.folder.poll().unwrap()), owned(&[("a", 2), ("b", 1)]));
    for _ in 0..3 {
        assert_eq!(watched.folder.poll(), None);
    }
    let mut empty = self::watched(&[]);
    assert_eq!(empty.folder.poll(), Some(Snapshot::default()));
    assert_eq!(empty.folder.poll(), None);
}

#[test]
fn changes_additions_and_removals_are_seen() {
    let mut watched = watched(&[("a.yaml", &manifest("a", 1))]);
    watched.settle();
    watched.write("a.yaml", &manifest("a", 2));
    assert_eq!(pods(&watched.settle().unwrap()), owned(&[("a", 2)]));
    watched.write("b.yml", &manifest("b", 1));
    assert_eq!(pods(&watched.settle().unwrap()), owned(&[("a", 2), ("b", 1)]));
    fs::rename(watched.dir.path().join("b.yml"), watched.dir.path().join("0.yaml")).unwrap();
    assert_eq!(pods(&watched.settle().unwrap()), owned(&[("b", 1), ("a", 2)]));
    fs::remove_file(watched.dir.path().join("a.yaml")).unwrap();
    assert_eq!(pods(&watched.settle().unwrap()), owned(&[("b", 1)]));
    watched.write("0.yaml", &format!("# a remark\n{}", manifest("b", 1)));
    assert_eq!(watched.settle(), None, "only the text changed");
}

#[test]
fn a_change_within_one_step_of_the_clock_is_seen() {
    let mut watched = watched(&[("a.yaml", &manifest("a", 1))]);
    for priority in 2..60 {
        watched.folder.poll();
        watched.write("a.yaml", &manifest("a", priority % 10));
    }
    watched.write("a.yaml", &manifest("a", 7));
    watched.folder.poll();
    watched.write("a.yaml", &manifest("a", 8));
    assert_eq!(pods(&watched.settle().unwrap()), owned(&[("a", 8)]));
}

#[test]
fn a_file_that_is_renamed_into_place_is_seen() {
    let mut watched = watched(&[("a.yaml", &manifest("a", 1))]);
    watched.settle();
    watched.write(".a.yaml.new", &manifest("a", 2));
    assert_eq!(watched.settle(), None, "hidden files do not count");
    fs::rename(watched.dir.path().join(".a.yaml.new"), watched.dir.path().join("a.yaml")).unwrap();
    assert_eq!(pods(&watched.settle().unwrap()), owned(&[("a", 2)]));
}

#[test]
fn what_kubernetes_mounts_is_followed_when_it_is_swapped() {
    let dir = tempfile::tempdir().unwrap();
    let write = |version: &str, priority| {
        fs::create_dir(dir.path().join(version)).unwrap();
        fs::write(dir.path().join(version).join("a.yaml"), manifest("a", priority)).unwrap();
        symlink(version, dir.path().join("..data_tmp")).unwrap();
        fs::rename(dir.path().join("..data_tmp"), dir.path().join("..data")).unwrap();
    };
    write("..2025_1", 1);
    symlink("..data/a.yaml", dir.path().join("a.yaml")).unwrap();
    let mut folder = Folder::open(dir.path().to_owned(), vec![]).unwrap();
    assert_eq!(pods(&folder.poll().unwrap()), owned(&[("a", 1)]));
    let mut file = Folder::open(None, vec![dir.path().join("a.yaml")]).unwrap();
    assert_eq!(pods(&file.poll().unwrap()), owned(&[("a", 1)]));
    write("..2025_2", 2);
    fs::remove_dir_all(dir.path().join("..2025_1")).unwrap();
    assert_eq!(pods(&folder.poll().unwrap()), owned(&[("a", 2)]));
    assert_eq!(pods(&file.poll().unwrap()), owned(&[("a", 2)]));
}

#[test]
fn a_swapped_folder_is_followed_and_a_vanished_one_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let pods_dir = dir.path().join("pods");
    for (version, priority) in [("v1", 1), ("v2", 2)] {
        fs::create_dir(dir.path().join(version)).unwrap();
        fs::write(dir.path().join(version).join("a.yaml"), manifest("a", priority)).unwrap();
    }
    symlink("v1", &pods_dir).unwrap();
    let mut folder = Folder::open(Some(pods_dir.clone()), vec![]).unwrap();
    assert_eq!(pods(&folder.poll().unwrap()), owned(&[("a", 1)]));
    fs::remove_file(&pods_dir).unwrap();
    let snapshot = folder.poll().unwrap();
    assert_eq!(pods(&snapshot), owned(&[("a", 1)]));
    insta::assert_snapshot!(messages_in(&snapshot, dir.path()), @"DIR/pods: it cannot be read any more; what it held counts on, bring it back or restart without it");
    assert_eq!(folder.poll(), None);
    symlink("v2", &pods_dir).unwrap();
    let snapshot = folder.poll().unwrap();
    assert_eq!((pods(&snapshot), messages(&snapshot)), (owned(&[("a", 2)]), String::new()));
}

#[test]
fn a_file_that_broke_keeps_its_last_good_objects() {
    let two = format!("{}---\n{}", manifest("a", 1), manifest("b", 1));
    let mut watched = watched(&[("ab.yaml", &two), ("c.yaml", &manifest("c", 1))]);
    watched.settle();
    // The second document lost its name, so its pod is unknown.
    watched.write("ab.yaml", &format!("{}---\nkind: Pod\nmetadata: {{name: [", manifest("a", 2)));
    watched.write("c.yaml", &manifest("c", 2));
    let snapshot = watched.settle().unwrap();
    assert_eq!(pods(&snapshot), owned(&[("a", 2), ("b", 1), ("c", 2)]));
    insta::assert_snapshot!(watched.messages(&snapshot), @r"
    DIR/ab.yaml, document 2: it is not YAML (unclosed bracket '[', at line 6, column 18); the document is not read, the others are
    pod default/b: its manifest cannot be read any more and its last good one counts on; mend DIR/ab.yaml
    ");
    // Still broken, but its name is readable again; then the first pod is gone.
    watched.write("ab.yaml", "kind: Pod\nmetadata: {name: b, labels: {x: 5}}\n");
    let snapshot = watched.settle().unwrap();
    assert_eq!(pods(&snapshot), owned(&[("b", 1), ("c", 2)]));
    assert_eq!(snapshot.problems.len(), 2);
    watched.write("ab.yaml", &manifest("b", 3));
    let snapshot = watched.settle().unwrap();
    assert_eq!((pods(&snapshot), messages(&snapshot)), (owned(&[("b", 3), ("c", 2)]), String::new()));
    watched.write("ab.yaml", "");
    let snapshot = watched.settle().unwrap();
    assert_eq!(pods(&snapshot), owned(&[("b", 3), ("c", 2)]));
    insta::assert_snapshot!(watched.messages(&snapshot), @r"
    DIR/ab.yaml: it is empty now, as if it had been cut off; the file is not read, mend it or remove it
    pod default/b: its manifest cannot be read any more and its last good one counts on; mend DIR/ab.yaml
    ");
    fs::remove_file(watched.dir.path().join("ab.yaml")).unwrap();
    let snapshot = watched.settle().unwrap();
    assert_eq!((pods(&snapshot), messages(&snapshot)), (owned(&[("c", 2)]), String::new()));
}

#[test]
fn unreadable_files_are_reported() {
    let mut watched =
        watched(&[("good.yaml", &manifest("good", 1)), ("notes.txt", "nothing"), ("broken.yaml", "a: b: c")]);
    fs::write(watched.dir.path().join("latin.yaml"), b"kind: \xe4").unwrap();
    fs::create_dir(watched.dir.path().join("folder.yaml")).unwrap();
    symlink("/etc/hostname", watched.dir.path().join("out.yaml")).unwrap();
    symlink("nowhere", watched.dir.path().join("lost.yaml")).unwrap();
    let huge = fs::File::create(watched.dir.path().join("huge.yaml")).unwrap();
    huge.set_len(17 * 1024 * 1024).unwrap();
    let snapshot = watched.settle().unwrap();
    assert_eq!(pods(&snapshot), owned(&[("good", 1)]));
    insta::assert_snapshot!(watched.messages(&snapshot), @r"
    DIR/broken.yaml, document 1: it is not YAML (mapping values are not allowed in this context, at line 1, column 5); the document is not read, the others are
    DIR/huge.yaml: it is larger than 16 MiB; the file is not read, mend it or remove it
    DIR/latin.yaml: it is not UTF-8 (incomplete utf-8 byte sequence from index 6); the file is not read, mend it or remove it
    DIR/lost.yaml: it is a link that leads nowhere (No such file or directory (os error 2)); the file is not read, mend it or remove it
    DIR/out.yaml: it is a link that leads out of the folder (a path led outside of the filesystem); the file is not read, mend it or remove it
    ");
    assert_eq!(watched.folder.poll(), None);
}

#[test]
fn of_two_files_the_first_by_name_wins() {
    let mut watched = watched(&[("b.yaml", &manifest("a", 2)), ("a.yaml", &manifest("a", 1))]);
    let snapshot = watched.settle().unwrap();
    assert_eq!(pods(&snapshot), owned(&[("a", 1)]));
    insta::assert_snapshot!(watched.messages(&snapshot), @"pod default/a: it stands in DIR/a.yaml, document 1 already; what stands in DIR/b.yaml, document 1 is ignored, remove one of them");
    fs::remove_file(watched.dir.path().join("a.yaml")).unwrap();
    assert_eq!(pods(&watched.settle().unwrap()), owned(&[("a", 2)]));
}

#[test]
fn configuration_comes_from_files_and_is_gone_with_them() {
    let dir = tempfile::tempdir().unwrap();
    let (config, node) = (dir.path().join("config.yaml"), dir.path().join("node.yaml"));
    let text = |policy: &str| {
        format!(
            "kind: ConfigMap\nmetadata: {{name: ack-slo-config}}\ndata: {{cpu-burst-config: '{{\"clusterStrategy\": {{\"policy\": \"{policy}\"}}}}'}}\n"
        )
    };
    fs::write(&config, text("auto")).unwrap();
    fs::write(&node, "kind: Node\nmetadata: {name: edge-7}\n").unwrap();
    let mut folder = Folder::open(None, vec![config.clone(), node]).unwrap();
    let snapshot = folder.poll().unwrap();
    assert_eq!(messages(&snapshot), "");
    assert_eq!(snapshot.node.unwrap().name, "edge-7");
    assert!(snapshot.config_maps[0].data["cpu-burst-config"].contains("auto"));
    fs::write(&config, text("none")).unwrap();
    let snapshot = folder.poll().unwrap();
    assert!(snapshot.config_maps[0].data["cpu-burst-config"].contains("none"));
    fs::write(&config, "kind: ConfigMap\nmetadata: {name: ack-slo-config}\ndata: {cpu-burst-config: {}}\n").unwrap();
    let snapshot = folder.poll().unwrap();
    assert!(snapshot.config_maps[0].data["cpu-burst-config"].contains("none"));
    insta::assert_snapshot!(messages_in(&snapshot, dir.path()), @r"
    ConfigMap ack-slo-config: data.cpu-burst-config: invalid type: map, expected a string; the ConfigMap is not read, put the value in quotes, or write it as a block (`|`) (in DIR/config.yaml, document 1)
    ConfigMap ack-slo-config: its manifest cannot be read any more and its last good one counts on; mend DIR/config.yaml
    ");
    fs::remove_file(&config).unwrap();
    let snapshot = folder.poll().unwrap();
    assert_eq!(
        (
            snapshot.config_maps,
            messages_in(&Snapshot { problems: snapshot.problems, ..Snapshot::default() }, dir.path())
        ),
        (vec![], String::new())
    );
}

/// A read of a FIFO without a writer does not return.
#[test]
fn a_file_that_a_fifo_replaces_keeps_its_last_good_objects() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("config.yaml");
    fs::write(&config, "kind: ConfigMap\nmetadata: {name: ack-slo-config}\ndata: {cpu-burst-config: '{}'}\n").unwrap();
    let mut folder = Folder::open(None, vec![config.clone()]).unwrap();
    assert_eq!(folder.poll().unwrap().config_maps.len(), 1);
    fs::remove_file(&config).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&config).status().unwrap();
    assert!(made.success());
    let snapshot = folder.poll().unwrap();
    assert_eq!(snapshot.config_maps.len(), 1);
    insta::assert_snapshot!(messages_in(&snapshot, dir.path()), @r"
    DIR/config.yaml: it is no regular file; the file is not read, mend it or remove it
    ConfigMap ack-slo-config: its manifest cannot be read any more and its last good one counts on; mend DIR/config.yaml
    ");
    assert_eq!(folder.poll(), None);
}

#[test]
fn what_is_not_there_at_first_is_an_error() {
    let error = Folder::open(Some("/nonexistent/pods".into()), vec![]).unwrap_err();
    insta::assert_snapshot!(error.to_string(), @"/nonexistent/pods cannot be read; name an existing folder or file of manifests");
    let dir = tempfile::tempdir().unwrap();
    assert!(Folder::open(Some(dir.path().into()), vec![dir.path().join("config.yaml")]).is_err());
}

#[test]
fn a_file_without_permission_keeps_its_last_good_objects() {
    let mut watched = watched(&[("a.yaml", &manifest("a", 1))]);
    watched.settle();
    let path = watched.dir.path().join("a.yaml");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    let is_refused = fs::read(&path).is_err();
    let snapshot = watched.settle();
    // Root can read the file anyway; then nothing changes.
    assert_eq!(snapshot.is_some(), is_refused);
    if let Some(snapshot) = snapshot {
        assert_eq!(pods(&snapshot), owned(&[("a", 1)]));
        assert!(watched.messages(&snapshot).starts_with("DIR/a.yaml: "), "{}", watched.messages(&snapshot));
    }
}

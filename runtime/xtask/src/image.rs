//! Images without a builder: a root file system and a few words about it, as a tar that `ctr images import`, `docker load`,
//! `skopeo` and `crane` read.
//!
//! Format: OCI image layout 1.1 (github.com/opencontainers/image-spec), with the `manifest.json` of `docker save` beside it for
//! those who know only that.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::command;
use crate::tree::{Node, Tree};
use crate::workspace::Workspace;

/// Where the agent looks for the default modules without `--module-dir`.
const MODULES: &str = "/usr/lib/qosm/policies";

/// Which image to make.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where to write it; `qosm-image.tar` in the target directory, if not said.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// What it is called once it is imported.
    #[arg(long, value_name = "NAME:TAG", default_value = "qosm:dev")]
    name: String,
}

/// An image with one layer.
pub(crate) struct Image<'a> {
    /// Name and tag, as in a pod.
    pub(crate) name: &'a str,
    /// What it holds.
    pub(crate) tree: &'a Tree,
    /// What runs, unless a pod says otherwise.
    pub(crate) entrypoint: &'a [&'a str],
}

/// Puts together the image of what was built; builds nothing itself.
///
/// The modules are in it as Wasm, not compiled: the agent takes native code only from a cache that it wrote itself, with a key
/// that never leaves its node, and a key in an image would be public. It compiles them at its first start on a node.
///
/// # Errors
///
/// When the binary or the modules are not there, or the file cannot be written.
pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<()> {
    let output = args.output.clone().unwrap_or_else(|| workspace.target().join("qosm-image.tar"));
    write_qosm(workspace, &args.name, &output)
}

/// The same, to a file.
///
/// # Errors
///
/// As [`run`].
pub(crate) fn write_qosm(workspace: &Workspace, name: &str, output: &Path) -> Result<()> {
    let (binary, modules) = (workspace.binary(), workspace.modules());
    ensure!(binary.is_file(), "{} is missing: run `make build`", binary.display());
    ensure!(modules.join("cpu-burst.wasm").is_file(), "{} holds no modules: run `make build`", modules.display());
    let mut tree = Tree::default();
    tree.add_program(&binary, Path::new("/usr/bin/qosm"))?;
    tree.add(&modules, Path::new(MODULES))?;
    tree.add_folder(Path::new("/tmp"));
    let size = Image { name, tree: &tree, entrypoint: &["/usr/bin/qosm"] }.write(output)?;
    command::heading(&format!("image {name}"));
    println!("    {} ({size} bytes)", output.display());
    Ok(())
}

impl Image<'_> {
    /// Writes the image, the same bytes for the same files, and returns their number.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub(crate) fn write(&self, output: &Path) -> Result<u64> {
        let layer = layer(self.tree).context("the image's layer cannot be made")?;
        let config = json!({
            "architecture": architecture(), "os": "linux", "created": "1970-01-01T00:00:00Z",
            "config": {"User": "0", "Entrypoint": self.entrypoint, "WorkingDir": "/", "Env": ["PATH=/usr/bin:/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{}", digest(&layer))]},
            "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "cargo xtask"}],
        });
        let config = config.to_string().into_bytes();
        let blob = |kind: &str, bytes: &[u8]| {
            let media = format!("application/vnd.oci.image.{kind}");
            json!({"mediaType": media, "digest": format!("sha256:{}", digest(bytes)), "size": bytes.len()})
        };
        let manifest = json!({
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": blob("config.v1+json", &config), "layers": [blob("layer.v1.tar", &layer)],
        });
        let manifest = manifest.to_string().into_bytes();
        let mut entry = blob("manifest.v1+json", &manifest);
        let tag = self.name.rsplit_once(':').map_or("latest", |(_, tag)| tag);
        entry["annotations"] = json!({
            "io.containerd.image.name": full_name(self.name), "org.opencontainers.image.ref.name": tag,
        });
        let index = json!({
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [entry],
        });
        let saved = json!([{
            "RepoTags": [self.name], "Config": blob_path(&config), "Layers": [blob_path(&layer)],
        }]);
        let text = |value: &Value| value.to_string().into_bytes();
        let files = [
            ("oci-layout".to_owned(), text(&json!({"imageLayoutVersion": "1.0.0"}))),
            ("index.json".to_owned(), text(&index)),
            ("manifest.json".to_owned(), text(&saved)),
            (blob_path(&manifest), manifest),
            (blob_path(&config), config),
            (blob_path(&layer), layer),
        ];
        write(output, &files).with_context(|| format!("{} cannot be written", output.display()))
    }
}

/// The name that containerd keeps an image under, which has its registry in it.
fn full_name(name: &str) -> String {
    match name.split_once('/') {
        Some((registry, _)) if registry.contains(['.', ':']) => name.to_owned(),
        Some(_) => format!("docker.io/{name}"),
        None => format!("docker.io/library/{name}"),
    }
}

/// This machine, as Debian and container images call it.
pub(crate) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn blob_path(bytes: &[u8]) -> String {
    format!("blobs/sha256/{}", digest(bytes))
}

/// In one step, like everything that others may be reading.
fn write(output: &Path, files: &[(String, Vec<u8>)]) -> Result<u64> {
    let fresh = output.with_extension("tar.new");
    let mut archive = tar::Builder::new(File::create(&fresh)?);
    for (name, content) in files {
        append(&mut archive, Path::new(name), &Node::File { executable: false, content: content.clone() })?;
    }
    let file = archive.into_inner()?;
    let size = file.metadata()?.len();
    drop(file);
    std::fs::rename(&fresh, output)?;
    Ok(size)
}

/// Everything is root's and of no date.
fn layer(tree: &Tree) -> Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for (path, node) in tree.nodes() {
        append(&mut archive, path.strip_prefix("/").unwrap_or(path), node)?;
    }
    Ok(archive.into_inner()?)
}

fn append(archive: &mut tar::Builder<impl Write>, path: &Path, node: &Node) -> Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    let (kind, mode) = match node {
        Node::Folder => (tar::EntryType::Directory, 0o755),
        Node::File { executable: true, .. } => (tar::EntryType::Regular, 0o755),
        Node::File { executable: false, .. } => (tar::EntryType::Regular, 0o644),
        Node::Link(_) => (tar::EntryType::Symlink, 0o777),
    };
    header.set_entry_type(kind);
    header.set_mode(mode);
    let content = if let Node::File { content, .. } = node { content.as_slice() } else { &[] };
    header.set_size(u64::try_from(content.len())?);
    match node {
        Node::Link(target) => archive.append_link(&mut header, path, target)?,
        Node::Folder | Node::File { .. } => archive.append_data(&mut header, path, content)?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_completed_as_containerd_does() {
        for (name, full) in [
            ("qosm:dev", "docker.io/library/qosm:dev"),
            ("qosm/agent:1", "docker.io/qosm/agent:1"),
            ("qosm.test/busybox:1", "qosm.test/busybox:1"),
        ] {
            assert_eq!(full_name(name), full);
        }
    }

    #[test]
    fn the_same_files_make_the_same_image_and_every_digest_is_that_of_its_blob() {
        let folder = tempfile::tempdir().unwrap();
        let mut tree = Tree::default();
        tree.add_script(Path::new("/bin/true"), "#!/bin/sh\n");
        tree.add_link(Path::new("/bin/false"), Path::new("true"));
        let make = |name: &str| {
            let file = folder.path().join(name);
            Image { name: "a:b", tree: &tree, entrypoint: &["/bin/true"] }.write(&file).unwrap();
            std::fs::read(file).unwrap()
        };
        let image = make("one.tar");
        assert_eq!(image, make("two.tar"));
        let mut blobs = 0;
        for entry in tar::Archive::new(image.as_slice()).entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().into_owned();
            let mut content = Vec::new();
            std::io::Read::read_to_end(&mut entry, &mut content).unwrap();
            if let Ok(name) = path.strip_prefix("blobs/sha256") {
                assert_eq!(name.to_str().unwrap(), digest(&content));
                blobs += 1;
            }
        }
        assert_eq!(blobs, 3);
    }
}

//! Images without a builder: a root file system and a few words about it, as a tar that `ctr images import`, `docker load`,
//! `skopeo` and `crane` read.
//!
//! Format: OCI image layout 1.1 (github.com/opencontainers/image-spec), with the `manifest.json` of `docker save` beside it for
//! those who know only that.

use std::collections::BTreeMap;
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

/// What an image says of itself (image-spec, annotations.md).
const LABELS: [(&str, &str); 5] = [
    ("org.opencontainers.image.title", "qosm"),
    ("org.opencontainers.image.description", "Node agent that hosts WebAssembly QoS policies"),
    ("org.opencontainers.image.source", env!("CARGO_PKG_REPOSITORY")),
    ("org.opencontainers.image.licenses", env!("CARGO_PKG_LICENSE")),
    ("org.opencontainers.image.version", env!("CARGO_PKG_VERSION")),
];

/// Which image to make.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where to write it; `qosm-image.tar` in the target directory, if not said.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// What it is called once it is imported.
    #[arg(long, value_name = "NAME:TAG", default_value = "qosm:dev", value_parser = image_name)]
    name: String,
}

/// A name with a tag, as registries allow it (distribution-spec, "Pulling manifests").
fn image_name(text: &str) -> Result<String, String> {
    let help = "use [HOST[:PORT]/]PATH:TAG, such as registry.example.com/qosm:1.0";
    let (name, tag) = text.rsplit_once(':').ok_or_else(|| format!("it has no tag; {help}"))?;
    if tag.contains('/') {
        return Err(format!("it has no tag; {help}"));
    }
    let is_tag = |at: usize, of: char| of.is_ascii_alphanumeric() || of == '_' || (at > 0 && ".-".contains(of));
    if tag.is_empty() || tag.len() > 128 || !tag.chars().enumerate().all(|(at, of)| is_tag(at, of)) {
        return Err(format!("`{tag}` is no tag; {help}"));
    }
    let is_host = |part: &str| part.contains(['.', ':']) || part == "localhost";
    let path = match name.split_once('/') {
        Some((host, path)) if is_host(host) => path,
        _ => name,
    };
    let is_part = |part: &str| {
        let ends = |of: char| of.is_ascii_lowercase() || of.is_ascii_digit();
        part.starts_with(ends) && part.ends_with(ends) && part.chars().all(|of| ends(of) || "._-".contains(of))
    };
    if !path.split('/').all(is_part) {
        return Err(format!("`{name}` is no name of an image; {help}"));
    }
    Ok(text.to_owned())
}

/// An image with one layer.
pub(crate) struct Image<'a> {
    /// Name and tag, as in a pod.
    pub(crate) name: &'a str,
    /// What it holds.
    pub(crate) tree: &'a Tree,
    /// What runs, unless a pod says otherwise.
    pub(crate) entrypoint: &'a [&'a str],
    /// What it says of itself.
    pub(crate) labels: &'a [(&'a str, &'a str)],
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
    tree.add(&workspace.root().join("LICENSE"), Path::new("/usr/share/doc/qosm/LICENSE"))?;
    tree.add_folder(Path::new("/tmp"));
    let size = Image { name, tree: &tree, entrypoint: &["/usr/bin/qosm"], labels: &LABELS }.write(output)?;
    command::heading(&format!("image {name}"));
    println!("    {} ({size} bytes)", output.display());
    println!(
        "    skopeo copy docker-archive:{} docker://{name}    # or docker load, ctr images import",
        output.display()
    );
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
        let labels: BTreeMap<&str, &str> = self.labels.iter().copied().collect();
        let config = json!({
            "architecture": architecture(), "os": "linux", "created": "1970-01-01T00:00:00Z",
            "config": {"User": "0", "Entrypoint": self.entrypoint, "WorkingDir": "/", "Env": ["PATH=/usr/bin:/bin"], "Labels": labels},
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
    fn a_name_that_no_registry_takes_is_refused() {
        for name in ["qosm:dev", "ghcr.io/qosm/qosm:0.1.0", "localhost:5000/a/b_c:_x", "127.0.0.1:5000/qosm:try-1"] {
            assert_eq!(image_name(name).as_deref(), Ok(name));
        }
        for (name, why) in [
            ("qosm", "it has no tag"),
            ("localhost:5000/qosm", "it has no tag"),
            ("qosm:", "`` is no tag"),
            ("qosm:-x", "`-x` is no tag"),
            ("Qosm:dev", "`Qosm` is no name"),
            ("ghcr.io//qosm:dev", "`ghcr.io//qosm` is no name"),
            ("a b:dev", "`a b` is no name"),
        ] {
            let error = image_name(name).unwrap_err();
            assert!(error.starts_with(why) && error.contains("such as"), "{name}: {error}");
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
            Image { name: "a:b", tree: &tree, entrypoint: &["/bin/true"], labels: &[] }.write(&file).unwrap();
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

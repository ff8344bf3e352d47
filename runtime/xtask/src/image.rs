//! Builds images without an image builder: a root file system with metadata, as a tar that `ctr images import`, `docker load`, `skopeo` and
//! `crane` read.
//!
//! Format: OCI image layout 1.1 (github.com/opencontainers/image-spec), with the `manifest.json` of `docker save` for programs that know
//! only that.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::command;
use crate::tree::{Node, Tree, glibc};
use crate::workspace::{Shipped, Workspace};

/// The project's image, without a tag: the chart's default.
pub(crate) const REPOSITORY: &str = "ghcr.io/qosm/qosm";

/// Where the agent looks for the default modules without `--module-dir`.
const MODULES: &str = "/usr/lib/qosm/policies";

/// Annotations of the image (image-spec, annotations.md).
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
    /// File to write. Default: `qosm-image.tar` in the target directory.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Name of the image after its import.
    #[arg(long, value_name = "NAME:TAG", default_value = "qosm:dev", value_parser = image_name)]
    name: String,
    #[command(flatten)]
    pub(crate) programs: Shipped,
}

/// A name with a tag, by the grammar of references (github.com/distribution/reference, reference.go).
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
    let (host, path) = split_host(name);
    if let Some(host) = host.filter(|host| !is_well_formed_host(host)) {
        return Err(format!("`{host}` is no host of a registry; {help}"));
    }
    if !path.split('/').all(is_component) {
        return Err(format!("`{name}` is no name of an image; {help}"));
    }
    Ok(text.to_owned())
}

/// Whether the first part of a name is a registry's host, and not the first component of a path.
fn is_host(part: &str) -> bool {
    part.contains(['.', ':']) || part == "localhost"
}

/// Splits a name into its host, if it has one, and the rest.
fn split_host(name: &str) -> (Option<&str>, &str) {
    match name.split_once('/') {
        Some((host, path)) if is_host(host) => (Some(host), path),
        _ => (None, name),
    }
}

/// Whether a host consists of labels of letters, digits and inner hyphens, separated by dots, with an optional port.
fn is_well_formed_host(host: &str) -> bool {
    let (labels, port) = host.split_once(':').map_or((host, None), |(labels, port)| (labels, Some(port)));
    let is_label = |label: &str| {
        let ends = |of: char| of.is_ascii_alphanumeric();
        label.starts_with(ends) && label.ends_with(ends) && label.chars().all(|of| ends(of) || of == '-')
    };
    let is_port = |port: &str| !port.is_empty() && port.chars().all(|of| of.is_ascii_digit());
    labels.split('.').all(is_label) && port.is_none_or(is_port)
}

/// Whether a path component consists of lower case letters and digits with single separators between them: a dot, one or two underscores,
/// or any number of hyphens.
fn is_component(part: &str) -> bool {
    let inner = |of: char| of.is_ascii_lowercase() || of.is_ascii_digit();
    let is_separator = |of: &str| matches!(of, "" | "." | "_" | "__") || of.chars().all(|of| of == '-');
    part.starts_with(inner) && part.ends_with(inner) && part.split(inner).all(is_separator)
}

/// An image with one layer.
pub(crate) struct Image<'a> {
    /// Name and tag, as in a pod's specification.
    pub(crate) name: &'a str,
    /// Files of the image.
    pub(crate) tree: &'a Tree,
    /// Entry point, unless the pod sets another one.
    pub(crate) entrypoint: &'a [&'a str],
    /// Annotations of the image.
    pub(crate) labels: &'a [(&'a str, &'a str)],
}

/// Assembles the image of the built programs; builds nothing itself.
///
/// The modules are in it as Wasm, not compiled. The agent accepts native code only from a cache that it wrote itself, with a key that never
/// leaves its node; a key in an image would be public. The agent compiles the modules at its first start on a node.
///
/// # Errors
///
/// When the binary or the modules are not there, the C library is too old, or the file cannot be written.
pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<()> {
    let output = args.output.clone().unwrap_or_else(|| workspace.target().join("qosm-image.tar"));
    write_qosm(workspace, &args.name, &output)?;
    hints(&args.name, &output).iter().for_each(|line| println!("    {line}"));
    Ok(())
}

/// The commands to run next. A push is suggested only if the name has a registry.
fn hints(name: &str, output: &Path) -> Vec<String> {
    let file = output.display().to_string();
    let mut lines = vec![
        format!("docker load -i {}", quoted(&file)),
        format!("ctr -n k8s.io images import {}    # as root, on a node", quoted(&file)),
    ];
    let is_ours = name.rsplit_once(':').is_some_and(|(name, _)| name == REPOSITORY);
    if split_host(name).0.is_some() && !is_ours {
        let [from, to] = [format!("docker-archive:{file}"), format!("docker://{name}")];
        lines.push(format!("skopeo copy {} {}    # to its registry", quoted(&from), quoted(&to)));
    }
    lines
}

/// Quotes a word for a shell, if necessary.
fn quoted(word: &str) -> String {
    let is_plain = |of: char| of.is_ascii_alphanumeric() || "/._-:@%+=,".contains(of);
    if word.chars().all(is_plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

/// Refuses a C library that loads further files to resolve names: before 2.34, `libnss_dns` and `libnss_files` are separate files (its
/// NEWS).
fn resolves_names_alone(version: &str) -> Result<()> {
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().ok());
    let (Some(Some(major)), Some(Some(minor))) = (numbers.next(), numbers.next()) else {
        bail!("the C library's version, `{version}`, is none of glibc");
    };
    ensure!(
        (major, minor) >= (2, 34),
        "this machine's glibc {version} is too old for an image: names of registries would not be resolved in it. Build where glibc is 2.34 or \
         newer, such as Debian 12 or Ubuntu 22.04"
    );
    Ok(())
}

/// Writes the image to a file.
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
    if tree.nodes().any(|(path, _)| path.ends_with("libc.so.6")) {
        resolves_names_alone(&glibc()?)?;
    }
    tree.add(&modules, Path::new(MODULES))?;
    tree.add(&workspace.root().join("LICENSE"), Path::new("/usr/share/doc/qosm/LICENSE"))?;
    tree.add_folder(Path::new("/tmp"));
    let size = Image { name, tree: &tree, entrypoint: &["/usr/bin/qosm"], labels: &LABELS }.write(output)?;
    command::heading(&format!("image {name}"));
    println!("    {} ({size} bytes)", output.display());
    Ok(())
}

impl Image<'_> {
    /// Writes the image, and returns its size in bytes. The same files give the same bytes.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
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

/// The name under which containerd stores an image, which includes the registry.
fn full_name(name: &str) -> String {
    match split_host(name) {
        (Some(_), _) => name.to_owned(),
        (None, path) if path.contains('/') => format!("docker.io/{path}"),
        (None, path) => format!("docker.io/library/{path}"),
    }
}

/// This machine's architecture, as Debian and container images spell it.
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

/// Replaces the file in one step, since others may be reading it.
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

/// All files belong to root and have no date.
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
            ("localhost/qosm:dev", "localhost/qosm:dev"),
        ] {
            assert_eq!(full_name(name), full);
        }
    }

    #[test]
    fn a_name_that_no_registry_takes_is_refused() {
        for name in [
            "qosm:dev",
            "ghcr.io/qosm/qosm:0.1.0",
            "localhost:5000/a/b_c:_x",
            "127.0.0.1:5000/qosm:try-1",
            "localhost/qosm:dev",
            "My-Registry.example/a__b/c---d/e.f:1",
        ] {
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
            ("$(id).x/q:1", "`$(id).x` is no host"),
            ("a b.c/d:x", "`a b.c` is no host"),
            ("-x.y/q:1", "`-x.y` is no host"),
            ("host:/q:1", "`host:` is no host"),
            ("host:a/q:1", "`host:a` is no host"),
            ("a..b:1", "`a..b` is no name"),
            ("a._b:1", "`a._b` is no name"),
            ("a___b:1", "`a___b` is no name"),
            ("a-_b:1", "`a-_b` is no name"),
        ] {
            let error = image_name(name).unwrap_err();
            assert!(error.starts_with(why) && error.contains("such as"), "{name}: {error}");
        }
    }

    #[test]
    fn a_c_library_that_loads_more_to_resolve_names_is_refused() {
        for version in ["2.34", "2.36", "2.100", "3.0", "2.34.1"] {
            resolves_names_alone(version).unwrap();
        }
        for version in ["2.33", "1.40", "2.33.9000"] {
            let error = resolves_names_alone(version).unwrap_err().to_string();
            assert!(error.contains(version) && error.contains("2.34 or newer"), "{error}");
        }
        resolves_names_alone("musl").unwrap_err();
    }

    #[test]
    fn what_is_told_to_type_is_quoted_and_pushes_to_a_registry_of_ones_own_only() {
        let lines = |name: &str, file: &str| hints(name, Path::new(file)).join("\n");
        let load = "docker load -i /t/q.tar\nctr -n k8s.io images import /t/q.tar    # as root, on a node";
        for name in ["qosm:dev", "qosm/agent:1", &format!("{REPOSITORY}:1.0")] {
            assert_eq!(lines(name, "/t/q.tar"), load);
        }
        let pushed = lines("127.0.0.1:5000/qosm:try", "/t/q.tar");
        let push = "skopeo copy docker-archive:/t/q.tar docker://127.0.0.1:5000/qosm:try    # to its registry";
        assert_eq!(pushed, format!("{load}\n{push}"));
        assert!(lines("qosm:dev", "/a b/it's.tar").starts_with("docker load -i '/a b/it'\\''s.tar'\n"));
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

//! Layouts in folders and archives, as sources and as targets.

use std::fs;
use std::path::{Path, PathBuf};

use qosm_model::digest::Digest;
use qosm_registry::{Artifact, Label, RegistryError};
use serde_json::{Value, json};

use crate::artefact::{Artefact, INDEX, Key, noise};
use crate::node::{Node, location, message};

/// An artefact with its name in the index.
type Named<'a> = (Option<&'a str>, Artefact);

fn policy() -> Artefact {
    Artefact::policy(&noise(21, 1000))
}

/// A layout in a folder, as other tools write it.
struct Folder {
    path: PathBuf,
    entries: Vec<Value>,
}

impl Folder {
    fn new(path: PathBuf) -> Self {
        fs::create_dir_all(path.join("blobs/sha256")).unwrap();
        fs::write(path.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
        Self { path, entries: Vec::new() }
    }

    /// Stores an artefact and lists it in the index, under a name if there is one.
    fn list(&mut self, name: Option<&str>, artefact: &Artefact) {
        let mut entry = self.keep(artefact);
        if let Some(name) = name {
            entry["annotations"] = json!({"org.opencontainers.image.ref.name": name});
        }
        self.entries.push(entry);
        let index = json!({"schemaVersion": 2, "manifests": self.entries});
        fs::write(self.path.join("index.json"), index.to_string()).unwrap();
    }

    /// Stores an artefact. Returns its descriptor.
    fn keep(&self, artefact: &Artefact) -> Value {
        for bytes in artefact.blobs.iter().chain([&artefact.manifest]) {
            fs::write(self.blob(bytes), bytes).unwrap();
        }
        let (media_type, digest) = (&artefact.media_type, artefact.digest().to_string());
        json!({"mediaType": media_type, "digest": digest, "size": artefact.manifest.len()})
    }

    /// The file of a blob with these bytes.
    fn blob(&self, bytes: &[u8]) -> PathBuf {
        self.path.join("blobs/sha256").join(Digest::of(bytes).hex())
    }

    /// `oci-layout:PATH` with this after it.
    fn named(&self, rest: &str) -> String {
        format!("oci-layout:{}{rest}", self.path.display())
    }
}

#[tokio::test]
async fn a_withdrawn_key_does_not_count_for_a_module_from_a_layout_either() {
    let mut node = Node::beside(&[]);
    let mut folder = Folder::new(node.folder().join("layout"));
    let release = Key::new("release", 1);
    folder.list(Some("1"), &policy());
    folder.list(None, &release.bundle(&policy()));
    node.trust(vec![release.rule("oci-layout:*")]);
    let digest = node.pull(&folder.named(":1")).await.unwrap().digest;
    // What the agent asks for a running module.
    let pinned = location(&folder.named(":1")).pinned(digest).to_string();
    assert!(node.stored(&pinned).unwrap().is_some());
    node.trust(vec![Key::new("next", 2).rule("oci-layout:*")]);
    let error = node.stored(&pinned).unwrap_err();
    assert!(matches!(error, RegistryError::Untrusted { .. }), "{error:?}");
}

/// Pushes a module with this name. Returns the artefact's digest.
async fn push(node: &Node, name: &str, to: &str) -> Result<Digest, RegistryError> {
    let label = Label { name: name.to_owned(), created: "1970-01-01T00:00:00Z".to_owned(), ..Label::default() };
    let artifact = Artifact::pack(b"\0asm\x01\0\0\0".to_vec(), label).unwrap();
    node.store().push(&artifact, &location(to), &mut ()).await.map(|stored| stored.digest)
}

#[tokio::test]
async fn an_artefact_is_added_to_an_archive_and_the_others_stay() {
    let node = Node::beside(&[]);
    let named = |rest: &str| format!("oci-layout:{}{rest}", node.folder().join("some.tar").display());
    let first = push(&node, "first", &named(":1")).await.unwrap();
    let second = push(&node, "second", &named(":2")).await.unwrap();
    let folder = format!("oci-layout:{}:3", node.folder().join("folder").display());
    let third = push(&node, "third", &folder).await.unwrap();
    node.copy(&folder, &named(":3")).await.unwrap();
    for (tag, digest) in [(":1", first), (":2", second), (":3", third)] {
        assert_eq!(node.pull_anew(&named(tag)).await.unwrap().digest, digest, "{tag}");
    }
}

#[tokio::test]
async fn a_file_that_is_no_layout_is_not_overwritten() {
    let node = Node::beside(&[]);
    let file = node.folder().join("backup.tar");
    let mut other = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(5);
    header.set_mode(0o644);
    other.append_data(&mut header, "notes.txt", &b"notes"[..]).unwrap();
    for content in [other.into_inner().unwrap(), b"no archive".to_vec(), Vec::new()] {
        fs::write(&file, &content).unwrap();
        let error = push(&node, "demo", &format!("oci-layout:{}:1", file.display())).await.unwrap_err();
        assert!(message(&error).contains("backup.tar"), "{error}");
        assert_eq!(fs::read(&file).unwrap(), content, "{error}");
    }
}

#[tokio::test]
async fn an_archive_is_unpacked_without_its_links() {
    let node = Node::beside(&[]);
    let (file, outside) = (node.folder().join("some.tar"), node.folder().join("outside"));
    fs::create_dir(&outside).unwrap();
    let mut archive = tar::Builder::new(Vec::new());
    let mut link = tar::Header::new_gnu();
    link.set_entry_type(tar::EntryType::Symlink);
    link.set_size(0);
    archive.append_link(&mut link, "blobs", &outside).unwrap();
    let marker = br#"{"imageLayoutVersion":"1.0.0"}"#;
    let mut header = tar::Header::new_gnu();
    header.set_size(marker.len().try_into().unwrap());
    header.set_mode(0o644);
    archive.append_data(&mut header, "oci-layout", &marker[..]).unwrap();
    fs::write(&file, archive.into_inner().unwrap()).unwrap();
    push(&node, "demo", &format!("oci-layout:{}:1", file.display())).await.unwrap();
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
}

#[tokio::test]
async fn a_layout_takes_only_the_artefact_that_the_digest_names() {
    let node = Node::beside(&[]);
    let folder = node.folder().join("layout");
    let error =
        push(&node, "demo", &format!("oci-layout:{}@{}", folder.display(), policy().digest())).await.unwrap_err();
    let RegistryError::Digest { expected, found, .. } = error else { panic!("{error:?}") };
    assert_eq!(expected, policy().digest());
    assert!(!folder.exists());
    let named = format!("oci-layout:{}@{found}", folder.display());
    assert_eq!(push(&node, "demo", &named).await.unwrap(), found);
    assert_eq!(node.pull(&named).await.unwrap().digest, found);
}

/// Changes one bit of a file.
fn damage(file: &Path) {
    let mut bytes = fs::read(file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(file, bytes).unwrap();
}

#[tokio::test]
async fn a_damaged_blob_of_a_layout_is_named_and_not_deleted() {
    let mut node = Node::beside(&[]);
    let (artefact, release) = (policy(), Key::new("release", 1));
    let signature = release.bundle(&artefact);
    for (blob, is_signature) in [
        (artefact.module(), false),
        (artefact.manifest.as_slice(), false),
        (signature.blobs[0].as_slice(), true),
        (signature.manifest.as_slice(), true),
    ] {
        let mut folder = Folder::new(node.folder().join(Digest::of(blob).hex()));
        folder.list(Some("1"), &policy());
        folder.list(None, &signature);
        let file = folder.blob(blob);
        damage(&file);
        node.trust(if is_signature { vec![release.rule("*")] } else { Vec::new() });
        let error = node.pull(&folder.named(":1")).await.unwrap_err();
        let expected =
            format!("its bytes are {} instead of {}", Digest::of(&fs::read(&file).unwrap()), Digest::of(blob));
        assert!(
            message(&error).contains(&expected) && message(&error).contains(&file.display().to_string()),
            "{error}"
        );
        assert_eq!(matches!(error, RegistryError::Untrusted { .. }), is_signature, "{error:?}");
    }
}

#[tokio::test]
async fn a_missing_blob_of_a_layout_is_named() {
    let (node, artefact) = (Node::beside(&[]), policy());
    for blob in [artefact.module(), artefact.manifest.as_slice()] {
        let mut folder = Folder::new(node.folder().join(Digest::of(blob).hex()));
        folder.list(Some("1"), &policy());
        fs::remove_file(folder.blob(blob)).unwrap();
        let error = message(&node.pull(&folder.named(":1")).await.unwrap_err());
        assert!(error.contains(&format!("no such blob: {}; the layout is incomplete", Digest::of(blob))), "{error}");
        let error = message(&node.pull(&folder.named(":2")).await.unwrap_err());
        assert!(error.contains("no such artefact; there are: 1"), "{error}");
    }
}

#[tokio::test]
async fn a_broken_index_of_a_layout_is_named_by_the_path_that_was_written() {
    let node = Node::beside(&[]);
    let folder = Folder::new(node.folder().join("layout"));
    fs::write(folder.path.join("index.json"), "[]").unwrap();
    let archive = node.folder().join("some.tar");
    let mut packed = tar::Builder::new(fs::File::create(&archive).unwrap());
    packed.append_dir_all("", &folder.path).unwrap();
    packed.finish().unwrap();
    for path in [&folder.path, &archive] {
        let error = message(&node.pull(&format!("oci-layout:{}:1", path.display())).await.unwrap_err());
        assert!(error.starts_with(&path.join("index.json").display().to_string()), "{error}");
        assert!(error.ends_with("copy the layout here again"), "{error}");
    }
}

#[tokio::test]
async fn verify_and_inspect_count_only_the_signatures_of_the_place_that_is_named() {
    let mut node = Node::beside(&[]);
    let release = Key::new("release", 1);
    node.trust(vec![release.rule("*")]);
    let mut signed = Folder::new(node.folder().join("signed"));
    signed.list(Some("1"), &policy());
    signed.list(None, &release.bundle(&policy()));
    let mut unsigned = Folder::new(node.folder().join("unsigned"));
    unsigned.list(Some("1"), &policy());
    for (folder, signatures) in [(&signed, 1), (&unsigned, 0), (&signed, 1)] {
        let (store, location) = (node.store(), location(&folder.named(":1")));
        let verification = store.verify(&location, None).await.unwrap();
        assert_eq!(verification.trusted.is_some(), signatures > 0, "{verification:?}");
        assert_eq!(store.inspect(&location).await.unwrap().signatures, signatures, "{location}");
    }
}

#[tokio::test]
async fn without_a_tag_it_is_the_only_artefact_that_is_not_a_signature() {
    let node = Node::beside(&[]);
    let other = Artefact::policy(&noise(22, 1000));
    let signature = || Key::new("release", 1).bundle(&policy());
    let old = Key::new("release", 1).legacy(policy().digest());
    let tag = format!("sha256-{}.sig", policy().digest().hex());
    let listed: [(&[Named<'_>], &str); 6] = [
        (&[(None, policy()), (None, signature()), (None, old.clone())], ""),
        (&[(Some("1"), policy()), (Some("latest"), policy()), (None, other.clone())], ""),
        (&[(Some("1"), policy()), (Some(tag.as_str()), old)], ""),
        (&[(Some("1"), policy()), (Some("2"), other.clone())], "say which with `:TAG`; there are: 1, 2"),
        (&[(None, policy()), (None, other)], "say which with `@DIGEST`; there are: sha256:"),
        (&[(None, signature())], "it is empty"),
    ];
    for (number, (artefacts, expected)) in listed.into_iter().enumerate() {
        let mut folder = Folder::new(node.folder().join(number.to_string()));
        for (name, artefact) in artefacts {
            folder.list(*name, artefact);
        }
        match node.pull(&folder.named("")).await {
            Ok(pulled) => assert_eq!((pulled.digest, expected), (policy().digest(), ""), "{number}"),
            Err(error) => assert!(!expected.is_empty() && message(&error).contains(expected), "{number}: {error}"),
        }
    }
}

#[tokio::test]
async fn a_pushed_artefact_without_a_tag_is_found() {
    let node = Node::beside(&[]);
    let to = format!("oci-layout:{}", node.folder().join("layout").display());
    let digest = push(&node, "demo", &to).await.unwrap();
    assert_eq!(node.pull(&to).await.unwrap().digest, digest);
}

#[tokio::test]
async fn a_signature_in_the_index_that_replaces_the_referrers_api_counts() {
    let mut node = Node::beside(&[]);
    let release = Key::new("release", 1);
    node.trust(vec![release.rule("*")]);
    let mut folder = Folder::new(node.folder().join("layout"));
    folder.list(Some("1"), &policy());
    let entry = folder.keep(&release.bundle(&policy()));
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]}).to_string();
    let index = Artefact { media_type: INDEX.to_owned(), manifest: index.into_bytes(), blobs: Vec::new() };
    folder.list(Some(&format!("sha256-{}", policy().digest().hex())), &index);
    assert_eq!(node.pull(&folder.named(":1")).await.unwrap().trusted.to_string(), "signed by release");
    assert!(node.stored(&folder.named(":1")).unwrap().is_some());
}

#[tokio::test]
async fn an_index_with_null_for_its_list_is_empty() {
    let node = Node::beside(&[]);
    let folder = Folder::new(node.folder().join("layout"));
    fs::write(folder.path.join("index.json"), r#"{"schemaVersion":2,"manifests":null}"#).unwrap();
    let error = message(&node.pull(&folder.named(":1")).await.unwrap_err());
    assert!(error.ends_with("no such artefact; it is empty"), "{error}");
    push(&node, "demo", &folder.named(":1")).await.unwrap();
    node.pull(&folder.named(":1")).await.unwrap();
}

#[tokio::test]
async fn the_names_in_a_layout_are_its_versions() {
    let node = Node::beside(&[]);
    let mut folder = Folder::new(node.folder().join("layout"));
    let signature = Key::new("release", 1).legacy(policy().digest());
    folder.list(Some("2"), &policy());
    folder.list(Some("1"), &policy());
    folder.list(None, &policy());
    folder.list(Some(&format!("sha256-{}.sig", policy().digest().hex())), &signature);
    assert_eq!(node.store().versions(&location(&folder.named(""))).await.unwrap(), ["1", "2"]);
    let pinned = folder.named(&format!(":1@{}", policy().digest()));
    assert_eq!(node.store().inspect(&location(&pinned)).await.unwrap().moved, None);
    let other = Artefact::policy(&noise(22, 1000));
    let mut moved = Folder::new(node.folder().join("moved"));
    moved.list(Some("1"), &other);
    moved.list(None, &policy());
    let pinned = moved.named(&format!(":1@{}", policy().digest()));
    assert_eq!(node.store().inspect(&location(&pinned)).await.unwrap().moved, Some(other.digest()));
}

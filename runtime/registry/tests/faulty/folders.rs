//! Layouts in folders and archives, as sources and as targets.

use std::fs;
use std::path::PathBuf;

use qosm_registry::RegistryError;
use serde_json::{Value, json};

use crate::artefact::{Artefact, Key, noise};
use crate::node::{Node, location};

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
        self.path.join("blobs/sha256").join(qosm_model::digest::Digest::of(bytes).hex())
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
    node.trust(vec![release.rule("*")]);
    let digest = node.pull(&folder.named(":1")).await.unwrap().digest;
    // What the agent asks for a running module.
    let pinned = location(&folder.named(":1")).pinned(digest).to_string();
    assert!(node.stored(&pinned).unwrap().is_some());
    node.trust(vec![Key::new("next", 2).rule("*")]);
    let error = node.stored(&pinned).unwrap_err();
    assert!(matches!(error, RegistryError::Untrusted { .. }), "{error:?}");
}

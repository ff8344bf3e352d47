//! Properties of any third-party input, one for each fuzz target. Each function panics if its property does not hold. They use
//! the crate's public functions, as the agent does, so that the input is read as from a layout or a registry.
//!
//! Each input gets its own folder; `TMPDIR=/dev/shm` makes that fast.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use qosm_model::digest::Digest;
use qosm_registry::trust::{Candidate, Decision, Format, Outcome, Require, TrustKey, TrustPolicy, TrustRule, judge};
use qosm_registry::{Store, Location, RegistryError, RegistryLimits, RegistrySettings, trust_of};
use serde_json::{Value, json};
use tempfile::TempDir;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const MODULE_MIB: u64 = 1;
/// Upper bound of an error message, in bytes.
const MAX_MESSAGE: usize = 8 << 10;

/// A manifest or index: it is refused, or reported with the digest of exactly these bytes.
pub fn manifest(bytes: &[u8]) {
    let scene = Scene::new();
    let digest = scene.name(bytes);
    scene.put(b"{}");
    let location = scene.location();
    match scene.wait(scene.store().inspect(&location)) {
        Ok(info) => {
            assert_eq!(info.digest, digest);
            let message = info.annotations.iter().flat_map(|(key, value)| [key, value]);
            assert!(message.into_iter().all(|text| !text.contains(char::is_control)), "terminals obey");
        }
        Err(error) => is_readable(&error),
    }
    match scene.wait(scene.store().pull(&location, None, false, &mut ())) {
        Ok(pulled) => assert_eq!(pulled.digest, digest),
        Err(error) => is_readable(&error),
    }
    scene.check_store();
}

/// An image's layer: the module in it is within the bound, however small the archive, and the same at each read.
pub fn layer(bytes: &[u8]) {
    for media_type in ["application/vnd.oci.image.layer.v1.tar", "application/vnd.oci.image.layer.v1.tar+gzip"] {
        let scene = Scene::new();
        let blob = |media_type: &str, bytes: &[u8]| {
            let digest = scene.put(bytes).to_string();
            json!({"mediaType": media_type, "digest": digest, "size": bytes.len()})
        };
        let manifest = json!({
            "schemaVersion": 2,
            "config": blob("application/vnd.oci.image.config.v1+json", b"{}"),
            "layers": [blob(media_type, bytes)],
        });
        scene.name(manifest.to_string().as_bytes());
        let (store, location) = (scene.store(), scene.location());
        match scene.wait(store.pull(&location, None, false, &mut ())) {
            Ok(pulled) => {
                assert!(pulled.module.len() <= usize::try_from(MODULE_MIB << 20).unwrap_or(usize::MAX));
                let stored = store.stored(&location, None);
                assert!(stored.is_ok_and(|stored| stored.is_some_and(|stored| stored.module == pulled.module)));
            }
            Err(error) => is_readable(&error),
        }
    }
}

/// An archive of a layout: nothing is written beside it, and each blob in the store matches its digest.
pub fn layout_archive(bytes: &[u8]) {
    let scene = Scene::new();
    let archive = scene.folder.path().join("brought/layout.tar");
    fs::create_dir_all(scene.folder.path().join("brought")).expect("a folder of our own");
    fs::write(&archive, bytes).expect("a file of our own");
    let location = Location::Layout { path: archive, tag: None, digest: None };
    if let Err(error) = scene.wait(scene.store().pull(&location, None, false, &mut ())) {
        is_readable(&error);
    }
    assert_eq!(fs::read_dir(scene.folder.path().join("brought")).expect("it is there").count(), 1);
    scene.check_store();
}

/// The index of a layout: its entries are looked up among the blobs and nowhere else.
pub fn index(bytes: &[u8]) {
    let scene = Scene::new();
    fs::write(scene.layout().join("index.json"), bytes).expect("a file of our own");
    for tag in [None, Some("1".to_owned())] {
        let location = Location::Layout { path: scene.layout(), tag, digest: None };
        if let Err(error) = scene.wait(scene.store().inspect(&location)) {
            is_readable(&error);
        }
    }
}

/// A candidate signature: whatever it contains, only trusted keys count. The first byte chooses its media type, and the
/// annotation ends at the first zero byte.
pub fn signature(bytes: &[u8]) {
    const KEY: &str = "-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEu6BxI6ripY9Mo76CXuQDG1axbG2j
V1bdm3/BShvSuifspKj/5yvTqKwugX1Dxk/PC4OlH8hRBDLwT1uoDzXLpw==
-----END PUBLIC KEY-----
";
    let Some((first, rest)) = bytes.split_first() else { return };
    let end = rest.iter().position(|byte| *byte == 0).unwrap_or(0);
    let (annotation, blob) = rest.split_at(end);
    let blob = blob.strip_prefix(&[0]).unwrap_or(blob).to_vec();
    let annotation = String::from_utf8_lossy(annotation).into_owned();
    let media_types = [
        "application/vnd.dev.cosign.simplesigning.v1+json",
        "application/vnd.dev.sigstore.bundle.v0.3+json",
        "application/vnd.dev.sigstore.bundle+json;version=0.3",
    ];
    let media_type = media_types[usize::from(*first) % media_types.len()];
    let format = Format::of_layer(media_type).expect("a signature's type");
    let annotations = BTreeMap::from([("dev.cosignproject.cosign/signature".to_owned(), annotation)]);
    let candidate = Candidate { origin: "x".to_owned(), format, blob, annotations, media_type: media_type.to_owned() };
    let rule = TrustRule {
        pattern: "*".to_owned(),
        keys: vec![TrustKey { name: "ours".to_owned(), pem: Some(KEY.to_owned()), path: None }],
        require: Require::Any,
        annotations: BTreeMap::new(),
        docker_reference: first % 2 == 0,
        unsigned: false,
    };
    let trust = trust_of(&TrustPolicy { rules: vec![rule] }).expect("a good key");
    let Decision::Rule(rule) = trust.rule_for("r.io/x") else { unreachable!("it matches everything") };
    let verdict = judge(rule, "r.io/x", &Digest::of(b"signed"), std::slice::from_ref(&candidate));
    assert!(verdict.signatures.is_empty(), "{verdict:?}");
    let Outcome::Refused(why) = &verdict.outcome else { unreachable!("{verdict:?}") };
    assert!(!why.is_empty());
    let message = serde_json::to_string(&verdict.rejected).expect("plain data");
    assert!(message.len() <= MAX_MESSAGE + media_type.len(), "a message without a reader: {} bytes", message.len());
}

/// A reference: a parsed reference that is formatted and parsed again is the same, and names a registry and a version.
pub fn reference(text: &str) {
    let Ok(location) = text.parse::<Location>() else { return };
    let written = location.to_string();
    assert_eq!(written.parse::<Location>().as_ref().map(ToString::to_string), Ok(written.clone()), "{text:?}");
    assert!(!written.contains(char::is_control), "{written:?}");
    if let Location::Registry(reference) = &location {
        assert!(!reference.registry().is_empty() && !reference.repository().is_empty(), "{written:?}");
        assert!(!reference.repository().split('/').any(|part| ["", ".", ".."].contains(&part)), "{written:?}");
        assert!(reference.tag().is_some() || reference.digest().is_some(), "{written:?}");
    }
}

/// Checks an error message: bounded, and without terminal control characters.
fn is_readable(error: &RegistryError) {
    let message = qosm_model::problem::chain(error);
    assert!(message.len() <= MAX_MESSAGE, "a message without a reader: {} bytes", message.len());
    assert!(!message.contains(|character: char| character.is_control() && character != '\n'), "{message:?}");
}

/// A third party's layout, and a store beside it.
struct Scene {
    folder: TempDir,
    runtime: tokio::runtime::Runtime,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder for temporary files");
        fs::create_dir_all(folder.path().join("layout/blobs/sha256")).expect("a folder of our own");
        fs::write(folder.path().join("layout/oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)
            .expect("a file of our own");
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().build().expect("no system calls in it");
        Self { folder, runtime }
    }

    fn layout(&self) -> PathBuf {
        self.folder.path().join("layout")
    }

    fn location(&self) -> Location {
        Location::Layout { path: self.layout(), tag: Some("1".to_owned()), digest: None }
    }

    fn put(&self, bytes: &[u8]) -> Digest {
        let digest = Digest::of(bytes);
        fs::write(self.layout().join("blobs/sha256").join(digest.hex()), bytes).expect("a file of our own");
        digest
    }

    /// Stores a manifest, and names it in the index.
    fn name(&self, manifest: &[u8]) -> Digest {
        let digest = self.put(manifest);
        let entry = json!({
            "mediaType": MANIFEST, "digest": digest.to_string(), "size": manifest.len(),
            "annotations": {"org.opencontainers.image.ref.name": "1"},
        });
        let index: Value = json!({"schemaVersion": 2, "manifests": [entry]});
        fs::write(self.layout().join("index.json"), index.to_string()).expect("a file of our own");
        digest
    }

    fn store_path(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    fn store(&self) -> Store {
        let limits = RegistryLimits { module_mib: MODULE_MIB, ..RegistryLimits::default() };
        let settings = RegistrySettings { limits, ..RegistrySettings::default() };
        Store::open(settings, &self.store_path()).expect("a store of our own")
    }

    fn wait<T>(&self, doing: impl Future<Output = T>) -> T {
        self.runtime.block_on(doing)
    }

    /// Checks the store: each blob matches its digest, and no partial blob is left.
    fn check_store(&self) {
        let list =
            |folder: &Path| fs::read_dir(folder).map(|list| list.flatten().collect::<Vec<_>>()).unwrap_or_default();
        for entry in list(&self.store_path().join("blobs/sha256")) {
            let bytes = fs::read(entry.path()).expect("it is listed");
            assert_eq!(Digest::of(&bytes).hex(), entry.file_name().to_string_lossy());
        }
        assert!(list(&self.store_path().join("ingest")).is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_hold_for_what_is_nearly_right() {
        let digest = Digest::of(b"{}");
        let blob = |media_type: &str| json!({"mediaType": media_type, "digest": digest.to_string(), "size": 2});
        for layer_type in ["application/wasm", "application/vnd.oci.image.layer.v1.tar", "x"] {
            let good = json!({"schemaVersion": 2, "config": blob("x"), "layers": [blob(layer_type)]}).to_string();
            for end in 0..=good.len() {
                manifest(&good.as_bytes()[..end]);
            }
        }
        for bytes in [&b""[..], b"{}", b"\0", b"\x1f\x8b\x08\0", &[0; 1024]] {
            manifest(bytes);
            layer(bytes);
            layout_archive(bytes);
            index(bytes);
            for first in 0..3 {
                signature(&[&[first], bytes].concat());
            }
        }
        for text in ["r.io/x:1", "oci://r.io/x@sha256:1", "oci-layout:/x:1", "oci-layout:x.tar", "r.io/../x:1", ""] {
            reference(text);
        }
    }

    #[test]
    fn a_manifest_cannot_speak_to_the_terminal_or_fill_the_screen() {
        let control = "\u{1b}[31mX".repeat(10_000);
        manifest(json!({"schemaVersion": 2, "config": control}).to_string().as_bytes());
        let blob = json!({"mediaType": control, "digest": "sha256:1", "size": 1});
        manifest(json!({"schemaVersion": 2, "config": blob, "layers": [blob]}).to_string().as_bytes());
        manifest(
            json!({"schemaVersion": 2, "manifests": [{"mediaType": "x", "digest": control, "size": 1}]})
                .to_string()
                .as_bytes(),
        );
        index(json!({"schemaVersion": 2, "manifests": control}).to_string().as_bytes());
    }
}

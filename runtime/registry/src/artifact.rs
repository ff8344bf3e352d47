//! Packs a module into an artefact, reproducibly: CNCF's layout for Wasm, and for an OPA bundle the layout that OPA itself pulls,
//! an image of one layer.
//!
//! Layouts: cncf/tag-runtime, "wasm-oci-artifact"; OPA's "OCI" bundles. The only time in them is `created`, and the caller sets it.

use std::collections::BTreeMap;
use std::io::Read;

use flate2::read::MultiGzDecoder;
use oci_client::manifest::{OciDescriptor, OciImageManifest};
use qosm_model::digest::Digest;
use serde::{Deserialize, Serialize};
use serde_json::json;
use wasmparser::{Parser, Payload};

use crate::error::RegistryError;
use crate::manifest::{self, Document};

/// Media type of the config in CNCF's layout.
pub(crate) const CONFIG: &str = "application/vnd.wasm.config.v0+json";
/// Media type of a Wasm module.
pub(crate) const LAYER: &str = "application/wasm";
/// Media type of the config of an OPA bundle.
const BUNDLE_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
/// Media type of an OPA bundle.
pub(crate) const BUNDLE_LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
/// Maximum size of an unpacked bundle, in bytes.
const MAX_UNPACKED: u64 = 64 << 20;
/// Annotation with a layer's file name, for clients that write files.
pub(crate) const TITLE: &str = "org.opencontainers.image.title";
/// Annotation with the time at which an artefact was made.
pub(crate) const CREATED: &str = "org.opencontainers.image.created";

/// The config of an artefact in CNCF's layout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WasmConfig {
    /// Time at which the artefact was made, in RFC 3339.
    pub created: String,
    /// Author of the artefact.
    #[serde(default)]
    pub author: Option<String>,
    /// Always `wasm`.
    pub architecture: String,
    /// `wasip2` for a component, `wasip1` for a core module.
    pub os: String,
    /// The digests of the layers.
    pub layer_digests: Vec<String>,
    /// The component's imports and exports; `None` for a core module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub component: Option<Interfaces>,
}

/// A component's imports and exports, by the full names of the interfaces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interfaces {
    /// Exported interfaces.
    #[serde(default)]
    pub exports: Vec<String>,
    /// Imported interfaces: a module can use nothing else.
    #[serde(default)]
    pub imports: Vec<String>,
    /// The WIT world of the module, if the config names it.
    #[serde(default)]
    pub target: Option<String>,
}

/// A module, ready to be pushed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact {
    pub(crate) document: Document,
    pub(crate) config: Vec<u8>,
    pub(crate) module: Vec<u8>,
}

/// Descriptive metadata of a module. No decision depends on it.
#[derive(Clone, Debug, Default)]
pub struct Label {
    /// The policy's name.
    pub name: String,
    /// Time at which the artefact was made, in RFC 3339. The same bytes, label and time make the same artefact.
    pub created: String,
    /// Further annotations of the manifest.
    pub annotations: BTreeMap<String, String>,
}

impl Artifact {
    /// Packs a module.
    ///
    /// # Errors
    ///
    /// [`RegistryError::InvalidArtifact`] if the module is neither Wasm nor a bundle.
    pub fn pack(module: Vec<u8>, label: Label) -> Result<Self, RegistryError> {
        let shape = |message| RegistryError::InvalidArtifact { what: label.name.clone(), message };
        let json = |value: serde_json::Result<Vec<u8>>| value.map_err(|error| shape(error.to_string()));
        let is_bundle = module.starts_with(b"\x1f\x8b");
        let config = if is_bundle {
            json(serde_json::to_vec(&image_config(&module, &label.created).map_err(shape)?))?
        } else {
            json(serde_json::to_vec(&wasm_config(&module, &label.created).map_err(shape)?))?
        };
        let (config_type, layer_type, ending) =
            if is_bundle { (BUNDLE_CONFIG, BUNDLE_LAYER, "tar.gz") } else { (CONFIG, LAYER, "wasm") };
        let blob = |media_type: &str, bytes: &[u8], annotations| OciDescriptor {
            media_type: media_type.to_owned(),
            digest: Digest::of(bytes).to_string(),
            size: i64::try_from(bytes.len()).unwrap_or(i64::MAX),
            annotations,
            ..OciDescriptor::default()
        };
        let file = BTreeMap::from([(TITLE.to_owned(), format!("{}.{ending}", label.name))]);
        let mut annotations = label.annotations.clone();
        annotations.insert(TITLE.to_owned(), label.name.clone());
        annotations.insert(CREATED.to_owned(), label.created.clone());
        let manifest = OciImageManifest {
            schema_version: 2,
            media_type: Some(manifest::MANIFEST.to_owned()),
            config: blob(config_type, &config, None),
            layers: vec![blob(layer_type, &module, Some(file))],
            subject: None,
            artifact_type: None,
            annotations: Some(annotations),
        };
        let bytes = json(serde_json::to_vec(&manifest))?;
        let document = Document::read(bytes, manifest::MANIFEST, &label.name)?;
        Ok(Self { document, config, module })
    }

    /// The manifest's digest, by which the artefact is pinned and signed.
    pub fn digest(&self) -> Digest {
        self.document.digest
    }

    /// The manifest, byte for byte.
    pub fn manifest(&self) -> &[u8] {
        &self.document.bytes
    }
}

/// The config of an artefact in CNCF's layout.
fn wasm_config(module: &[u8], created: &str) -> Result<WasmConfig, String> {
    let component = interfaces(module)?;
    Ok(WasmConfig {
        created: created.to_owned(),
        author: None,
        architecture: "wasm".to_owned(),
        os: if component.is_some() { "wasip2" } else { "wasip1" }.to_owned(),
        layer_digests: vec![Digest::of(module).to_string()],
        component,
    })
}

/// The config of an image with this bundle as its only layer.
fn image_config(bundle: &[u8], created: &str) -> Result<serde_json::Value, String> {
    let mut unpacked = Vec::new();
    let mut decoder = MultiGzDecoder::new(bundle).take(MAX_UNPACKED + 1);
    decoder.read_to_end(&mut unpacked).map_err(|error| format!("it cannot be unpacked: {error}"))?;
    if unpacked.len() as u64 > MAX_UNPACKED {
        return Err(format!("it unpacks to more than {MAX_UNPACKED} bytes"));
    }
    Ok(json!({
        "created": created,
        "architecture": "wasm",
        "os": "wasip1",
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": [Digest::of(&unpacked).to_string()]},
    }))
}

/// A component's imports and exports; `None` for a core module.
fn interfaces(wasm: &[u8]) -> Result<Option<Interfaces>, String> {
    if Parser::is_core_wasm(wasm) {
        return Ok(None);
    }
    if !Parser::is_component(wasm) {
        return Err("it is neither WebAssembly nor an OPA bundle; name the module that a build made".to_owned());
    }
    let broken = |error: wasmparser::BinaryReaderError| format!("it is damaged WebAssembly: {error}");
    let mut interfaces = Interfaces::default();
    let mut depth = 0_usize;
    for payload in Parser::new(0).parse_all(wasm) {
        match payload.map_err(broken)? {
            Payload::Version { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ComponentImportSection(imports) if depth == 1 => {
                for import in imports {
                    interfaces.imports.push(import.map_err(broken)?.name.name.to_owned());
                }
            }
            Payload::ComponentExportSection(exports) if depth == 1 => {
                for export in exports {
                    interfaces.exports.push(export.map_err(broken)?.name.name.to_owned());
                }
            }
            _ => {}
        }
    }
    interfaces.imports.sort_unstable();
    interfaces.exports.sort_unstable();
    Ok(Some(interfaces))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout_kind::LayoutKind;

    /// The smallest component and core module.
    const COMPONENT: &[u8] = b"\0asm\x0d\0\x01\0";
    const CORE: &[u8] = b"\0asm\x01\0\0\0";

    fn label() -> Label {
        let annotations = BTreeMap::from([("org.opencontainers.image.version".to_owned(), "1.0.0".to_owned())]);
        Label { name: "x".into(), created: "1970-01-01T00:00:00Z".into(), annotations }
    }

    #[test]
    fn one_module_is_one_artefact_however_often_it_is_packed() {
        let pack = || Artifact::pack(COMPONENT.to_vec(), label()).unwrap();
        assert_eq!(pack(), pack());
        let text = String::from_utf8(pack().manifest().to_vec()).unwrap();
        let json = |bytes: &[u8]| serde_json::from_slice::<serde_json::Value>(bytes).unwrap();
        let config = json(&pack().config);
        assert_eq!(config["os"], "wasip2");
        assert_eq!(config["layerDigests"][0], Digest::of(COMPONENT).to_string());
        assert!(text.contains(r#""mediaType":"application/wasm""#) && text.contains("x.wasm"), "{text}");
        let manifest = pack().document.manifest("x").unwrap();
        assert_eq!(LayoutKind::of(&manifest, "x").unwrap().layer.digest, Digest::of(COMPONENT).to_string());
    }

    #[test]
    fn a_bundle_becomes_an_image_of_one_layer_that_comes_back_whole() {
        let mut builder = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
        for (name, bytes) in [("policy.wasm", CORE), (".manifest", b"{}")] {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            builder.append_data(&mut header, name, bytes).unwrap();
        }
        let bundle = builder.into_inner().unwrap().finish().unwrap();
        let packed = Artifact::pack(bundle.clone(), label()).unwrap();
        let manifest = packed.document.manifest("x").unwrap();
        assert_eq!(manifest.config.media_type, BUNDLE_CONFIG);
        let config: serde_json::Value = serde_json::from_slice(&packed.config).unwrap();
        assert_eq!(config["rootfs"]["diff_ids"].as_array().map(Vec::len), Some(1));
        let kind = LayoutKind::of(&manifest, "x").unwrap();
        assert_eq!(
            (kind.layer.media_type.as_str(), kind.layer.digest.as_str()),
            (BUNDLE_LAYER, &*Digest::of(&bundle).to_string())
        );
        assert_eq!(kind.module(bundle.clone(), "x", 1 << 20).unwrap(), bundle);
        let text = String::from_utf8(packed.manifest().to_vec()).unwrap();
        assert!(text.contains("x.tar.gz"), "{text}");
        assert!(Artifact::pack(b"\x1f\x8b\x08".to_vec(), label()).is_err());
    }

    #[test]
    fn a_core_module_has_no_interfaces_and_what_is_no_wasm_is_refused() {
        let packed = Artifact::pack(CORE.to_vec(), label()).unwrap();
        let config: WasmConfig = serde_json::from_slice(&packed.config).unwrap();
        assert_eq!((config.os.as_str(), config.component), ("wasip1", None));
        assert!(Artifact::pack(b"#!/bin/sh".to_vec(), label()).is_err());
    }
}

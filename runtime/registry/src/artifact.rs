//! The artefact that a module becomes: CNCF's layout for Wasm, the same bytes each time.
//!
//! Layout: cncf/tag-runtime, "wasm-oci-artifact". Nothing in it but `created` speaks of time, and that is the caller's.

use std::collections::BTreeMap;

use oci_client::manifest::{OciDescriptor, OciImageManifest};
use qosm_model::digest::Digest;
use serde::{Deserialize, Serialize};
use wasmparser::{Parser, Payload};

use crate::error::RegistryError;
use crate::manifest::{self, Document};

/// The config's media type.
pub(crate) const CONFIG: &str = "application/vnd.wasm.config.v0+json";
/// The module's media type.
pub(crate) const LAYER: &str = "application/wasm";
/// The name of a layer's file, for clients that write files.
pub(crate) const TITLE: &str = "org.opencontainers.image.title";
/// When an artefact was made.
pub(crate) const CREATED: &str = "org.opencontainers.image.created";

/// The config of an artefact in CNCF's layout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WasmConfig {
    /// When it was made: RFC 3339.
    pub created: String,
    /// By whom.
    #[serde(default)]
    pub author: Option<String>,
    /// `wasm`.
    pub architecture: String,
    /// `wasip2` for a component, `wasip1` for a core module.
    pub os: String,
    /// The digests of the layers.
    pub layer_digests: Vec<String>,
    /// What a component imports and exports; `None` for a core module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub component: Option<Interfaces>,
}

/// What a component imports and exports, by the full names of the interfaces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interfaces {
    /// Exports.
    #[serde(default)]
    pub exports: Vec<String>,
    /// Imports: all that the module can ever reach.
    #[serde(default)]
    pub imports: Vec<String>,
    /// The world that it was made for, if it says so.
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

/// What is said about a module beside its bytes. Nothing is decided by it.
#[derive(Clone, Debug, Default)]
pub struct Label {
    /// The policy's name.
    pub name: String,
    /// When it was made: RFC 3339. The same bytes under the same label at the same moment are the same artefact.
    pub created: String,
    /// Further annotations of the manifest.
    pub annotations: BTreeMap<String, String>,
}

impl Artifact {
    /// Packs a module.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Shape`] if it is not Wasm.
    pub fn pack(module: Vec<u8>, label: Label) -> Result<Self, RegistryError> {
        let layer_digest = Digest::of(&module);
        let component =
            interfaces(&module).map_err(|message| RegistryError::Shape { what: label.name.clone(), message })?;
        let config = WasmConfig {
            created: label.created.clone(),
            author: None,
            architecture: "wasm".to_owned(),
            os: if component.is_some() { "wasip2" } else { "wasip1" }.to_owned(),
            layer_digests: vec![layer_digest.to_string()],
            component,
        };
        let json = |value: serde_json::Result<Vec<u8>>| {
            value.map_err(|error| RegistryError::Shape { what: label.name.clone(), message: error.to_string() })
        };
        let config = json(serde_json::to_vec(&config))?;
        let blob = |media_type: &str, bytes: &[u8], annotations| OciDescriptor {
            media_type: media_type.to_owned(),
            digest: Digest::of(bytes).to_string(),
            size: i64::try_from(bytes.len()).unwrap_or(i64::MAX),
            annotations,
            ..OciDescriptor::default()
        };
        let file = BTreeMap::from([(TITLE.to_owned(), format!("{}.wasm", label.name))]);
        let mut annotations = label.annotations.clone();
        annotations.insert(TITLE.to_owned(), label.name.clone());
        annotations.insert(CREATED.to_owned(), label.created.clone());
        let manifest = OciImageManifest {
            schema_version: 2,
            media_type: Some(manifest::MANIFEST.to_owned()),
            config: blob(CONFIG, &config, None),
            layers: vec![blob(LAYER, &module, Some(file))],
            subject: None,
            artifact_type: None,
            annotations: Some(annotations),
        };
        let bytes = json(serde_json::to_vec(&manifest))?;
        let document = Document::read(bytes, manifest::MANIFEST, &label.name)?;
        Ok(Self { document, config, module })
    }

    /// The manifest's digest: what it is pinned and signed by.
    pub fn digest(&self) -> Digest {
        self.document.digest
    }

    /// The manifest, byte for byte.
    pub fn manifest(&self) -> &[u8] {
        &self.document.bytes
    }
}

/// What a component imports and exports; `None` = it is a core module.
fn interfaces(wasm: &[u8]) -> Result<Option<Interfaces>, String> {
    if Parser::is_core_wasm(wasm) {
        return Ok(None);
    }
    if !Parser::is_component(wasm) {
        return Err("it is not WebAssembly; name the module that a build made".to_owned());
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
    use crate::shape::Shape;

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
        assert_eq!(Shape::of(&manifest, "x").unwrap().layer.digest, Digest::of(COMPONENT).to_string());
    }

    #[test]
    fn a_core_module_has_no_interfaces_and_what_is_no_wasm_is_refused() {
        let packed = Artifact::pack(CORE.to_vec(), label()).unwrap();
        let config: WasmConfig = serde_json::from_slice(&packed.config).unwrap();
        assert_eq!((config.os.as_str(), config.component), ("wasip1", None));
        assert!(Artifact::pack(b"#!/bin/sh".to_vec(), label()).is_err());
    }
}

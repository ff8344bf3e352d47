//! The archive that `opa build -t wasm` writes. It is read in memory: no file is unpacked to disk, and names in the
//! archive are only compared.

use std::io::{Cursor, Read};

use flate2::read::MultiGzDecoder;
use qosm_model::digest::Digest;
use qosm_model::unit::Bytes;
use qosm_rego::Value;

use super::error::BundleError;
use super::metadata::Metadata;
use super::{PACKAGE, is_shallow};
use crate::error::EngineError;
use crate::inspect::{Form, Inspection, MAX_SIZE};

/// Maximum size of the unpacked archive.
const UNPACKED: Bytes = Bytes(64 << 20);
/// Maximum size of its data.
const DATA: Bytes = Bytes(8 << 20);
/// Maximum size of its manifest.
const MANIFEST: Bytes = Bytes(1 << 20);
/// Maximum number of files in an archive; a library adds some.
const FILES: usize = 1000;

/// Whether these bytes are a gzip archive; no other form of module begins like one.
pub(crate) fn is_bundle(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\x1f\x8b")
}

/// A bundle's parts.
#[derive(Debug)]
pub(crate) struct Bundle {
    pub(crate) digest: Digest,
    pub(crate) size: usize,
    /// The module's Wasm.
    pub(crate) wasm: Vec<u8>,
    /// The bundle's data, an object.
    pub(crate) data: Value,
    pub(crate) metadata: Metadata,
}

/// The files of a bundle that the engine uses.
#[derive(Default)]
struct Files {
    wasm: Option<Vec<u8>>,
    data: Option<Vec<u8>>,
    manifest: Option<Vec<u8>>,
}

impl Bundle {
    /// # Errors
    ///
    /// [`EngineError::TooLarge`], [`EngineError::Bundle`], and [`EngineError::Description`] naming a field of its METADATA.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, EngineError> {
        if bytes.len() > MAX_SIZE {
            return Err(EngineError::TooLarge { size: Bytes(bytes.len() as u64), limit: Bytes(MAX_SIZE as u64) });
        }
        let digest = Digest::of(bytes);
        let parts = || -> Result<_, BundleError> {
            let files = Files::read(bytes)?;
            let wasm = files.wasm.ok_or(BundleError::Missing { file: "policy.wasm" })?;
            let manifest = files.manifest.ok_or(BundleError::Missing { file: ".manifest" })?;
            Ok((wasm, data(files.data.as_deref())?, Metadata::find(&manifest)?))
        };
        let (wasm, data, annotation) = parts().map_err(|source| EngineError::Bundle { module: digest, source })?;
        Ok(Self { digest, size: bytes.len(), wasm, data, metadata: Metadata::read(digest, annotation)? })
    }

    /// Inspects the bundle without running it: the interfaces in METADATA count as imports.
    pub(crate) fn inspection(&self) -> Inspection {
        Inspection {
            digest: self.digest,
            size: self.size,
            form: Form::Rego,
            imports: self.metadata.grants.iter().copied().collect(),
            reach: self.metadata.reach.clone(),
            unknown_imports: self.metadata.unknown_grants.iter().map(|(_, name)| name.clone()).collect(),
            exports_lifecycle: true,
            contract_version: None,
        }
    }
}

impl Files {
    fn read(bytes: &[u8]) -> Result<Self, BundleError> {
        let unreadable = |error: std::io::Error| BundleError::Unreadable(error.to_string());
        // A small archive may unpack to anything.
        let mut unpacked = Vec::new();
        let decoder = MultiGzDecoder::new(Cursor::new(bytes));
        decoder.take(UNPACKED.0 + 1).read_to_end(&mut unpacked).map_err(unreadable)?;
        if unpacked.len() as u64 > UNPACKED.0 {
            return Err(BundleError::TooLarge { what: "what it unpacks to", limit: UNPACKED });
        }
        let mut archive = tar::Archive::new(Cursor::new(unpacked));
        let mut files = Self::default();
        for (count, entry) in archive.entries().map_err(unreadable)?.enumerate() {
            if count >= FILES {
                return Err(BundleError::TooManyFiles { limit: FILES });
            }
            let entry = entry.map_err(unreadable)?;
            if !entry.header().entry_type().is_file() {
                continue;
            }
            let name = entry.path_bytes().into_owned();
            let name = name.strip_prefix(b"./").or_else(|| name.strip_prefix(b"/")).unwrap_or(&name);
            let wasm = Bytes(MAX_SIZE as u64);
            let (place, file, limit) = match name {
                b"policy.wasm" => (&mut files.wasm, "policy.wasm", wasm),
                b"data.json" => (&mut files.data, "data.json", DATA),
                b".manifest" => (&mut files.manifest, ".manifest", MANIFEST),
                _ => continue,
            };
            if place.is_some() {
                return Err(BundleError::Twice { file });
            }
            if entry.size() > limit.0 {
                return Err(BundleError::TooLarge { what: file, limit });
            }
            let mut bytes = Vec::new();
            entry.take(limit.0).read_to_end(&mut bytes).map_err(unreadable)?;
            *place = Some(bytes);
        }
        Ok(files)
    }
}

/// The data document, `{}` by default.
fn data(bytes: Option<&[u8]>) -> Result<Value, BundleError> {
    let refuse = |why: String| BundleError::Document { file: "data.json", why };
    let text = bytes.map_or(Ok("{}"), std::str::from_utf8).map_err(|error| refuse(error.to_string()))?;
    let data = Value::from_json(text).map_err(|error| refuse(error.to_string()))?;
    check_data(&data).map_err(refuse)?;
    Ok(data)
}

/// Checks a `data` document of a bundle or of a configuration.
pub(super) fn check_data(data: &Value) -> Result<(), String> {
    if data.as_object().is_none() {
        return Err(format!("it is a JSON {}, not an object", data.type_name()));
    }
    if data.get(PACKAGE).is_some() {
        return Err(format!("its key `{PACKAGE}` is the policy's own package; choose another"));
    }
    if is_shallow(data) { Ok(()) } else { Err(format!("it is nested deeper than {} levels", super::DEPTH)) }
}

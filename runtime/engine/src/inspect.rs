//! Inspection of a module's binary, without compiling it.

use std::collections::BTreeSet;

use qosm_model::unit::Bytes;
use semver::Version;
use wasmparser::{Encoding, Parser, Payload};

use crate::error::EngineError;
use crate::interface::{ExternName, Interface, Reach};
use crate::rego::{Bundle, is_bundle};
use qosm_model::digest::Digest;

/// Maximum size of a module in bytes.
pub(crate) const MAX_SIZE: usize = 16 << 20;

/// The format of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// A WebAssembly component.
    Component,
    /// An OPA bundle with a policy in Rego, compiled to Wasm.
    Rego,
}

impl Form {
    /// The name of the format in annotations and reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Component => "component",
            Self::Rego => "rego",
        }
    }
}

/// Maximum number of functions, imports and globals of all core modules together. Each instance takes about 32 bytes for
/// each of them, which its memory limit does not count.
const MAX_ITEMS: u64 = 128 << 10;

/// What a module's binary tells without running it. A module can reach its imports and nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    /// Digest of the module's file.
    pub digest: Digest,
    /// Size of the module's file in bytes.
    pub size: usize,
    /// The format.
    pub form: Form,
    /// The interfaces of the contract that the module imports, in the order of [`Interface::ALL`], without duplicates;
    /// for a Rego policy, the grants that it declares.
    pub imports: Vec<Interface>,
    /// The reach that a Rego policy declares; empty for a component, which cannot declare any.
    pub reach: BTreeSet<Reach>,
    /// Full names of the imports that this host does not offer, in the binary's order.
    pub unknown_imports: Vec<String>,
    /// Whether the module exports the lifecycle interface in a compatible version.
    pub exports_lifecycle: bool,
    /// The version of the contract that the module was built for; `None` if it neither imports nor exports anything of
    /// the contract.
    pub contract_version: Option<String>,
}

/// The inspection, and the findings that decide whether the module can be loaded.
pub(crate) struct Findings {
    pub(crate) inspection: Inspection,
    /// An incompatible version of the contract that the module uses.
    pub(crate) other_version: Option<Version>,
    /// Whether the module contains components with code of their own.
    pub(crate) composed: bool,
}

impl Findings {
    /// Refuses a module that cannot run on this host.
    pub(crate) fn check(self) -> Result<Inspection, EngineError> {
        let module = self.inspection.digest;
        if let Some(found) = self.other_version {
            return Err(EngineError::Contract { module, found });
        }
        if !self.inspection.unknown_imports.is_empty() {
            return Err(EngineError::UnknownImports { module, names: self.inspection.unknown_imports });
        }
        if self.composed {
            return Err(EngineError::Composed { module });
        }
        if !self.inspection.exports_lifecycle {
            return Err(EngineError::NoLifecycle { module });
        }
        Ok(self.inspection)
    }
}

/// Reads a component's outer structure. The compiler validates the functions' bodies.
pub(crate) fn inspect(wasm: &[u8]) -> Result<Findings, EngineError> {
    if wasm.len() > MAX_SIZE {
        return Err(EngineError::TooLarge { size: Bytes(wasm.len() as u64), limit: Bytes(MAX_SIZE as u64) });
    }
    if is_bundle(wasm) {
        let inspection = Bundle::read(wasm)?.inspection();
        return Ok(Findings { inspection, other_version: None, composed: false });
    }
    require_component(wasm)?;
    let digest = Digest::of(wasm);
    let mut findings = Findings {
        inspection: Inspection {
            digest,
            size: wasm.len(),
            form: Form::Component,
            imports: Vec::new(),
            reach: BTreeSet::new(),
            unknown_imports: Vec::new(),
            exports_lifecycle: false,
            contract_version: None,
        },
        other_version: None,
        composed: false,
    };
    let mut lifecycle_version = None;
    let mut import_version = None;
    let mut nesting = Vec::new();
    let mut items = 0;
    for payload in Parser::new(0).parse_all(wasm) {
        let invalid =
            |error: wasmparser::BinaryReaderError| EngineError::Invalid { module: digest, source: error.into() };
        let inner = nesting.len() > 1;
        match payload.map_err(invalid)? {
            Payload::Version { encoding, .. } => nesting.push(encoding),
            Payload::End(_) => {
                nesting.pop();
            }
            Payload::ComponentImportSection(imports) if !inner => {
                for import in imports {
                    let name = import.map_err(invalid)?.name.name;
                    let (meaning, version) = ExternName::parse(name);
                    import_version = import_version.or(version);
                    findings.import(name, meaning);
                }
            }
            Payload::ComponentExportSection(exports) if !inner => {
                for export in exports {
                    let name = export.map_err(invalid)?.name.name;
                    if !name.starts_with("qosm:policy/lifecycle@") {
                        continue;
                    }
                    let (meaning, version) = ExternName::parse(name);
                    match meaning {
                        ExternName::Lifecycle => findings.inspection.exports_lifecycle = true,
                        ExternName::OtherVersion(_) => findings.other_version.clone_from(&version),
                        ExternName::Types | ExternName::Interface(_) | ExternName::Foreign => {}
                    }
                    lifecycle_version = lifecycle_version.or(version);
                }
            }
            // Interfaces are exported through inner components that only rename; an inner component that runs or converts
            // makes a composition.
            Payload::ModuleSection { .. } | Payload::InstanceSection(_) | Payload::ComponentCanonicalSection(_)
                if inner =>
            {
                findings.composed |= nesting.last() == Some(&Encoding::Component);
            }
            Payload::ImportSection(section) => {
                for import in section.into_imports() {
                    import.map_err(invalid)?;
                    items += 1;
                }
            }
            Payload::FunctionSection(section) => items += u64::from(section.count()),
            Payload::GlobalSection(section) => items += u64::from(section.count()),
            _ => {}
        }
    }
    if items > MAX_ITEMS {
        return Err(EngineError::TooManyItems { module: digest, items, limit: MAX_ITEMS });
    }
    findings.inspection.imports.sort_unstable();
    findings.inspection.imports.dedup();
    findings.inspection.contract_version = lifecycle_version.or(import_version).map(|version| version.to_string());
    Ok(findings)
}

impl Findings {
    fn import(&mut self, name: &str, meaning: ExternName) {
        match meaning {
            ExternName::Types => {}
            ExternName::Interface(interface) => self.inspection.imports.push(interface),
            ExternName::OtherVersion(version) => {
                self.inspection.unknown_imports.push(name.to_owned());
                self.other_version = self.other_version.take().or_else(|| Version::parse(&version).ok());
            }
            ExternName::Lifecycle | ExternName::Foreign => self.inspection.unknown_imports.push(name.to_owned()),
        }
    }
}

fn require_component(bytes: &[u8]) -> Result<(), EngineError> {
    let not = |found, help| Err(EngineError::NotAComponent { found, help });
    if Parser::is_component(bytes) {
        Ok(())
    } else if Parser::is_core_wasm(bytes) {
        not(
            "a core Wasm module",
            "wrap it with `wasm-tools component new`, or build it with the SDK; of a Rego policy hand over the whole bundle",
        )
    } else if bytes.is_empty() {
        not("an empty file", "was it built or fetched completely?")
    } else if bytes.starts_with(b"\x7fELF") {
        not("a native program or compiled module", "a module is handed over as Wasm and compiled on the node")
    } else if bytes.iter().find(|byte| !byte.is_ascii_whitespace()).is_some_and(|&byte| byte == b'(' || byte == b';') {
        not("WebAssembly text", "translate it with `wasm-tools parse`")
    } else {
        not("an unknown kind of file", "build a component with the SDK")
    }
}

//! Finds the module in an artefact. qosm writes one layout; it also reads those of older tools, and of
//! registries that refuse unknown media types.

use std::io::Read;

use flate2::read::MultiGzDecoder;
use oci_client::manifest::{OciDescriptor, OciImageManifest};

use crate::artifact::{BUNDLE_LAYER, CONFIG, LAYER};
use crate::error::RegistryError;
use crate::manifest;

/// Media types of plain Wasm from before CNCF's layout.
const OLD_LAYERS: [&str; 2] =
    ["application/vnd.wasm.content.layer.v1+wasm", "application/vnd.module.wasm.content.layer.v1+wasm"];
/// Media types of image layers that may contain a module.
const TAR_LAYERS: [&str; 3] =
    [BUNDLE_LAYER, "application/vnd.docker.image.rootfs.diff.tar.gzip", "application/vnd.oci.image.layer.v1.tar"];
/// File names of a module in such a layer: an OPA bundle's, and a proxy-wasm image's.
const MEMBERS: [&str; 2] = ["policy.wasm", "plugin.wasm"];
/// The member that an OPA bundle has.
const POLICY: &str = MEMBERS[0];
/// The file that makes an archive with a `policy.wasm` an OPA bundle: then the whole archive is the module.
const MANIFEST: &str = ".manifest";
/// Maximum number of files in a layer.
const MAX_MEMBERS: usize = 1000;

/// The layer that contains the module, and its form.
#[derive(Clone, Debug)]
pub(crate) struct LayoutKind {
    pub(crate) layer: OciDescriptor,
    form: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Plain,
    Tar { gzip: bool },
}

impl LayoutKind {
    /// Finds the module's layer.
    ///
    /// # Errors
    ///
    /// [`RegistryError::InvalidArtifact`] if the artefact is not a policy.
    pub(crate) fn of(manifest: &OciImageManifest, what: &str) -> Result<Self, RegistryError> {
        let shape = |message: String| Err(RegistryError::InvalidArtifact { what: what.to_owned(), message });
        let layers = &manifest.layers;
        if layers.iter().any(|layer| manifest::is_signature(&layer.media_type)) {
            return shape("it is a signature, not a policy".to_owned());
        }
        let of_type =
            |types: &[&str]| layers.iter().filter(|layer| types.contains(&layer.media_type.as_str())).collect();
        let plain: Vec<&OciDescriptor> = of_type(&[LAYER, OLD_LAYERS[0], OLD_LAYERS[1]]);
        let is_strict = manifest.config.media_type == CONFIG;
        match plain.as_slice() {
            [_] if is_strict && layers.len() > 1 => {
                return shape(format!("it has {} layers, and a policy in this layout has one", layers.len()));
            }
            [layer] => return Ok(Self { layer: (*layer).clone(), form: Form::Plain }),
            [] => {}
            several => return shape(format!("it has {} modules, and a policy is one", several.len())),
        }
        // In an image the last layer counts, as with proxy-wasm images.
        match layers.last().filter(|layer| TAR_LAYERS.contains(&layer.media_type.as_str())) {
            Some(layer) => {
                let gzip = layer.media_type.ends_with("gzip");
                Ok(Self { layer: layer.clone(), form: Form::Tar { gzip } })
            }
            None => {
                let types: Vec<_> = layers.iter().map(|layer| format!("`{}`", layer.media_type)).collect();
                shape(format!(
                    "it is not a policy: its layers are {}; one of `{LAYER}` is expected",
                    if types.is_empty() { "none".to_owned() } else { types.join(", ") }
                ))
            }
        }
    }

    /// Extracts the module from the layer's bytes. For an OPA bundle, these are the module.
    ///
    /// # Errors
    ///
    /// [`RegistryError::InvalidArtifact`] or [`RegistryError::TooLarge`].
    pub(crate) fn module(&self, bytes: Vec<u8>, what: &str, most: u64) -> Result<Vec<u8>, RegistryError> {
        match self.form {
            Form::Plain => Ok(bytes),
            Form::Tar { gzip: true } => match member(MultiGzDecoder::new(bytes.as_slice()), what, most)? {
                Member::OfBundle => Ok(bytes),
                Member::Module(module) => Ok(module),
            },
            Form::Tar { gzip: false } => match member(bytes.as_slice(), what, most)? {
                Member::Module(module) => Ok(module),
                Member::OfBundle => Err(RegistryError::InvalidArtifact {
                    what: what.to_owned(),
                    message: "its layer is an OPA bundle that is not compressed; push what `opa build` writes"
                        .to_owned(),
                }),
            },
        }
    }
}

/// The module found in an archive.
enum Member {
    /// A module on its own.
    Module(Vec<u8>),
    /// Part of an OPA bundle, which also has the policy's METADATA and data.
    OfBundle,
}

/// Finds the one module in an archive. Nothing is unpacked to disk: names are only compared.
fn member(archive: impl Read, what: &str, most: u64) -> Result<Member, RegistryError> {
    let shape = |message: String| RegistryError::InvalidArtifact { what: what.to_owned(), message };
    let broken = |error: std::io::Error| shape(format!("its layer cannot be unpacked: {error}"));
    // A small archive may unpack to any size, so all of its content is bounded.
    let bound = most.saturating_mul(2);
    let mut archive = tar::Archive::new(archive.take(bound));
    let mut found = None;
    let mut is_bundle = false;
    let mut names = Vec::new();
    for (count, entry) in archive.entries().map_err(broken)?.enumerate() {
        let entry = entry.map_err(broken)?;
        if count >= MAX_MEMBERS {
            return Err(shape(format!("its layer holds more than {MAX_MEMBERS} files")));
        }
        let name = entry.path().map_err(broken)?.to_string_lossy().into_owned();
        let name = name.trim_start_matches("./").trim_start_matches('/').to_owned();
        is_bundle |= name == MANIFEST;
        if !entry.header().entry_type().is_file() || !MEMBERS.contains(&name.as_str()) {
            names.push(name);
            continue;
        }
        if found.is_some() {
            return Err(shape("its layer holds two modules, and a policy is one".to_owned()));
        }
        let size = entry.size();
        let hint = "; raise `registries.limits.moduleMiB`";
        if size > most {
            return Err(RegistryError::TooLarge { what: what.to_owned(), kind: "module", size, most, hint });
        }
        let mut bytes = Vec::new();
        entry.take(most).read_to_end(&mut bytes).map_err(broken)?;
        found = Some((name == POLICY, bytes));
    }
    if is_bundle && matches!(found, Some((true, _))) {
        return Ok(Member::OfBundle);
    }
    found.map(|(_, module)| Member::Module(module)).ok_or_else(|| {
        names.truncate(5);
        names.iter_mut().for_each(|name| *name = name.chars().filter(|c| !c.is_control()).take(80).collect());
        shape(format!("its layer holds neither {} but {}", MEMBERS.join(" nor "), names.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use serde_json::json;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn manifest(config: &str, layers: &[&str]) -> OciImageManifest {
        let blob = |media_type: &str| json!({"mediaType": media_type, "digest": "sha256:1", "size": 1});
        let layers: Vec<_> = layers.iter().map(|layer| blob(layer)).collect();
        serde_json::from_value(json!({"schemaVersion": 2, "config": blob(config), "layers": layers})).unwrap()
    }

    fn archive(members: &[(&str, &[u8])]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, bytes) in members {
            let mut header = tar::Header::new_gnu();
            // Written directly, as a third party could: the builder refuses such names.
            header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_size(bytes.len() as u64);
            header.set_cksum();
            builder.append(&header, *bytes).unwrap();
        }
        builder.into_inner().unwrap()
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn the_layouts_that_are_about_are_read() {
        let image = "application/vnd.oci.image.config.v1+json";
        for (config, layers, is_plain) in [
            (CONFIG, &[LAYER][..], true),
            ("application/vnd.wasm.config.v1+json", &[OLD_LAYERS[0]], true),
            (
                "application/vnd.module.wasm.config.v1+json",
                &["application/vnd.module.wasm.config.v1+json", OLD_LAYERS[1]],
                true,
            ),
            (image, &[TAR_LAYERS[0]], false),
            ("application/vnd.docker.container.image.v1+json", &["x", TAR_LAYERS[1]], false),
        ] {
            let kind = LayoutKind::of(&manifest(config, layers), "x").unwrap();
            assert_eq!(kind.form == Form::Plain, is_plain, "{layers:?}");
            assert_eq!(kind.layer.media_type, layers[layers.len() - 1]);
        }
    }

    #[test]
    fn an_artefact_that_is_no_policy_is_described() {
        for (config, layers, expected) in [
            (CONFIG, &[LAYER, LAYER][..], "2 modules"),
            (CONFIG, &[LAYER, "text/plain"], "2 layers"),
            (CONFIG, &[], "its layers are none"),
            ("x", &["application/x-helm"], "`application/x-helm`"),
            ("x", &["application/vnd.dev.cosign.simplesigning.v1+json"], "it is a signature"),
        ] {
            let error = LayoutKind::of(&manifest(config, layers), "r.io/x:1").unwrap_err().to_string();
            assert!(error.contains(expected) && error.starts_with("r.io/x:1: "), "{error}");
        }
    }

    #[test]
    fn a_module_is_taken_out_of_an_archive_and_nothing_else_is() {
        let image = manifest("x", &[TAR_LAYERS[0]]);
        let kind = LayoutKind::of(&image, "x").unwrap();
        let of = |members: &[(&str, &[u8])]| {
            kind.module(gzip(&archive(members)), "x", MIB).map_err(|error| error.to_string())
        };
        assert_eq!(of(&[("./data.json", b"{}"), ("/policy.wasm", b"wasm")]), Ok(b"wasm".to_vec()));
        assert_eq!(of(&[("plugin.wasm", b"wasm"), ("../../etc/passwd", b"x")]), Ok(b"wasm".to_vec()));
        let bundle = [("/data.json", &b"{}"[..]), ("/policy.wasm", b"wasm"), ("/.manifest", b"{}")];
        assert_eq!(of(&bundle), Ok(gzip(&archive(&bundle))), "a bundle is its own module");
        let proxy = [("plugin.wasm", &b"wasm"[..]), (".manifest", b"{}")];
        assert_eq!(of(&proxy), Ok(b"wasm".to_vec()), "a proxy-wasm image is no bundle");
        assert!(of(&[("plugin.wasm", b"a"), ("policy.wasm", b"b")]).unwrap_err().contains("two modules"));
        assert!(of(&[("deep/policy.wasm", b"a")]).unwrap_err().contains("deep/policy.wasm"));
        assert!(kind.module(b"not gzip".to_vec(), "x", MIB).is_err());
        let bomb = gzip(&archive(&[("policy.wasm", &vec![0; 8 << 20])]));
        assert!(bomb.len() < 100_000, "{}", bomb.len());
        assert!(kind.module(bomb, "x", MIB).unwrap_err().to_string().contains("moduleMiB"));
        let beside = gzip(&archive(&[("x", &vec![0; 8 << 20]), ("policy.wasm", b"a")]));
        assert!(kind.module(beside, "x", MIB).is_err());
    }
}

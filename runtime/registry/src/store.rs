//! The store: pulls, verifies, inspects, pushes and copies artefacts.
//!
//! Everything goes through a local layout. Signatures are checked there, so that a start without a network gives the same result,
//! and the removal of a key also affects artefacts that were pulled before.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use futures::future::LocalBoxFuture;
use oci_client::manifest::{OciDescriptor, OciImageManifest};
use qosm_model::digest::Digest;
use serde::Serialize;

use crate::artifact::{Artifact, CONFIG, WasmConfig};
use crate::error::RegistryError;
use crate::layout::{Collected, Layout};
use crate::layout_kind::LayoutKind;
use crate::manifest::{Document, is_of_signatures, is_signature, named, signature_tag};
use crate::reference::Location;
use crate::remote::Remotes;
use crate::settings::RegistrySettings;
use crate::source::{MAX_BESIDE, SignatureManifest, Source, TransferProgress};
use crate::trust::{
    Candidate, Decision, Format, Good, MAX_BLOB, MAX_CANDIDATES, MAX_SIGNATURES, Outcome, Rejected, Trust, judge,
};

/// The local store of artefacts, and access to registries.
pub struct Store {
    settings: RegistrySettings,
    trust: Trust,
    layout: Layout,
}

/// A policy's module from an artefact.
#[derive(Clone, Debug)]
pub struct Pulled {
    /// The reference.
    pub location: String,
    /// The manifest's digest.
    pub digest: Digest,
    /// The module.
    pub module: Vec<u8>,
    /// Why the artefact is trusted.
    pub trusted: Trusted,
}

/// Why an artefact is trusted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Trusted {
    /// There are no rules, so nothing is checked.
    Unchecked,
    /// A rule accepts it without a signature.
    Unsigned,
    /// The artefact is signed as the rules require.
    Signed(Vec<Good>),
}

/// The result of verifying an artefact.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Verification {
    /// The manifest's digest.
    #[serde(serialize_with = "as_text")]
    pub digest: Digest,
    /// Why the artefact is trusted; `None` if it is not.
    pub trusted: Option<Trusted>,
    /// Why the artefact is not trusted; `None` if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Signatures that do not count, and why.
    pub rejected: Vec<Rejected>,
}

/// An artefact without its module.
#[derive(Clone, Debug)]
pub struct ArtifactInfo {
    /// The manifest's digest.
    pub digest: Digest,
    /// The module's digest and size in the manifest.
    pub module: (Digest, u64),
    /// The config; `None` unless it is in CNCF's layout.
    pub config: Option<WasmConfig>,
    /// The manifest's annotations.
    pub annotations: BTreeMap<String, String>,
    /// Number of signatures, by any signer.
    pub signatures: usize,
    /// The tag's current digest, if the reference also has a digest and the two differ.
    pub moved: Option<Digest>,
}

/// The result of a copy or push.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Stored {
    /// The target location.
    pub location: String,
    /// The manifest's digest.
    #[serde(serialize_with = "as_text")]
    pub digest: Digest,
    /// Number of signatures that were copied.
    pub signatures: usize,
}

impl Store {
    /// Opens the store in a folder, which is created if it does not exist, and reads the keys.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Settings`], [`RegistryError::File`].
    pub fn open(settings: RegistrySettings, store: &Path) -> Result<Self, RegistryError> {
        settings.check()?;
        let trust = trust_of(&settings.verification)?;
        Ok(Self { settings, trust, layout: Layout::create(store)? })
    }

    /// The settings of registries.
    pub fn settings(&self) -> &RegistrySettings {
        &self.settings
    }

    /// The module of an artefact: from the store, else from its location. `also` are additional rules; they and the store's own
    /// must both accept the artefact. With `anew`, a tag is resolved again.
    ///
    /// # Errors
    ///
    /// [`RegistryError`] names the reference, the step and the remedy.
    pub async fn pull(
        &self,
        location: &Location,
        also: Option<&Trust>,
        anew: bool,
        progress: &mut dyn TransferProgress,
    ) -> Result<Pulled, RegistryError> {
        match self.stored(location, also) {
            _ if anew => {}
            Ok(Some(pulled)) => return Ok(pulled),
            // A trusted key may have signed the artefact since then.
            Ok(None) | Err(RegistryError::Untrusted { .. }) => {}
            Err(error) => return Err(error),
        }
        let what = location.to_string();
        let pulling = async {
            let mut remotes = Remotes::default();
            let mut source = Source::open(location, &self.settings, &mut remotes).await?;
            let document = source.resolve(&what).await?;
            let manifest = document.manifest(&what)?;
            let kind = LayoutKind::of(&manifest, &what)?;
            let mut ignored = Vec::new();
            if self.needs_signatures(location, also) {
                let extent = Extent::ToJudge;
                let fetched =
                    self.fetch_signatures(&source, location, document.digest, &self.layout, extent, progress).await?;
                ignored = fetched.ignored;
            }
            // Before the module is fetched: an untrusted artefact costs no more than its manifest and signatures.
            self.check_trust(location, document.digest, also, ignored)?;
            source.fetch(&self.layout, &manifest.config, &what, (MAX_BESIDE, "config"), progress).await?;
            let most = self.settings.limits.module_bytes();
            source.fetch(&self.layout, &kind.layer, &what, (most, "module"), progress).await?;
            self.layout.name(&document, Some(&what))
        };
        self.bounded(&what, Box::pin(pulling)).await?;
        self.stored(location, also)?.ok_or_else(|| RegistryError::InvalidArtifact {
            what,
            message: "it was deleted from the local store while it was fetched; try again".to_owned(),
        })
    }

    /// The module of an artefact that is in the store; no network is used. `None` if the artefact is incomplete, or its
    /// signatures are missing.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Untrusted`] if the artefact is stored, but not trusted.
    pub fn stored(&self, location: &Location, also: Option<&Trust>) -> Result<Option<Pulled>, RegistryError> {
        let what = location.to_string();
        let Some(digest) = self.known(location)? else { return Ok(None) };
        let Some(document) = self.layout.document(digest)? else { return Ok(None) };
        let kind = LayoutKind::of(&document.manifest(&what)?, &what)?;
        let (layer, _) = named(&kind.layer, &what)?;
        let most = self.settings.limits.module_bytes();
        let Some(bytes) = self.layout.blob(layer, most, "module")? else { return Ok(None) };
        let candidates = self.candidates(&self.stored_signatures(location, digest)?);
        let verification = self.judge(&candidates, location, digest, also);
        let trusted = match (verification.trusted, verification.refused) {
            (Some(trusted), _) => trusted,
            // The artefact was pulled without a rule, so its signatures were not fetched.
            (None, _) if candidates.is_empty() => return Ok(None),
            (None, refused) => return Err(untrusted(location, digest, refused)),
        };
        let module = kind.module(bytes, &what, most)?;
        self.layout.touch(digest);
        Ok(Some(Pulled { location: what, digest, module, trusted }))
    }

    /// The current digest of a reference. Only the manifest is fetched.
    ///
    /// # Errors
    ///
    /// [`RegistryError`].
    pub async fn resolve(&self, location: &Location) -> Result<Digest, RegistryError> {
        let what = location.to_string();
        let resolving = async {
            let mut source = Source::open(location, &self.settings, &mut Remotes::default()).await?;
            source.resolve(&what).await.map(|document| document.digest)
        };
        self.bounded(&what, Box::pin(resolving)).await
    }

    /// Whether an artefact is trusted by the store's rules and by additional ones.
    ///
    /// # Errors
    ///
    /// [`RegistryError`] if that cannot be determined. An untrusted artefact is not an error.
    pub async fn verify(&self, location: &Location, also: Option<&Trust>) -> Result<Verification, RegistryError> {
        let what = location.to_string();
        let verifying = async {
            let mut source = Source::open(location, &self.settings, &mut Remotes::default()).await?;
            let document = source.resolve(&what).await?;
            self.layout.keep(document.digest, &document.bytes)?;
            let extent = Extent::ToJudge;
            let fetched =
                self.fetch_signatures(&source, location, document.digest, &self.layout, extent, &mut ()).await?;
            // Only these: the store may also have signatures from other places.
            let candidates = self.candidates(&fetched.manifests());
            Ok(self.judge(&candidates, location, document.digest, also).with_ignored(fetched.ignored))
        };
        self.bounded(&what, Box::pin(verifying)).await
    }

    /// Describes an artefact without fetching its module.
    ///
    /// # Errors
    ///
    /// [`RegistryError`].
    pub async fn inspect(&self, location: &Location) -> Result<ArtifactInfo, RegistryError> {
        let what = location.to_string();
        let inspecting = async {
            let mut remotes = Remotes::default();
            let mut source = Source::open(location, &self.settings, &mut remotes).await?;
            let document = source.resolve(&what).await?;
            let manifest = document.manifest(&what)?;
            let kind = LayoutKind::of(&manifest, &what)?;
            source.fetch(&self.layout, &manifest.config, &what, (MAX_BESIDE, "config"), &mut ()).await?;
            self.layout.keep(document.digest, &document.bytes)?;
            let extent = Extent::ToJudge;
            let fetched =
                self.fetch_signatures(&source, location, document.digest, &self.layout, extent, &mut ()).await?;
            let signatures = self.candidates(&fetched.manifests()).len();
            let moved = match location.by_tag() {
                Some(tagged) => {
                    let mut source = Source::open(&tagged, &self.settings, &mut remotes).await?;
                    let now = source.resolve(&what).await?.digest;
                    (now != document.digest).then_some(now)
                }
                None => None,
            };
            Ok(ArtifactInfo {
                digest: document.digest,
                module: named(&kind.layer, &what)?,
                config: self.config(&manifest, &what)?,
                annotations: manifest.annotations.unwrap_or_default().into_iter().map(printable).collect(),
                signatures,
                moved,
            })
        };
        self.bounded(&what, Box::pin(inspecting)).await
    }

    /// Pushes a module.
    ///
    /// # Errors
    ///
    /// [`RegistryError`].
    pub async fn push(
        &self,
        artifact: &Artifact,
        to: &Location,
        progress: &mut dyn TransferProgress,
    ) -> Result<Stored, RegistryError> {
        let folder =
            tempfile::tempdir().map_err(crate::layout::failed("cannot make a folder", &std::env::temp_dir()))?;
        let packed = Layout::create(folder.path())?;
        packed.keep(Digest::of(&artifact.config), &artifact.config)?;
        packed.keep(Digest::of(&artifact.module), &artifact.module)?;
        packed.name(&artifact.document, Some("packed"))?;
        let putting: LocalBoxFuture<'_, _> = Box::pin(self.put(&packed, &artifact.document, &[], to, progress));
        putting.await
    }

    /// Copies an artefact with its signatures, from a registry or layout to another.
    ///
    /// # Errors
    ///
    /// [`RegistryError`].
    pub async fn copy(
        &self,
        from: &Location,
        to: &Location,
        progress: &mut dyn TransferProgress,
    ) -> Result<Stored, RegistryError> {
        let what = from.to_string();
        let mut source = Source::open(from, &self.settings, &mut Remotes::default()).await?;
        let bringing = async {
            let document = source.resolve(&what).await?;
            let manifest = document.manifest(&what)?;
            LayoutKind::of(&manifest, &what)?;
            for blob in manifest.layers.iter().chain([&manifest.config]) {
                let most = self.settings.limits.module_bytes();
                source.fetch(&self.layout, blob, &what, (most, "module"), progress).await?;
            }
            self.layout.keep(document.digest, &document.bytes)?;
            let fetched =
                self.fetch_signatures(&source, from, document.digest, &self.layout, Extent::Whole, progress).await?;
            Ok((document, fetched.signatures))
        };
        let (document, signatures) = self.bounded(&what, Box::pin(bringing)).await?;
        let putting: LocalBoxFuture<'_, _> = Box::pin(self.put(&self.layout, &document, &signatures, to, progress));
        putting.await
    }

    /// The versions in a repository or layout: the tags without those of signatures. The location's own version does not matter.
    ///
    /// # Errors
    ///
    /// [`RegistryError`].
    pub async fn versions(&self, of: &Location) -> Result<Vec<String>, RegistryError> {
        let (what, repository) = match of {
            Location::Registry(repository) => (repository.name(), repository),
            Location::Layout { path, .. } => return crate::source::versions_in(path),
        };
        let listing = async {
            let mut remotes = Remotes::default();
            let remote = remotes.of(repository, &self.settings).await?;
            let mut tags = remote.tags(repository).await?;
            tags.retain(|tag| !is_of_signatures(tag) && !tag.contains(char::is_control));
            tags.sort();
            Ok(tags)
        };
        self.bounded(&what, Box::pin(listing)).await
    }

    /// The artefacts of the store, by the names that they were pulled by.
    ///
    /// # Errors
    ///
    /// [`RegistryError::File`].
    pub fn names(&self) -> Result<BTreeMap<String, Digest>, RegistryError> {
        let mut names = self.layout.names()?;
        names.retain(|name, _| !is_of_signatures(name.rsplit(':').next().unwrap_or_default()));
        Ok(names)
    }

    /// Removes artefacts that are not in use until the store is within its size limit.
    ///
    /// # Errors
    ///
    /// [`RegistryError::File`].
    pub fn collect(&self, in_use: &BTreeSet<Digest>) -> Result<Collected, RegistryError> {
        self.layout.collect(in_use, self.settings.limits.store_bytes())
    }

    /// Runs `doing` with the time limit of a pull.
    // Boxed, so that the compiler instantiates it once and not for each caller.
    async fn bounded<T>(
        &self,
        what: &str,
        doing: LocalBoxFuture<'_, Result<T, RegistryError>>,
    ) -> Result<T, RegistryError> {
        let seconds = self.settings.limits.pull_seconds;
        let done = tokio::time::timeout(Duration::from_secs(seconds), doing).await;
        done.unwrap_or_else(|_| Err(RegistryError::TooSlow { what: what.to_owned(), seconds }))
    }

    fn known(&self, location: &Location) -> Result<Option<Digest>, RegistryError> {
        match location.digest() {
            Some(digest) => Ok(Some(digest)),
            None => self.layout.named(&location.to_string()),
        }
    }

    fn needs_signatures(&self, location: &Location, also: Option<&Trust>) -> bool {
        let name = name_of(location);
        let wants = |trust: &Trust| matches!(trust.rule_for(&name), Decision::Rule(_));
        wants(&self.trust) || also.is_some_and(wants)
    }

    fn check_trust(
        &self,
        location: &Location,
        digest: Digest,
        also: Option<&Trust>,
        ignored: Vec<Rejected>,
    ) -> Result<Trusted, RegistryError> {
        let candidates = self.candidates(&self.stored_signatures(location, digest)?);
        let verification = self.judge(&candidates, location, digest, also).with_ignored(ignored);
        verification.trusted.ok_or_else(|| untrusted(location, digest, verification.refused))
    }

    /// Copies signatures into a layout: their manifests, under the names by which they are found again, and their blobs.
    async fn fetch_signatures(
        &self,
        source: &Source,
        of: &Location,
        digest: Digest,
        into: &Layout,
        extent: Extent,
        progress: &mut dyn TransferProgress,
    ) -> Result<Signatures, RegistryError> {
        let (mut signatures, mut ignored) = (Vec::new(), Vec::new());
        let found = source.signatures(digest, &mut ignored).await?;
        for signature in found.into_iter().filter(SignatureManifest::is_signature) {
            let what = format!("{of}: signature {}", signature.document.digest);
            let Ok(manifest) = signature.document.manifest(&what) else { continue };
            let mut fetched = Ok(());
            for (blob, most) in extent.blobs(&manifest) {
                fetched = source.fetch(into, blob, &what, (most, "signature"), progress).await;
                if fetched.is_err() {
                    break;
                }
            }
            match fetched {
                Ok(()) => {}
                // A permanently broken signature is skipped; the others count.
                Err(
                    error @ (RegistryError::TooLarge { .. }
                    | RegistryError::NotFound { .. }
                    | RegistryError::Digest { .. }
                    | RegistryError::InvalidArtifact { .. }),
                ) => {
                    tracing::warn!(%error, "a signature is ignored");
                    ignored.push(Rejected { origin: signature.document.digest.to_string(), why: error.to_string() });
                    continue;
                }
                Err(error) => return Err(error),
            }
            let name = signature.tag.as_ref().map(|tag| format!("{}:{tag}", name_of(of)));
            into.name(&signature.document, name.as_deref())?;
            signatures.push((signature.document, signature.tag));
        }
        Ok(Signatures { signatures, ignored })
    }

    /// The manifests of an artefact's signatures in the store.
    fn stored_signatures(&self, of: &Location, digest: Digest) -> Result<Vec<Document>, RegistryError> {
        let mut manifests = self.layout.referrers(digest, &mut Vec::new())?;
        let tagged = self.layout.named(&format!("{}:{}", name_of(of), signature_tag(digest)))?;
        manifests.extend(tagged.map(|digest| self.layout.document(digest)).transpose()?.flatten());
        Ok(manifests)
    }

    /// The candidate signatures in manifests whose blobs are in the store.
    fn candidates(&self, manifests: &[Document]) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        for document in manifests {
            let what = document.digest.to_string();
            let Ok(manifest) = document.manifest(&what) else { continue };
            for layer in manifest.layers {
                let Some(format) = Format::of_layer(&layer.media_type) else { continue };
                let Ok((blob, _)) = named(&layer, &what) else { continue };
                let most = u64::try_from(MAX_BLOB).unwrap_or(u64::MAX);
                // Blobs that are too large are skipped; the others count.
                let Ok(Some(blob)) = self.layout.blob(blob, most, "signature") else { continue };
                let origin = what.clone();
                let annotations = layer.annotations.unwrap_or_default();
                candidates.push(Candidate { origin, format, blob, annotations, media_type: layer.media_type });
            }
        }
        candidates.truncate(MAX_CANDIDATES);
        candidates
    }

    fn judge(&self, candidates: &[Candidate], of: &Location, digest: Digest, also: Option<&Trust>) -> Verification {
        let name = name_of(of);
        let mut verification =
            Verification { digest, trusted: Some(Trusted::Unchecked), refused: None, rejected: Vec::new() };
        for trust in [Some(&self.trust), also].into_iter().flatten() {
            let (trusted, refused) = match trust.rule_for(&name) {
                Decision::Unchecked => (Trusted::Unchecked, None),
                Decision::Unsigned => (Trusted::Unsigned, None),
                Decision::Denied => {
                    let why = format!(
                        "no rule of `registries.verification` matches `{name}`; add one, with the keys that sign it"
                    );
                    (Trusted::Unchecked, Some(why))
                }
                Decision::Rule(rule) => {
                    let verdict = judge(rule, &name, &digest, candidates);
                    verification.rejected.extend(verdict.rejected);
                    match verdict.outcome {
                        Outcome::Accepted => (Trusted::Signed(verdict.signatures), None),
                        Outcome::Refused(why) => (Trusted::Unchecked, Some(why)),
                    }
                }
            };
            if refused.is_some() {
                verification.refused = verification.refused.or(refused);
                verification.trusted = None;
            }
            verification.trusted = verification.trusted.map(|before| before.and(trusted));
        }
        verification.rejected.dedup();
        verification
    }

    fn config(&self, manifest: &OciImageManifest, what: &str) -> Result<Option<WasmConfig>, RegistryError> {
        if manifest.config.media_type != CONFIG {
            return Ok(None);
        }
        let (digest, _) = named(&manifest.config, what)?;
        let bytes = self.layout.blob(digest, MAX_BESIDE, "config")?.unwrap_or_default();
        let config: serde_json::Value = serde_json::from_slice(&bytes).map_err(|error| {
            RegistryError::InvalidArtifact { what: what.to_owned(), message: format!("its config is no JSON: {error}") }
        })?;
        // The config is only descriptive. Generic push tools write `{}`.
        Ok(serde_json::from_value(config).ok())
    }

    /// Copies an artefact from a layout to its target.
    async fn put(
        &self,
        from: &Layout,
        document: &Document,
        signatures: &[(Document, Option<String>)],
        to: &Location,
        progress: &mut dyn TransferProgress,
    ) -> Result<Stored, RegistryError> {
        if let Some(expected) = to.digest().filter(|digest| *digest != document.digest) {
            return Err(RegistryError::Digest { what: to.to_string(), expected, found: document.digest });
        }
        match to {
            Location::Registry(reference) => {
                crate::upload::to_registry(from, document, signatures, reference, &self.settings, progress).await?;
            }
            Location::Layout { path, tag, .. } => {
                crate::upload::to_layout(from, document, signatures, path, tag.as_deref())?;
            }
        }
        Ok(Stored { location: to.to_string(), digest: document.digest, signatures: signatures.len() })
    }
}

/// The signatures of an artefact, from its location.
struct Signatures {
    /// Manifests of signatures, and their tags.
    signatures: Vec<(Document, Option<String>)>,
    /// Signatures that cannot be read, and why.
    ignored: Vec<Rejected>,
}

impl Signatures {
    /// The manifests, each once: a list of referrers may name one twice.
    fn manifests(&self) -> Vec<Document> {
        let mut manifests: Vec<Document> = Vec::new();
        for (document, _) in &self.signatures {
            if !manifests.contains(document) {
                manifests.push(document.clone());
            }
        }
        manifests
    }
}

impl Verification {
    /// Adds signatures that cannot be read. A refusal names the first: the artefact may be signed as the rules require.
    fn with_ignored(mut self, ignored: Vec<Rejected>) -> Self {
        if let (Some(refused), Some(first)) = (&mut self.refused, ignored.first()) {
            refused.push_str(&format!("; {} beside it cannot be read: {}", first.origin, first.why));
        }
        self.rejected.extend(ignored);
        self
    }
}

impl Trusted {
    /// Combines two acceptances: the stronger reason is returned.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Signed(mut one), Self::Signed(other)) => {
                one.extend(other.into_iter().filter(|good| !one.contains(good)).collect::<Vec<_>>());
                Self::Signed(one)
            }
            (Self::Signed(one), _) | (_, Self::Signed(one)) => Self::Signed(one),
            (Self::Unsigned, _) | (_, Self::Unsigned) => Self::Unsigned,
            (Self::Unchecked, Self::Unchecked) => Self::Unchecked,
        }
    }
}

impl std::fmt::Display for Trusted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unchecked => f.write_str("not checked"),
            Self::Unsigned => f.write_str("unsigned, as a rule allows"),
            Self::Signed(signatures) => {
                let keys: BTreeSet<_> = signatures.iter().map(|good| good.key.as_str()).collect();
                write!(f, "signed by {}", keys.into_iter().collect::<Vec<_>>().join(", "))
            }
        }
    }
}

/// How much of a signature's manifest is fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// Only the blobs needed to verify: anyone who may push to the repository could list any number of blobs of any size, and
    /// nothing is verified yet.
    ToJudge,
    /// All blobs, for copying.
    Whole,
}

impl Extent {
    fn blobs(self, manifest: &OciImageManifest) -> Vec<(&OciDescriptor, u64)> {
        let layers = manifest.layers.iter();
        match self {
            Self::Whole => layers.chain([&manifest.config]).map(|blob| (blob, MAX_BESIDE)).collect(),
            Self::ToJudge => {
                let most = u64::try_from(MAX_BLOB).unwrap_or(u64::MAX);
                // The last ones, because cosign appends.
                layers
                    .rev()
                    .filter(|layer| is_signature(&layer.media_type))
                    .take(MAX_SIGNATURES)
                    .map(|layer| (layer, most))
                    .collect()
            }
        }
    }
}

/// Loads the rules and their keys; errors are reported as errors of the settings.
///
/// # Errors
///
/// [`RegistryError::Settings`].
pub fn trust_of(policy: &crate::trust::TrustPolicy) -> Result<Trust, RegistryError> {
    Trust::load(policy)
        .map_err(|error| RegistryError::Settings { place: "verification".to_owned(), message: error.to_string() })
}

/// Removes terminal control characters from third-party text.
fn printable((key, value): (String, String)) -> (String, String) {
    let clean = |text: String| text.chars().filter(|character| !character.is_control()).collect();
    (clean(key), clean(value))
}

fn as_text<S: serde::Serializer>(digest: &Digest, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(digest)
}

/// The name that rules are matched against: `REGISTRY/REPOSITORY`, or the layout.
fn name_of(location: &Location) -> String {
    match location {
        Location::Registry(reference) => reference.name(),
        Location::Layout { path, .. } => format!("oci-layout:{}", path.display()),
    }
}

fn untrusted(location: &Location, digest: Digest, why: Option<String>) -> RegistryError {
    let what = match location {
        Location::Registry(reference) => reference.pinned(digest).to_string(),
        location => location.to_string(),
    };
    RegistryError::Untrusted { what, message: why.unwrap_or_else(|| "nothing vouches for it".to_owned()) }
}

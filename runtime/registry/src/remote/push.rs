//! Uploads: blobs, and manifests that name them.

use qosm_model::digest::Digest;
use reqwest::header::{CONTENT_TYPE, LOCATION};
use reqwest::{Response, Url};

use super::{Asked, Remote};
use crate::error::RegistryError;
use crate::manifest::Document;
use crate::reference::Reference;
use crate::retry::retry;

impl Remote {
    /// Whether the registry has a blob.
    async fn has_blob(&self, asked: &Asked<'_>, digest: Digest) -> Result<bool, RegistryError> {
        let url = self.address(&format!("{}/blobs/{digest}", asked.reference.repository()));
        let has = || async {
            match self.send(asked, self.http.head(&url)).await {
                Ok(_) => Ok(true),
                Err(RegistryError::NotFound { .. }) => Ok(false),
                Err(error) => Err(error),
            }
        };
        retry(&asked.reference.to_string(), has).await
    }

    /// Uploads a blob, unless the registry has it.
    pub(crate) async fn push_blob(&self, to: &Reference, digest: Digest, bytes: Vec<u8>) -> Result<(), RegistryError> {
        let asked = Asked::push(to, "repository");
        if self.has_blob(&asked, digest).await? {
            return Ok(());
        }
        let bytes = bytes::Bytes::from(bytes);
        let begin = self.address(&format!("{}/blobs/uploads/", to.repository()));
        retry(&to.to_string(), || async {
            let begun = self.send(&asked, self.http.post(&begin).body("")).await?;
            let place = self.upload_place(&asked, &begun, digest)?;
            let upload = self.http.put(place.clone()).header(CONTENT_TYPE, "application/octet-stream");
            let upload = upload.body(bytes.clone());
            // An upload address on another host contains its own authorization.
            let is_here = Url::parse(&begin).is_ok_and(|begin| begin.origin() == place.origin());
            if is_here { self.send(&asked, upload).await } else { self.exchange(&asked, upload).await }.map(drop)
        })
        .await
    }

    /// The upload address from the registry's response.
    fn upload_place(&self, asked: &Asked<'_>, begun: &Response, digest: Digest) -> Result<Url, RegistryError> {
        let place = begun.headers().get(LOCATION).and_then(|place| place.to_str().ok());
        let place = place.and_then(|place| begun.url().join(place).ok());
        let is_good = |place: &Url| place.scheme() == "https" || self.host.plain_http && place.scheme() == "http";
        let mut place = place.filter(is_good).ok_or_else(|| RegistryError::Answer {
            what: asked.reference.to_string(),
            registry: self.host.registry.clone(),
            status: begun.status().as_u16(),
            message: " without saying where blobs are to be sent".to_owned(),
            retry_after: None,
        })?;
        place.query_pairs_mut().append_pair("digest", &digest.to_string());
        Ok(place)
    }

    /// Uploads a manifest under a tag, or under its digest.
    pub(crate) async fn push_manifest(&self, to: &Reference, document: &Document) -> Result<(), RegistryError> {
        let asked = Asked::push(to, "repository");
        let version = to.tag().map_or_else(|| document.digest.to_string(), str::to_owned);
        let url = self.address(&format!("{}/manifests/{version}", to.repository()));
        let bytes = bytes::Bytes::from(document.bytes.clone());
        let put = || async {
            let request = self.http.put(&url).header(CONTENT_TYPE, &document.media_type).body(bytes.clone());
            self.send(&asked, request).await.map(drop)
        };
        retry(&to.to_string(), put).await
    }
}

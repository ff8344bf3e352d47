//! Components: a core module with the contract's types around it.

use wit_component::{ComponentEncoder, DecodedWasm};

use crate::error::BuildError;

/// A core module with the WIT that `wit-bindgen` left in it, as a validated component.
///
/// # Errors
///
/// [`BuildError::Component`]: it imports what the contract does not have, lacks an export, or says nothing of the contract at all.
pub fn component(policy: &str, core: &[u8]) -> Result<Vec<u8>, BuildError> {
    let wrong =
        |source: Box<dyn std::error::Error + Send + Sync>| BuildError::Component { policy: policy.to_owned(), source };
    let encode = || ComponentEncoder::default().validate(true).module(core)?.encode();
    let component = encode().map_err(|error| wrong(error.into()))?;
    match wit_component::decode(&component).map_err(|error| wrong(error.into()))? {
        DecodedWasm::Component(resolve, world) if !resolve.worlds[world].exports.is_empty() => Ok(component),
        DecodedWasm::Component(..) => Err(wrong(
            "it exports nothing: does the crate call `qosm_sdk::export!` in its root, for the type that implements `Policy`?".into(),
        )),
        DecodedWasm::WitPackage(..) => Err(wrong("it is a WIT package".into())),
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn a_module_without_exports_is_refused() {
        let error = component("mine", b"\0asm\x01\0\0\0").unwrap_err();
        assert_eq!(error.to_string(), "policy `mine` makes no component");
        assert!(error.source().unwrap().to_string().contains("exports nothing"), "{error:?}");
    }
}

//! Components: a core module wrapped with the contract's types.

use wit_component::{ComponentEncoder, DecodedWasm};

use crate::error::BuildError;

/// Converts a core module, with the WIT that `wit-bindgen` embedded in it, to a validated component.
///
/// # Errors
///
/// [`BuildError::Component`]: the module imports what the contract does not have, lacks an export, or embeds no contract.
pub fn component(policy: &str, core: &[u8]) -> Result<Vec<u8>, BuildError> {
    let encode = || ComponentEncoder::default().validate(true).module(core)?.encode();
    let component = encode().map_err(|error| wrong(policy, error.into()))?;
    let question = "does the crate call `qosm_sdk::export!` in its root, for the type that implements `Policy`?";
    checked(policy, component, question)
}

/// Returns the component if it exports something; otherwise an error with a question that helps the author.
pub(crate) fn checked(policy: &str, component: Vec<u8>, question: &str) -> Result<Vec<u8>, BuildError> {
    match wit_component::decode(&component).map_err(|error| wrong(policy, error.into()))? {
        DecodedWasm::Component(resolve, world) if !resolve.worlds[world].exports.is_empty() => Ok(component),
        DecodedWasm::Component(..) => Err(wrong(policy, format!("it exports nothing: {question}").into())),
        DecodedWasm::WitPackage(..) => Err(wrong(policy, "it is a WIT package".into())),
    }
}

pub(crate) fn wrong(policy: &str, source: Box<dyn std::error::Error + Send + Sync>) -> BuildError {
    BuildError::Component { policy: policy.to_owned(), source }
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

//! The types that `wit-bindgen` generates from the contract in `sdk/wit`. The rest of the crate re-exports them under short names; only
//! [`export!`](crate::export) needs this module by name.
#![allow(missing_docs, unreachable_pub, clippy::all, reason = "generated")]

wit_bindgen::generate!({
    path: "wit",
    world: "policy",
    pub_export_macro: true,
    default_bindings_module: "::qosm_sdk::bindings",
    additional_derives: [PartialEq, Eq, Hash, PartialOrd, Ord],
});

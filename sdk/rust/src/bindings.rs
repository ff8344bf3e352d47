//! What `wit-bindgen` makes of the contract in `sdk/wit`. The rest of the crate puts plain names before it; only
//! [`export!`](crate::export) needs it by its own name.
#![allow(missing_docs, unreachable_pub, clippy::all, reason = "generated")]

wit_bindgen::generate!({
    path: "wit",
    world: "policy",
    pub_export_macro: true,
    default_bindings_module: "::qosm_sdk::bindings",
    additional_derives: [PartialEq, Eq, Hash, PartialOrd, Ord],
});

//! Rust bindings of `sdk/wit`: generated.

#![allow(missing_docs, unreachable_pub, reason = "generated; the contract's own text is the documentation")]
#![allow(unsafe_code, reason = "generated: typed functions whose types were checked when the exports were looked up")]

wasmtime::component::bindgen!({
    path: "../../sdk/wit",
    world: "policy",
    // Arguments are lent to the module, not copied for it.
    ownership: Borrowing { duplicate_if_necessary: true },
    // A broken rule ends the call: every import can fail.
    imports: { default: trappable },
});

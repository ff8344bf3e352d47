//! Rust bindings of `sdk/wit`: generated.

#![allow(missing_docs, unreachable_pub, reason = "generated; the contract's own text is the documentation")]
#![allow(unsafe_code, reason = "generated: typed functions whose types were checked when the exports were looked up")]

wasmtime::component::bindgen!({
    path: "../../sdk/wit",
    world: "policy",
    // Arguments are passed by reference, not copied.
    ownership: Borrowing { duplicate_if_necessary: true },
    // Every import can fail: a violation of the contract ends the call.
    imports: { default: trappable },
});

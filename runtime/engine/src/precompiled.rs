//! Compiled modules: native code, and the only thing here that the type system cannot vouch for.

use wasmtime::Module;
use wasmtime::component::Component;

/// Native code that this agent's own compiler made. It cannot be constructed from other bytes: it comes out of
/// [`crate::compile`], or out of [`crate::cache`] after its authentication code was verified.
pub(crate) struct Precompiled(Vec<u8>);

impl Precompiled {
    /// The caller vouches for the bytes: they are what [`wasmtime::Engine::precompile_component`] or
    /// [`wasmtime::Engine::precompile_module`] returned.
    pub(crate) fn vouched(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Loads a component's code. It is copied, never mapped from a file: what was checked is what runs, whatever happens to the file later.
    #[expect(
        unsafe_code,
        reason = "deserialising runs what it is given as native code; `Precompiled` is the proof of origin"
    )]
    pub(crate) fn load(&self, engine: &wasmtime::Engine) -> wasmtime::Result<Component> {
        // SAFETY: `deserialize` requires bytes that `Engine::precompile_component` returned, unchanged. `vouched` is called in two
        // places only: on what the compiler returned, and on what the cache wrote itself and found unchanged by HMAC. Bytes of
        // another engine version or of other settings are recognised and refused by `deserialize` itself.
        unsafe { Component::deserialize(engine, &self.0) }
    }

    /// The same for a core module, which is what a Rego policy is.
    #[expect(
        unsafe_code,
        reason = "deserialising runs what it is given as native code; `Precompiled` is the proof of origin"
    )]
    pub(crate) fn load_core(&self, engine: &wasmtime::Engine) -> wasmtime::Result<Module> {
        // SAFETY: as above. Code of a component is recognised as such, and refused, by `deserialize` itself.
        unsafe { Module::deserialize(engine, &self.0) }
    }
}

//! Compiled modules: native code, whose safety the type system cannot guarantee.

use wasmtime::Module;
use wasmtime::component::Component;

/// Native code that this agent's own compiler produced. It cannot be constructed from other bytes: it comes from
/// [`crate::compile`], or from [`crate::cache`] after its authentication code was verified.
pub(crate) struct Precompiled(Vec<u8>);

impl Precompiled {
    /// The caller guarantees that [`wasmtime::Engine::precompile_component`] or [`wasmtime::Engine::precompile_module`]
    /// returned these bytes.
    pub(crate) fn vouched(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Loads a component's code. The code is copied, never mapped from a file, so that later changes of the file have no
    /// effect on what runs.
    #[expect(
        unsafe_code,
        reason = "deserialising runs what it is given as native code; `Precompiled` is the proof of origin"
    )]
    pub(crate) fn load(&self, engine: &wasmtime::Engine) -> wasmtime::Result<Component> {
        // SAFETY: `deserialize` requires bytes that `Engine::precompile_component` returned, unchanged. `vouched` is
        // called in two places only: on what the compiler returned, and on what the cache wrote and verified by its HMAC.
        // `deserialize` itself recognises and refuses bytes of another engine version or of other settings.
        unsafe { Component::deserialize(engine, &self.0) }
    }

    /// Loads the code of a core module, the form of a Rego policy.
    #[expect(
        unsafe_code,
        reason = "deserialising runs what it is given as native code; `Precompiled` is the proof of origin"
    )]
    pub(crate) fn load_core(&self, engine: &wasmtime::Engine) -> wasmtime::Result<Module> {
        // SAFETY: as above. `deserialize` itself recognises and refuses the code of a component.
        unsafe { Module::deserialize(engine, &self.0) }
    }
}

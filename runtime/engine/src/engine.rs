//! The engine: its settings, and the steps from a module's bytes to an instance.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use qosm_model::protocol::Description;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, InstancePre, Linker};

use crate::bindings::PolicyPre;
use crate::cache::{Entry, ModuleCache};
use crate::compile::{Compiler, compile};
use crate::error::{EngineError, Rule};
use crate::inspect::{Form, Inspection, inspect};
use crate::instance::Instance;
use crate::interface::{ExternName, Grants, Interface, Part, Reach};
use crate::limits::Limits;
use crate::link::{Host, link, link_to_nothing};
use crate::precompiled::Precompiled;
use crate::rego::{Bundle, Policy, Rego, in_rego, is_bundle};
use crate::staging::InheritedState;
use crate::watchdog::{Deadline, Watchdog};
use crate::{component, description};
use qosm_model::digest::Digest;

/// Stack of a running module in bytes; deeper recursion traps. Calls run on the caller's thread, which must have this
/// much stack left.
pub const STACK: usize = 512 << 10;

/// Address space reserved for a linear memory, in bytes. Larger memories are moved when they grow.
const RESERVATION: u64 = 32 << 20;

/// Time limit of `describe`: longer than an evaluation's, since it runs once, possibly on a busy node.
const DESCRIBE: Duration = Duration::from_millis(500);

/// Runs policy modules. Cheap to clone; a process should have one.
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

struct Inner {
    // Dropped first: the watchdog's thread must not outlive the engine whose epoch it increments.
    watchdog: Watchdog,
    wasm: wasmtime::Engine,
    observer: Option<InputObserver>,
}

/// Called before each evaluation of a Rego policy with its `input` document as JSON.
pub type InputObserver = Box<dyn Fn(&str) + Send + Sync>;

/// A compiled module whose imports and exports fit the contract. Cheap to clone.
#[derive(Clone)]
pub struct Module(Arc<ModuleParts>);

struct ModuleParts {
    digest: Digest,
    size: usize,
    imports: BTreeSet<Interface>,
    parts: BTreeSet<Part>,
    code: Code,
}

/// The compiled code of a module.
enum Code {
    Component(Component),
    Rego(Arc<Policy>),
}

impl Module {
    /// The digest of the module's file.
    pub fn digest(&self) -> &Digest {
        &self.0.digest
    }

    /// The reach that a Rego policy declares; empty for a component, which cannot declare any.
    pub fn declared_reach(&self) -> BTreeSet<Reach> {
        match &self.0.code {
            Code::Rego(policy) => policy.reach.clone(),
            Code::Component(_) => BTreeSet::new(),
        }
    }

    /// The reach that must be granted beside the module's imports, given its description.
    pub fn needed_reach(&self, description: &Description) -> BTreeSet<Reach> {
        Reach::needed(self.imports(), &self.declared_reach(), description.protocol.is_some())
    }

    /// The interfaces that a component imports or a Rego policy declares. The module can reach no others.
    pub fn imports(&self) -> &BTreeSet<Interface> {
        &self.0.imports
    }

    /// Whether the host has to read a part of a signal for this module. A Rego policy sees every part of the signals that
    /// it declares.
    pub fn reads(&self, part: Part) -> bool {
        self.0.parts.contains(&part)
    }

    /// Size of the module's file in bytes.
    pub fn size(&self) -> usize {
        self.0.size
    }

    /// Whether the module is a component or a Rego bundle.
    pub fn form(&self) -> Form {
        match self.0.code {
            Code::Component(_) => Form::Component,
            Code::Rego(_) => Form::Rego,
        }
    }
}

impl std::fmt::Debug for Module {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Module")
            .field("digest", &self.0.digest)
            .field("imports", &self.0.imports)
            .finish_non_exhaustive()
    }
}

impl Engine {
    /// Starts the engine and its watchdog. A process that confines itself (Landlock, capabilities, no new privileges)
    /// must do so first: the watchdog's thread keeps privileges that the process drops later.
    ///
    /// # Errors
    ///
    /// [`EngineError::Start`] on a machine that cannot run compiled Wasm, [`EngineError::Watchdog`] if no thread can be
    /// started.
    pub fn new() -> Result<Self, EngineError> {
        Self::with(Meter::None, None)
    }

    /// Starts an engine that passes each Rego input to an observer, for authors' tools.
    ///
    /// # Errors
    ///
    /// As [`Self::new`].
    pub fn with_input_observer(observer: InputObserver) -> Result<Self, EngineError> {
        Self::with(Meter::None, Some(observer))
    }

    /// Starts an engine that counts what modules execute ([`Instance::fuel`]); the count is the same on every machine.
    /// Counting costs time, so time is measured with another engine. Modules must be compiled in this process
    /// ([`Compiler::InProcess`]): a child compiles code that does not count.
    ///
    /// # Errors
    ///
    /// As [`Self::new`].
    pub fn metered() -> Result<Self, EngineError> {
        Self::with(Meter::Fuel, None)
    }

    fn with(meter: Meter, observer: Option<InputObserver>) -> Result<Self, EngineError> {
        let wasm = wasm_engine(meter).map_err(|error| EngineError::Start(error.into()))?;
        let watchdog = Watchdog::start(wasm.weak()).map_err(EngineError::Watchdog)?;
        Ok(Self(Arc::new(Inner { watchdog, wasm, observer })))
    }

    /// Reads a module's binary without compiling or running it.
    ///
    /// # Errors
    ///
    /// [`EngineError::NotAComponent`], [`EngineError::TooLarge`], [`EngineError::TooManyItems`],
    /// [`EngineError::Invalid`]; for an archive also [`EngineError::Bundle`] and [`EngineError::Description`]. Imports
    /// that this host does not offer are no error here: see [`Inspection::unknown_imports`].
    pub fn inspect(&self, wasm: &[u8]) -> Result<Inspection, EngineError> {
        Ok(inspect(wasm)?.inspection)
    }

    /// Makes a module runnable: from its compiled form in the cache if that is authentic, else by compiling it.
    ///
    /// # Errors
    ///
    /// Those of [`Self::inspect`]; [`EngineError::Contract`], [`EngineError::UnknownImports`], [`EngineError::Composed`],
    /// [`EngineError::NoLifecycle`] and [`EngineError::Mismatch`] for a component that is not a policy for this host;
    /// [`EngineError::Bundle`], and [`EngineError::Instantiate`] from a trial start, for a bundle that is not;
    /// [`EngineError::Compile`] and [`EngineError::Load`]. Errors of the cache are only logged.
    pub fn load(&self, wasm: &[u8], cache: Option<&ModuleCache>, compiler: &Compiler) -> Result<Module, EngineError> {
        if is_bundle(wasm) {
            return self.load_bundle(wasm, cache, compiler);
        }
        let inspection = inspect(wasm)?.check()?;
        let digest = inspection.digest;
        let component = self.compiled(digest, wasm, cache, compiler, Precompiled::load)?;
        let imports: BTreeSet<_> = inspection.imports.into_iter().collect();
        // Linked once with all its imports, so that type errors are found at load time.
        self.pre_instantiate(digest, &component, |linker| {
            imports.iter().try_for_each(|&interface| link(linker, interface))
        })?;
        let parts = imported_parts(self.wasm(), &component);
        let code = Code::Component(component);
        Ok(Module(Arc::new(ModuleParts { digest, size: inspection.size, imports, parts, code })))
    }

    fn load_bundle(
        &self,
        bytes: &[u8],
        cache: Option<&ModuleCache>,
        compiler: &Compiler,
    ) -> Result<Module, EngineError> {
        let bundle = Bundle::read(bytes)?;
        bundle.metadata.check(bundle.digest)?;
        let (digest, size) = (bundle.digest, bundle.size);
        let core = self.compiled(digest, &bundle.wasm, cache, compiler, Precompiled::load_core)?;
        let limits = Limits { evaluation: DESCRIBE, ..Limits::default() };
        let policy = Policy::new(bundle, core, self.deadline(), &limits)?;
        let imports = policy.grants.clone();
        let parts = Part::ALL.into_iter().filter(|part| imports.contains(&part.interface())).collect();
        Ok(Module(Arc::new(ModuleParts { digest, size, imports, parts, code: Code::Rego(Arc::new(policy)) })))
    }

    /// Calls a component's `describe` in an instance without any interface. The description of a Rego policy comes from
    /// its METADATA.
    ///
    /// # Errors
    ///
    /// [`EngineError::Instantiate`] and [`EngineError::Describe`] if the module fails or calls an import,
    /// [`EngineError::Description`] naming the field that cannot be used.
    pub fn describe(&self, module: &Module) -> Result<Description, EngineError> {
        let component = match &module.0.code {
            Code::Component(component) => component,
            Code::Rego(policy) => {
                description::check_schemas(*module.digest(), &policy.description).map_err(in_rego)?;
                return Ok(policy.description.clone());
            }
        };
        let limits = Limits { evaluation: DESCRIBE, ..Limits::default() };
        let digest = *module.digest();
        let in_describe = |import| Rule::ImportInDescribe { import };
        let pre = self.pre_instantiate(digest, component, |linker| {
            link_to_nothing(linker, component, module.imports(), in_describe)
        })?;
        let name = digest.to_string();
        let host = self.host(&limits, InheritedState::default());
        let mut instance =
            component::Component::start(self, &pre, &name, host, &limits).map_err(EngineError::Instantiate)?;
        let raw = instance.describe().map_err(EngineError::Describe)?;
        let description = description::read(digest, module.imports(), raw)?;
        description::check_schemas(digest, &description)?;
        Ok(description)
    }

    /// Creates an instance under a policy's name, with the state that its predecessor saved. Only granted interfaces are linked.
    ///
    /// # Errors
    ///
    /// [`EngineError::NotGranted`] if the module imports more, [`EngineError::Instantiate`] if the module fails while it starts.
    pub fn instantiate(
        &self,
        module: &Module,
        name: &str,
        grants: &Grants,
        limits: &Limits,
        state: impl Into<InheritedState>,
    ) -> Result<Instance, EngineError> {
        let state = state.into();
        let missing: Vec<_> = module.imports().iter().copied().filter(|&import| !grants.contains(import)).collect();
        if !missing.is_empty() {
            return Err(EngineError::NotGranted { module: name.to_owned(), missing });
        }
        let component = match &module.0.code {
            Code::Component(component) => component,
            Code::Rego(policy) => {
                let rego = Rego::start(self, policy, name, limits, state).map_err(EngineError::Instantiate)?;
                return Ok(rego.into());
            }
        };
        let granted = Interface::ALL.into_iter().filter(|&interface| grants.contains(interface));
        let pre = self.pre_instantiate(*module.digest(), component, |linker| {
            granted.into_iter().try_for_each(|interface| link(linker, interface))
        })?;
        let started = component::Component::start(self, &pre, name, self.host(limits, state), limits);
        started.map(Instance::from).map_err(EngineError::Instantiate)
    }

    /// Like [`Self::instantiate`], but imports that are not granted do not prevent instantiation: a call that uses one
    /// fails. For tools that find out which of its imports a module needs.
    ///
    /// # Errors
    ///
    /// [`EngineError::Instantiate`] if the module fails while it starts.
    pub fn instantiate_partly(
        &self,
        module: &Module,
        name: &str,
        grants: &Grants,
        limits: &Limits,
        state: impl Into<InheritedState>,
    ) -> Result<Instance, EngineError> {
        let state = state.into();
        let (granted, missing): (BTreeSet<_>, BTreeSet<_>) =
            module.imports().iter().copied().partition(|&import| grants.contains(import));
        let component = match &module.0.code {
            Code::Component(component) => component,
            Code::Rego(policy) => {
                let policy = Arc::new(policy.with_grants(granted));
                let rego = Rego::start(self, &policy, name, limits, state).map_err(EngineError::Instantiate)?;
                return Ok(rego.into());
            }
        };
        let pre = self.pre_instantiate(*module.digest(), component, |linker| {
            granted.iter().try_for_each(|&interface| link(linker, interface))?;
            link_to_nothing(linker, component, &missing, |import| Rule::NotGranted { import })
        })?;
        let started = component::Component::start(self, &pre, name, self.host(limits, state), limits);
        started.map(Instance::from).map_err(EngineError::Instantiate)
    }

    pub(crate) fn wasm(&self) -> &wasmtime::Engine {
        &self.0.wasm
    }

    pub(crate) fn observer(&self) -> Option<&InputObserver> {
        self.0.observer.as_ref()
    }

    fn host(&self, limits: &Limits, state: InheritedState) -> Host {
        Host::new(limits, state, self.deadline())
    }

    /// Creates a deadline for one store.
    pub(crate) fn deadline(&self) -> Deadline {
        self.0.watchdog.deadline()
    }

    /// A module's code, from the cache or from the compiler. The cache stores it under the digest `module`.
    pub(crate) fn compiled<C>(
        &self,
        module: Digest,
        wasm: &[u8],
        cache: Option<&ModuleCache>,
        compiler: &Compiler,
        load: impl Fn(&Precompiled, &wasmtime::Engine) -> wasmtime::Result<C>,
    ) -> Result<C, EngineError> {
        let engine = self.wasm();
        let entry = Entry::new(module, engine);
        if let Some(cache) = cache
            && let Some(kept) = cache.load(&entry)
        {
            match load(&kept, engine) {
                Ok(code) => return Ok(code),
                Err(error) => cache.invalidate(&entry, &error.to_string()),
            }
        }
        if let Some(source) = cache.and_then(|cache| cache.failure(&entry)) {
            return Err(EngineError::Compile { module, source });
        }
        let alone = cache.is_some_and(|cache| cache.is_last_attempt(&entry));
        let compiled = compile(compiler, engine, wasm, alone).map_err(|source| {
            if let Some(cache) = cache {
                cache.note_failure(&entry, &source);
            }
            EngineError::Compile { module, source }
        })?;
        if let Some(cache) = cache {
            cache.clear_failure(&module);
        }
        let code = load(&compiled, engine).map_err(|error| EngineError::Load { module, source: error.into() })?;
        if let Some(cache) = cache {
            cache.store(&entry, &compiled);
        }
        Ok(code)
    }

    /// Resolves a module's imports with a new linker, and finds its exports.
    fn pre_instantiate(
        &self,
        module: Digest,
        component: &Component,
        fill: impl FnOnce(&mut Linker<Host>) -> wasmtime::Result<()>,
    ) -> Result<PolicyPre<Host>, EngineError> {
        let resolve = || -> wasmtime::Result<PolicyPre<Host>> {
            let mut linker = Linker::new(self.wasm());
            fill(&mut linker)?;
            let pre: InstancePre<Host> = linker.instantiate_pre(component)?;
            PolicyPre::new(pre)
        };
        resolve().map_err(|error| EngineError::Mismatch { module, source: error.into() })
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}

/// The parts of signals whose functions a component imports.
fn imported_parts(engine: &wasmtime::Engine, component: &Component) -> BTreeSet<Part> {
    let mut parts = BTreeSet::new();
    for (name, import) in component.component_type().imports(engine) {
        let ComponentItem::ComponentInstance(instance) = import.ty else { continue };
        let ExternName::Interface(interface) = ExternName::parse(name).0 else { continue };
        for (function, _) in instance.exports(engine) {
            let is_meant = |part: &Part| part.interface() == interface && part.function() == function;
            parts.extend(Part::ALL.into_iter().find(is_meant));
        }
    }
    parts
}

/// Whether compiled code counts what it executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meter {
    /// The code does not count.
    None,
    /// The code consumes fuel.
    Fuel,
}

/// Creates a Wasm engine with the settings that the agent and the compiler's child share: compiled code is only valid for
/// an engine with equal settings.
pub(crate) fn wasm_engine(meter: Meter) -> wasmtime::Result<wasmtime::Engine> {
    let mut config = wasmtime::Config::new();
    config
        .epoch_interruption(true)
        .consume_fuel(meter == Meter::Fuel)
        // NaNs have the same bits on every machine, so that a recorded evaluation can be replayed bit for bit.
        .cranelift_nan_canonicalization(true)
        .max_wasm_stack(STACK)
        .memory_init_cow(true)
        // For tens of long-lived instances, allocation on demand is as fast as a pool and reserves no address space in advance.
        .memory_reservation(RESERVATION)
        .memory_reservation_for_growth(1 << 20)
        .memory_guard_size(64 << 10)
        .guard_before_linear_memory(false)
        .memory_may_move(true)
        .debug_info(false)
        // Proposals that compilers emit by default stay on; any other would only expose more of the Wasm compiler to policies.
        .wasm_simd(false)
        .wasm_relaxed_simd(false)
        .wasm_memory64(false)
        .wasm_multi_memory(false)
        .wasm_tail_call(false)
        .wasm_custom_page_sizes(false)
        .wasm_wide_arithmetic(false);
    wasmtime::Engine::new(&config)
}

//! OPA's Wasm ABI (<https://www.openpolicyagent.org/docs/wasm>): a module in its own store, and the calls that a host makes.
//!
//! A module allocates upwards from the start of its heap. Resetting the heap pointer frees everything above it. This
//! cleans up after an evaluation, while persistent documents stay below the pointer.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use memchr::memchr;
use qosm_rego::{Budget, Builtin, BuiltinError, Context, ParseError, Value};
use wasmtime::{
    AsContext, AsContextMut, Caller, Extern, ExternType, Instance, Linker, Memory, MemoryType, Module, Store,
    TypedFunc, Val, WasmParams, WasmResults,
};

use crate::instance::{fuel_used, refuel, watch};
use crate::limits::{Limits, words};
use crate::link::MemoryBound;
use crate::watchdog::Deadline;

/// Number of failures of built-in functions that are reported for one evaluation.
const FAULTS: usize = 3;

/// The built-in functions that a module calls, by the module's numbers for them.
pub(super) type Builtins = HashMap<i32, Builtin>;

/// The policy aborted its evaluation, or its module does something that OPA's modules do not do.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Abort(pub(crate) String);

/// The module lacks a part of OPA's ABI.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct NoAbi(pub(super) String);

/// State behind a module's imports.
pub(super) struct Host {
    pub(super) deadline: Deadline,
    memory: MemoryBound,
    /// Context of the current evaluation.
    pub(super) context: Context,
    /// The first failures of built-in functions in the current evaluation, and the number of further ones.
    faults: (Vec<String>, usize),
    builtins: Arc<Builtins>,
    exports: Option<Arc<Exports>>,
    /// Maximum length in bytes of a text that is read from the module's memory.
    most: usize,
    /// Budget of the built-in functions of one call.
    budget: Budget,
}

/// The module's memory and the functions that the host calls.
struct Exports {
    memory: Memory,
    malloc: TypedFunc<u32, u32>,
    free: TypedFunc<u32, ()>,
    value_parse: TypedFunc<(u32, u32), u32>,
    value_dump: TypedFunc<u32, u32>,
    add_path: TypedFunc<(u32, u32, u32), u32>,
    heap_get: TypedFunc<(), u32>,
    heap_set: TypedFunc<u32, ()>,
    context_new: TypedFunc<(), u32>,
    set_input: TypedFunc<(u32, u32), ()>,
    set_data: TypedFunc<(u32, u32), ()>,
    set_entrypoint: TypedFunc<(u32, i32), ()>,
    get_result: TypedFunc<u32, u32>,
    eval: TypedFunc<u32, i32>,
    builtins: TypedFunc<(), u32>,
    entrypoints: TypedFunc<(), u32>,
}

/// A module that was started.
pub(super) struct Machine {
    store: Store<Host>,
    exports: Arc<Exports>,
    version: (i32, i32),
    /// Fuel that the last call of [`Machine::within`] consumed; `None` unless the engine is metered.
    fuel: Option<u64>,
}

/// A value in the module's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address(u32);

/// Address of the end of the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct HeapEnd(pub(super) u32);

/// Names of the imports that are not part of the ABI.
pub(super) fn foreign_imports(module: &Module) -> Vec<String> {
    let known = |name: &str| {
        matches!(name, "memory" | "opa_abort" | "opa_println")
            || name.strip_prefix("opa_builtin").is_some_and(|arity| matches!(arity, "0" | "1" | "2" | "3" | "4"))
    };
    let foreign = module.imports().filter(|import| import.module() != "env" || !known(import.name()));
    foreign.map(|import| format!("{}.{}", import.module(), import.name())).take(8).collect()
}

impl Machine {
    /// Instantiates a module within its limits; its deadline starts now.
    ///
    /// # Errors
    ///
    /// Any error of the module's start; [`NoAbi`] if a part of the ABI is missing.
    pub(super) fn start(
        module: &Module,
        deadline: Deadline,
        limits: &Limits,
        builtins: Arc<Builtins>,
    ) -> wasmtime::Result<Self> {
        let host = Host {
            deadline,
            memory: MemoryBound::new(limits),
            context: Context::default(),
            faults: (Vec::new(), 0),
            builtins,
            exports: None,
            most: words(limits.hostcall),
            budget: Budget::of(limits.memory.0, limits.evaluation),
        };
        let mut store = Store::new(module.engine(), host);
        store.limiter(|host| &mut host.memory);
        watch(&mut store, |host| &mut host.deadline);
        let fuel = refuel(&mut store).then_some(0);
        store.data_mut().deadline.start(limits.evaluation);
        store.data_mut().begin(0);
        let started = Self::instantiate(module, &mut store, limits);
        store.data_mut().deadline.stop();
        let (exports, version) = started?;
        let exports = Arc::new(exports);
        store.data_mut().exports = Some(Arc::clone(&exports));
        Ok(Self { store, exports, version, fuel })
    }

    fn instantiate(
        module: &Module,
        store: &mut Store<Host>,
        limits: &Limits,
    ) -> wasmtime::Result<(Exports, (i32, i32))> {
        let wanted = module.imports().find_map(|import| match import.ty() {
            ExternType::Memory(memory) if import.name() == "memory" => Some(memory),
            _ => None,
        });
        let wanted = wanted.ok_or_else(|| NoAbi("it imports no memory".to_owned()))?;
        // The limiter applies here too: a module that asks for more initial memory than allowed does not start.
        let memory = Memory::new(&mut *store, with_room(&wanted, limits))?;
        let mut linker = Linker::new(module.engine());
        linker.define(&mut *store, "env", "memory", memory)?;
        link(&mut linker)?;
        let instance = linker.instantiate(&mut *store, module)?;
        let version = (
            global(&instance, store, "opa_wasm_abi_version")?,
            global(&instance, store, "opa_wasm_abi_minor_version")?,
        );
        Ok((Exports::of(&instance, store, memory)?, version))
    }

    /// The version of the ABI that the module implements, major and minor.
    pub(super) fn version(&self) -> (i32, i32) {
        self.version
    }

    /// Fuel that the last call of [`Self::within`] consumed; `None` unless the engine is metered.
    pub(super) fn fuel(&self) -> Option<u64> {
        self.fuel
    }

    /// Linear memory in use.
    pub(super) fn memory(&self) -> qosm_model::unit::Bytes {
        self.store.data().memory.used()
    }

    pub(super) fn host(&mut self) -> &mut Host {
        self.store.data_mut()
    }

    /// Calls `run` within the limit of CPU time. Returns the wall-clock time that it took.
    pub(super) fn within<R>(
        &mut self,
        limits: &Limits,
        run: impl FnOnce(&mut Self) -> wasmtime::Result<R>,
    ) -> (wasmtime::Result<R>, std::time::Duration) {
        self.store.set_epoch_deadline(1);
        if self.fuel.is_some() {
            refuel(&mut self.store);
        }
        self.store.data_mut().deadline.start(limits.evaluation);
        self.store.data_mut().begin(0);
        let result = run(self);
        let took = self.store.data_mut().deadline.stop();
        self.fuel = self.fuel.and_then(|_| fuel_used(&self.store));
        (result, took)
    }

    /// The names of the built-in functions that the module needs, with their numbers.
    pub(super) fn builtins(&mut self) -> wasmtime::Result<Vec<(String, i32)>> {
        let at = self.exports.builtins.call(&mut self.store, ())?;
        self.numbers(at)
    }

    /// The names of the module's entrypoints, with their numbers.
    pub(super) fn entrypoints(&mut self) -> wasmtime::Result<Vec<(String, i32)>> {
        let at = self.exports.entrypoints.call(&mut self.store, ())?;
        self.numbers(at)
    }

    fn numbers(&mut self, at: u32) -> wasmtime::Result<Vec<(String, i32)>> {
        let text = self.exports.dump(&mut self.store, at)?;
        let read = self.store.data().read(&text);
        let value = read.map_err(|error| NoAbi(format!("a table of names cannot be read: {error}")))?;
        let number = |(name, number): (&Value, &Value)| {
            let number = i32::try_from(number.as_number()?.as_i64()?).ok()?;
            Some((name.as_str()?.to_owned(), number))
        };
        let numbers: Option<Vec<_>> = value.as_object().and_then(|object| object.iter().map(number).collect());
        Ok(numbers.ok_or_else(|| NoAbi("a table is not one of names and numbers".to_owned()))?)
    }

    /// The current end of the heap.
    pub(super) fn heap_end(&mut self) -> wasmtime::Result<HeapEnd> {
        Ok(HeapEnd(self.exports.heap_get.call(&mut self.store, ())?))
    }

    /// Frees everything that was allocated above this end of the heap.
    pub(super) fn rewind(&mut self, to: HeapEnd) -> wasmtime::Result<()> {
        self.exports.heap_set.call(&mut self.store, to.0)
    }

    /// Writes a document into the module's memory.
    pub(super) fn put(&mut self, text: &str) -> wasmtime::Result<Address> {
        self.exports.parse(&mut self.store, text).map(Address)
    }

    /// Adds a value to an object under a path. The value is shared, not copied.
    pub(super) fn add(&mut self, object: Address, path: Address, value: Address) -> wasmtime::Result<()> {
        match self.exports.add_path.call(&mut self.store, (object.0, path.0, value.0))? {
            0 => Ok(()),
            error => Err(Abort(format!("the input cannot be put together: error {error}")).into()),
        }
    }

    /// Evaluates an entrypoint. Returns `None` if its result is undefined.
    pub(super) fn evaluate(
        &mut self,
        entrypoint: i32,
        input: Address,
        data: Address,
    ) -> wasmtime::Result<Option<Value>> {
        match self.results(entrypoint, Some(input), data)?.pop_first() {
            None => Ok(None),
            Some(Value::Object(mut bindings)) => Ok(bindings.remove(&Value::from("result"))),
            Some(_) => Err(Abort("its result cannot be read: it holds no object".to_owned()).into()),
        }
    }

    /// Evaluates an entrypoint. The set has an object of bindings for each solution.
    pub(super) fn results(
        &mut self,
        entrypoint: i32,
        input: Option<Address>,
        data: Address,
    ) -> wasmtime::Result<BTreeSet<Value>> {
        let Self { store, exports, .. } = self;
        let context = exports.context_new.call(&mut *store, ())?;
        if let Some(input) = input {
            exports.set_input.call(&mut *store, (context, input.0))?;
        }
        exports.set_data.call(&mut *store, (context, data.0))?;
        exports.set_entrypoint.call(&mut *store, (context, entrypoint))?;
        let status = exports.eval.call(&mut *store, context)?;
        if status != 0 {
            return Err(Abort(format!("the evaluation ended with status {status}")).into());
        }
        let result = exports.get_result.call(&mut *store, context)?;
        let text = exports.dump(&mut *store, result)?;
        let broken = |why: &dyn std::fmt::Display| Abort(format!("its result cannot be read: {why}"));
        let read = store.data().read(&text).map_err(|error| {
            let is_number = matches!(error, ParseError::Number { .. });
            let help = if is_number { "; test a text with `regex.match` before `to_number`" } else { "" };
            broken(&format!("{error}{help}"))
        });
        match read? {
            Value::Set(results) => Ok(results),
            _ => Err(broken(&"it is no set").into()),
        }
    }
}

impl Host {
    /// Begins an evaluation with a fixed current time. Its built-in functions end at the evaluation's deadline.
    pub(super) fn begin(&mut self, now_ns: i64) {
        self.context.restart(now_ns, Budget { until: self.deadline.cpu_end(), ..self.budget });
        self.faults = (Vec::new(), 0);
    }

    /// Takes the lines that `print` and `trace` wrote, and the failures of built-in functions.
    pub(super) fn take_messages(&mut self) -> (Vec<String>, Vec<String>) {
        let (mut faults, more) = std::mem::take(&mut self.faults);
        if more > 0 {
            faults.push(format!("{more} more built-in functions failed"));
        }
        (self.context.take_log(), faults)
    }

    /// Parses a document that is not an argument of a built-in function, with its own weight limit.
    fn read(&self, text: &[u8]) -> Result<Value, ParseError> {
        let budget = Budget { weight: words(self.memory.limit()), work: u64::MAX, until: self.deadline.cpu_end() };
        Context::with_budget(0, budget).read(&String::from_utf8_lossy(text))
    }

    fn fault(&mut self, fault: String) {
        if self.faults.0.len() < FAULTS {
            self.faults.0.push(fault);
        } else {
            self.faults.1 = self.faults.1.saturating_add(1);
        }
    }
}

impl Exports {
    fn of(instance: &Instance, store: &mut Store<Host>, memory: Memory) -> wasmtime::Result<Self> {
        fn function<P: WasmParams, R: WasmResults>(
            instance: &Instance,
            store: &mut Store<Host>,
            name: &str,
        ) -> wasmtime::Result<TypedFunc<P, R>> {
            let found = instance.get_typed_func(&mut *store, name);
            Ok(found.map_err(|error| NoAbi(format!("`{name}`: {}", error.root_cause())))?)
        }
        Ok(Self {
            memory,
            malloc: function(instance, store, "opa_malloc")?,
            free: function(instance, store, "opa_free")?,
            value_parse: function(instance, store, "opa_value_parse")?,
            value_dump: function(instance, store, "opa_value_dump")?,
            add_path: function(instance, store, "opa_value_add_path")?,
            heap_get: function(instance, store, "opa_heap_ptr_get")?,
            heap_set: function(instance, store, "opa_heap_ptr_set")?,
            context_new: function(instance, store, "opa_eval_ctx_new")?,
            set_input: function(instance, store, "opa_eval_ctx_set_input")?,
            set_data: function(instance, store, "opa_eval_ctx_set_data")?,
            set_entrypoint: function(instance, store, "opa_eval_ctx_set_entrypoint")?,
            get_result: function(instance, store, "opa_eval_ctx_get_result")?,
            eval: function(instance, store, "eval")?,
            builtins: function(instance, store, "builtins")?,
            entrypoints: function(instance, store, "entrypoints")?,
        })
    }

    /// A value's text. A text longer than the host accepts is an [`Abort`]. Texts in Rego are bytes, so this one may not
    /// be UTF-8.
    fn dump(&self, mut store: impl AsContextMut<Data = Host>, value: u32) -> wasmtime::Result<Vec<u8>> {
        let at = self.value_dump.call(&mut store, value)?;
        let text = self.text(&store, at)?;
        self.free.call(&mut store, at)?;
        Ok(text)
    }

    fn text(&self, store: impl AsContext<Data = Host>, at: u32) -> wasmtime::Result<Vec<u8>> {
        let store = store.as_context();
        let most = store.data().most;
        let rest = usize::try_from(at).ok().and_then(|at| self.memory.data(&store).get(at..)).unwrap_or_default();
        let within = rest.get(..=most).unwrap_or(rest);
        let Some(length) = memchr(0, within) else {
            let why = if within.len() < rest.len() {
                format!("it hands over more than {}", qosm_model::unit::Bytes(most as u64))
            } else {
                "it hands over a text without an end".to_owned()
            };
            return Err(Abort(why).into());
        };
        Ok(rest.get(..length).unwrap_or_default().to_vec())
    }

    /// Has the module parse a value's text, and returns the value's address.
    fn parse(&self, mut store: impl AsContextMut<Data = Host>, text: &str) -> wasmtime::Result<u32> {
        let too_long = || Abort("a document is larger than any memory".to_owned());
        let length = u32::try_from(text.len()).map_err(|_| too_long())?;
        let at = self.malloc.call(&mut store, length)?;
        let offset = usize::try_from(at).map_err(|_| too_long())?;
        self.memory.write(&mut store, offset, text.as_bytes())?;
        let value = self.value_parse.call(&mut store, (at, length))?;
        // The parser copied strings and numbers, so the text can be freed.
        self.free.call(&mut store, at)?;
        if value == 0 {
            return Err(Abort("the module cannot read a document that it was handed".to_owned()).into());
        }
        Ok(value)
    }
}

/// The memory that a module asks for, plus one page: OPA determines the size before it lays out the last constants, which
/// may end just beyond it.
fn with_room(wanted: &MemoryType, limits: &Limits) -> MemoryType {
    let pages = wanted.minimum().saturating_add(1);
    let is_allowed = pages.saturating_mul(wanted.page_size()) <= limits.memory.0
        && wanted.maximum().is_none_or(|most| pages <= most)
        && !wanted.is_64()
        && !wanted.is_shared();
    match u32::try_from(pages) {
        Ok(pages) if is_allowed => MemoryType::new(pages, wanted.maximum().and_then(|most| u32::try_from(most).ok())),
        _ => wanted.clone(),
    }
}

/// The error of a built-in function that exceeds its budget. The evaluation ends, since without the function's value it
/// could reach another decision.
fn spent(error: &BuiltinError) -> wasmtime::Error {
    Abort(format!("{error}; the operator's limits are `evaluationMillis` and `memoryMiB`")).into()
}

fn global(instance: &Instance, store: &mut Store<Host>, name: &str) -> wasmtime::Result<i32> {
    match instance.get_export(&mut *store, name) {
        Some(Extern::Global(global)) => match global.get(&mut *store) {
            Val::I32(number) => Ok(number),
            _ => Err(NoAbi(format!("`{name}` is no 32-bit number")).into()),
        },
        _ => Err(NoAbi(format!("it exports no number `{name}`")).into()),
    }
}

/// Links OPA's imports.
fn link(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    type Its<'a> = Caller<'a, Host>;
    linker.func_wrap("env", "opa_abort", |mut caller: Its<'_>, at: u32| -> wasmtime::Result<()> {
        Err(Abort(read_message(&mut caller, at)?).into())
    })?;
    linker.func_wrap("env", "opa_println", |mut caller: Its<'_>, at: u32| -> wasmtime::Result<()> {
        let line = read_message(&mut caller, at)?;
        caller.data().context.write(&line);
        Ok(())
    })?;
    linker.func_wrap("env", "opa_builtin0", |caller: Its<'_>, id: i32, _: u32| call(caller, id, []))?;
    linker.func_wrap("env", "opa_builtin1", |caller: Its<'_>, id: i32, _: u32, a: u32| call(caller, id, [a]))?;
    linker.func_wrap("env", "opa_builtin2", |caller: Its<'_>, id: i32, _: u32, a: u32, b: u32| {
        call(caller, id, [a, b])
    })?;
    linker.func_wrap("env", "opa_builtin3", |caller: Its<'_>, id: i32, _: u32, a: u32, b: u32, c: u32| {
        call(caller, id, [a, b, c])
    })?;
    linker.func_wrap("env", "opa_builtin4", |caller: Its<'_>, id: i32, _: u32, a: u32, b: u32, c: u32, d: u32| {
        call(caller, id, [a, b, c, d])
    })?;
    Ok(())
}

/// Reads the text of a message. During the module's start its functions are not known yet.
fn read_message(caller: &mut Caller<'_, Host>, at: u32) -> wasmtime::Result<String> {
    match caller.data().exports.clone() {
        Some(exports) => Ok(String::from_utf8_lossy(&exports.text(&*caller, at)?).into_owned()),
        None => Ok("it ended itself while it started".to_owned()),
    }
}

/// Calls a built-in function. Returns 0, undefined, where OPA's function fails or is undefined.
fn call<const N: usize>(mut caller: Caller<'_, Host>, id: i32, arguments: [u32; N]) -> wasmtime::Result<u32> {
    let host = caller.data();
    let (Some(exports), Some(&builtin)) = (host.exports.clone(), host.builtins.get(&id)) else {
        return Err(Abort(format!("it calls a built-in function that it did not announce, number {id}")).into());
    };
    let mut values = Vec::with_capacity(N);
    for at in arguments {
        let text = exports.dump(&mut caller, at)?;
        let read = match str::from_utf8(&text) {
            Ok(text) => {
                caller.data().context.read(text).map_err(|error| format!("an argument cannot be read: {error}"))
            }
            Err(_) => Err("an argument is a text that is no UTF-8".to_owned()),
        };
        match read {
            Ok(value) => values.push(value),
            Err(why) => {
                if let Some(what) = caller.data().context.spent() {
                    return Err(spent(&BuiltinError::Spent { builtin: builtin.name(), what }));
                }
                caller.data_mut().fault(format!("{}: {why}", builtin.name()));
                return Ok(0);
            }
        }
    }
    match builtin.call(&values, &caller.data().context) {
        Ok(Some(value)) => {
            let text = caller.data().context.answer(&value);
            let text = text.map_err(|what| spent(&BuiltinError::Spent { builtin: builtin.name(), what }))?;
            exports.parse(&mut caller, &text)
        }
        Ok(None) => Ok(0),
        Err(error @ BuiltinError::Spent { .. }) => Err(spent(&error)),
        Err(error @ BuiltinError::Failed { .. }) => {
            caller.data_mut().fault(error.to_string());
            Ok(0)
        }
    }
}

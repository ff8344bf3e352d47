//! The engine's errors, whether the module, the node or the caller causes them.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use qosm_model::block_io::DeviceNumber;
use qosm_model::foreign;
use qosm_model::knob::Target;
use qosm_model::pod::{ContainerId, PodId};
use qosm_model::unit::Bytes;
use semver::Version;

use crate::interface::{CONTRACT_VERSION, ExternName, Interface, Listed};
use crate::rego::{BundleError, SettingFlaw};
use qosm_model::digest::Digest;

/// A module cannot be loaded, or cannot be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The engine itself does not start on this machine.
    #[error("the Wasm engine does not start")]
    Start(#[source] WasmError),
    /// The watchdog's thread cannot be started.
    #[error("the watchdog's thread cannot be started")]
    Watchdog(#[source] io::Error),
    /// The file has another format.
    #[error("this is {found}, not a WebAssembly component or Rego bundle; {help}")]
    NotAComponent {
        /// The format that was recognised.
        found: &'static str,
        /// What to do instead.
        help: &'static str,
    },
    /// The file is too large to be a policy.
    #[error("the module has {size}, more than the {limit} that a module may have; strip its debug information")]
    TooLarge {
        /// Size of the module.
        size: Bytes,
        /// The limit.
        limit: Bytes,
    },
    /// The module's core modules have more functions, imports and globals than any policy needs.
    #[error("{module} has {items} functions, imports and globals, more than the {limit} that a module may have")]
    TooManyItems {
        /// Digest of the module.
        module: Digest,
        /// The module's number of functions, imports and globals.
        items: u64,
        /// The limit.
        limit: u64,
    },
    /// The binary is not valid WebAssembly, or uses a proposal that this engine turns off.
    #[error("{module} is not a valid component")]
    Invalid {
        /// Digest of the module.
        module: Digest,
        /// The message of the parser or compiler.
        source: WasmError,
    },
    /// The component is composed of several components that call each other.
    #[error(
        "{module} is composed of several components, and those are not run here: their adapters are code of the host's making; \
         link the parts into one component when it is built"
    )]
    Composed {
        /// Digest of the module.
        module: Digest,
    },
    /// The module imports interfaces that this host does not offer.
    #[error("{module} imports {}, which this host does not offer; {}", Listed(names), foreign_help(names))]
    UnknownImports {
        /// Digest of the module.
        module: Digest,
        /// The imports' full names.
        names: Vec<String>,
    },
    /// The module was built for an incompatible version of the contract.
    #[error(
        "{module} was built for version {found} of `qosm:policy`, and this host speaks {CONTRACT_VERSION}; build it with an SDK \
         of {}.{}.x, or run a host that speaks its version", CONTRACT_VERSION.major, CONTRACT_VERSION.minor
    )]
    Contract {
        /// Digest of the module.
        module: Digest,
        /// The version that the module was built for.
        found: Version,
    },
    /// The component is not a policy: it does not export the lifecycle interface.
    #[error("{module} does not export `qosm:policy/lifecycle@{CONTRACT_VERSION}`, so it is not a policy module")]
    NoLifecycle {
        /// Digest of the module.
        module: Digest,
    },
    /// The module's imports or exports have the right names and the wrong types.
    #[error("{module} does not fit version {CONTRACT_VERSION} of `qosm:policy`; build it with the SDK of that version")]
    Mismatch {
        /// Digest of the module.
        module: Digest,
        /// The linker's message.
        source: WasmError,
    },
    /// A gzip archive that is not a Rego policy, or a Rego policy that cannot run here.
    #[error("{module} is no Rego policy that runs here")]
    Bundle {
        /// Digest of the archive.
        module: Digest,
        /// The reason.
        source: BundleError,
    },
    /// The compiler's process failed.
    #[error("{module} cannot be compiled")]
    Compile {
        /// Digest of the module.
        module: Digest,
        /// The reason.
        source: CompileError,
    },
    /// The compiled form cannot be loaded.
    #[error("what {module} was compiled to cannot be loaded")]
    Load {
        /// Digest of the module.
        module: Digest,
        /// The engine's message.
        source: WasmError,
    },
    /// The module imports interfaces that the operator did not grant.
    #[error(
        "policy `{module}` imports {}, which {} not granted; add {} to its grants, or list all that it imports with \
         `qosm policy inspect`", Listed(missing), if missing.len() == 1 { "is" } else { "are" }, Listed(missing)
    )]
    NotGranted {
        /// The policy's name.
        module: String,
        /// The missing interfaces, in the order of [`Interface::ALL`].
        missing: Vec<Interface>,
    },
    /// Instantiation failed.
    #[error("no instance can be made")]
    Instantiate(#[source] CallError),
    /// `describe` failed.
    #[error("the module does not describe itself")]
    Describe(#[source] CallError),
    /// `describe` returned an invalid description.
    #[error("{module} describes itself wrongly: {field}: {message}")]
    Description {
        /// Digest of the module.
        module: Digest,
        /// The field of the description, in the contract's words, e.g. `protocol.presets[1].values`.
        field: String,
        /// What is wrong with it.
        message: String,
    },
    /// The folder of compiled modules cannot be used.
    #[error("`{name}` of the module cache: {action} failed")]
    Cache {
        /// The file or folder, below the folder that the cache was given.
        name: String,
        /// The action that failed, such as `opening`.
        action: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

fn foreign_help(names: &[String]) -> Cow<'static, str> {
    let newer =
        names.iter().filter_map(|name| ExternName::parse(name).1).filter(|version| *version > CONTRACT_VERSION).max();
    if let Some(version) = newer {
        return Cow::Owned(format!(
            "it was built for version {version} of `qosm:policy`, and this host speaks {CONTRACT_VERSION}: run a newer host, or build \
             it without what is new"
        ));
    }
    Cow::Borrowed(if names.iter().any(|name| name.starts_with("wasi:")) {
        "policies run without WASI: no clock, files, environment or network; in Rust build for wasm32-unknown-unknown"
    } else if names.iter().any(|name| name.starts_with("qosm:")) {
        "a newer host may"
    } else {
        "a policy may import only interfaces of `qosm:policy`"
    })
}

/// Upper bound of the Wasm engine's messages, in characters: they quote names from the module.
pub(crate) const WORDS: usize = 1_000;

/// A message of the Wasm engine, with its whole chain of causes on one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WasmError(pub(crate) String);

impl From<wasmtime::Error> for WasmError {
    fn from(error: wasmtime::Error) -> Self {
        Self(foreign::shown(&chain(&error), WORDS))
    }
}

impl From<wasmparser::BinaryReaderError> for WasmError {
    fn from(error: wasmparser::BinaryReaderError) -> Self {
        Self(foreign::shown(&error.to_string(), WORDS))
    }
}

/// An error and its causes, the outermost first.
fn chain(error: &wasmtime::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&cause.to_string());
    }
    text
}

/// Why compiling failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// The compiler refused the module, which is invalid.
    #[error("{}", foreign::shown(.0, WORDS))]
    Refused(String),
    /// The compiler's process cannot be started.
    #[error("the compiler `{}` cannot be started", program.display())]
    Spawn {
        /// The program.
        program: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The compiler's process cannot confine itself, and so compiles nothing.
    #[error("the compiler's process cannot confine itself, and compiles nothing: {}", foreign::shown(.0, WORDS))]
    Unconfined(String),
    /// Reading from or writing to the compiler's process failed.
    #[error("the compiler's process cannot be talked to")]
    Pipe(#[source] io::Error),
    /// The compiler's process died: it ran out of memory or CPU time, or the compiler has a bug.
    #[error(
        "the compiler's process ended with {status}; it is allowed {memory} of address space (1 GiB, or its share of what the \
         container's memory limit leaves) and {cpu:?} of CPU time{}",
        Stderr(stderr)
    )]
    Died {
        /// Its exit status.
        status: ExitStatus,
        /// Its limit of address space.
        memory: Bytes,
        /// Its limit of CPU time.
        cpu: Duration,
        /// What it wrote to standard error, at most 4096 bytes.
        stderr: String,
    },
    /// The compiler's process reached its limit of wall-clock time.
    #[error("the compiler's process was stopped after {after:?}")]
    TimedOut {
        /// The limit.
        after: Duration,
    },
    /// The module failed to compile before, and is not compiled again for a while.
    #[error("{why}; it is not tried again for {}, or until `qosm policy retry`", Wait(left))]
    Remembered {
        /// The reason of the last failure.
        why: String,
        /// Time until the next attempt.
        left: Duration,
    },
    /// The compiler's process wrote more than any module compiles to.
    #[error("the compiler's process wrote more than {limit}")]
    TooLarge {
        /// The limit.
        limit: Bytes,
    },
}

struct Wait<'a>(&'a Duration);

impl fmt::Display for Wait<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_secs() {
            seconds @ 0..120 => write!(f, "{seconds} s"),
            seconds @ 120..7_200 => write!(f, "{} min", seconds / 60),
            seconds => write!(f, "{} h", seconds / 3_600),
        }
    }
}

struct Stderr<'a>(&'a str);

impl fmt::Display for Stderr<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, "; it said: {}", self.0) }
    }
}

/// The part of a module that ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Export {
    /// The start functions, during instantiation.
    Start,
    /// `describe`.
    Describe,
    /// `configure`.
    Configure,
    /// `pods`.
    Pods,
    /// `evaluate`.
    Evaluate,
}

impl Export {
    /// The export's name in the contract; `start` for [`Self::Start`].
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Describe => "describe",
            Self::Configure => "configure",
            Self::Pods => "pods",
            Self::Evaluate => "evaluate",
        }
    }
}

impl fmt::Display for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A failed call: everything that it staged is discarded. After any error but [`CallError::Refused`] the instance cannot
/// be used again.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The module hit a trap, or passed an invalid value.
    #[error("module `{module}` trapped in `{export}`: {cause}")]
    Trap {
        /// The policy's name, or the digest where there is no policy yet.
        module: Arc<str>,
        /// The export that was running.
        export: Export,
        /// The reason of the trap.
        cause: String,
    },
    /// The call exceeded its limit of CPU time.
    #[error(
        "module `{module}` was stopped in `{export}`: it had used up its {limit:?} of CPU time; the operator's limit is `evaluationMillis`"
    )]
    TimedOut {
        /// The policy's name, or the digest where there is no policy yet.
        module: Arc<str>,
        /// The export that was running.
        export: Export,
        /// The limit of CPU time.
        limit: Duration,
    },
    /// The module exceeded its limit of memory or of table elements.
    #[error("module `{module}` was stopped in `{export}`: {bound}")]
    OutOfMemory {
        /// The policy's name, or the digest where there is no policy yet.
        module: Arc<str>,
        /// The export that was running.
        export: Export,
        /// The exceeded limit.
        bound: Exhausted,
    },
    /// The module returned an error. The instance stays usable.
    #[error("{0}")]
    Refused(Refusal),
    /// The module broke a rule of the contract.
    #[error("{0}")]
    Broke(Breach),
    /// An earlier call ended the instance.
    #[error("module `{module}` cannot run `{export}`: an earlier call ended this instance")]
    Spent {
        /// The policy's name.
        module: Arc<str>,
        /// The export that was called.
        export: Export,
    },
}

impl CallError {
    /// The export that was running.
    pub fn export(&self) -> Export {
        match self {
            Self::Trap { export, .. }
            | Self::TimedOut { export, .. }
            | Self::OutOfMemory { export, .. }
            | Self::Spent { export, .. } => *export,
            Self::Refused(refusal) => refusal.export,
            Self::Broke(breach) => breach.export,
        }
    }

    /// One word for metrics: `trap`, `timeout`, `memory`, `refused`, `rule` or `spent`.
    pub fn outcome(&self) -> &'static str {
        match self {
            Self::Trap { .. } => "trap",
            Self::TimedOut { .. } => "timeout",
            Self::OutOfMemory { .. } => "memory",
            Self::Refused(_) => "refused",
            Self::Broke(_) => "rule",
            Self::Spent { .. } => "spent",
        }
    }
}

/// An error that a module returned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("module `{module}` refused in `{export}`: {message}")]
pub struct Refusal {
    /// The policy's name.
    pub module: Arc<str>,
    /// The export that was running.
    pub export: Export,
    /// The module's message.
    pub message: String,
}

/// A violation of the contract, and the policy that committed it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("module `{module}` was stopped in `{export}`: {rule}")]
pub struct Breach {
    /// The policy's name, or the digest where there is no policy yet.
    pub module: Arc<str>,
    /// The export that was running.
    pub export: Export,
    /// The rule.
    pub rule: Rule,
}

/// An exceeded limit of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Exhausted {
    /// Linear memory.
    #[error(
        "it wants {wanted} of memory and may have {limit}; the operator's limit is `memoryMib`, or `limits.memoryMiB` of a PolicyModule"
    )]
    Memory {
        /// What the module asked for.
        wanted: Bytes,
        /// The limit.
        limit: Bytes,
    },
    /// Elements of a table.
    #[error("it wants a table of {wanted} elements and may have {limit}")]
    Table {
        /// What the module asked for.
        wanted: usize,
        /// The limit.
        limit: usize,
    },
}

/// A violation of the contract's rules.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Rule {
    /// The module names a pod or container that this instance was never given, or that is gone.
    #[error("it names {}, which it was not given", Named(target))]
    UnknownTarget {
        /// The target that the module named.
        target: Target,
    },
    /// Too many settings in one call.
    #[error("it stages more than {limit} settings")]
    TooManySettings {
        /// The limit.
        limit: usize,
    },
    /// Too many events in one call.
    #[error("it emits more than {limit} pod events")]
    TooManyEvents {
        /// The limit.
        limit: usize,
    },
    /// Too many remarks in one call.
    #[error("it makes more than {limit} remarks")]
    TooManyRemarks {
        /// The limit.
        limit: usize,
    },
    /// Too many problems of the cluster's configuration in one call.
    #[error("it reports more than {limit} problems of the cluster's configuration")]
    TooManyProblems {
        /// The limit.
        limit: usize,
    },
    /// A remark on a knob that does not exist.
    #[error("it makes a remark on `{name}`, which is no knob")]
    NoKnob {
        /// The name.
        name: String,
    },
    /// Too many rejections in one call.
    #[error("it returns more than {limit} rejections")]
    TooManyRejections {
        /// The limit.
        limit: usize,
    },
    /// A number that no kernel interface accepts.
    #[error("its {what} is {value}, which no cgroup file can hold")]
    OutOfRange {
        /// The purpose of the number.
        what: &'static str,
        /// The number.
        value: u64,
    },
    /// A setting of a block device that no kernel accepts.
    #[error("its `{knob}` of device {device}: {why}")]
    Device {
        /// The knob.
        knob: &'static str,
        /// The device.
        device: DeviceNumber,
        /// What is wrong, and which values are valid.
        why: String,
    },
    /// More settings of block devices than an instance may hold.
    #[error("it holds more than {limit} settings of block devices; give up those that it does not need")]
    TooManyOfDevices {
        /// The limit.
        limit: usize,
    },
    /// An invalid name of a class.
    #[error("it names a class: {why}")]
    ClassName {
        /// What is wrong, and which values are valid.
        why: String,
    },
    /// A share of caches or memory bandwidth that is invalid on any machine.
    #[error("its share for class `{class}`{}: {why}", OnDomain(*domain))]
    Share {
        /// The class.
        class: String,
        /// The domain; `None` for the share of all domains.
        domain: Option<u32>,
        /// What is wrong, and which values are valid.
        why: String,
    },
    /// A class that this instance has not defined.
    #[error(
        "it puts {} into class `{class}`, which it has not defined; each instance defines a class before it assigns members to it",
        Named(target)
    )]
    UnknownClass {
        /// The target.
        target: Target,
        /// The name.
        class: String,
    },
    /// The module puts a tier or the node into a class.
    #[error("it puts {} into a class; only pods and containers can be in one", Named(target))]
    ClassOfTier {
        /// The tier or node.
        target: Target,
    },
    /// Too many classes at once.
    #[error(
        "its class `{class}` is one more than the {limit} that it may have; those that have no members can be given up"
    )]
    TooManyClasses {
        /// The class beyond the limit.
        class: String,
        /// The limit.
        limit: usize,
    },
    /// A class has its own shares on too many domains.
    #[error(
        "its class `{class}` has shares of its own on more than {limit} domains; what is the same on all is said once"
    )]
    TooManyDomains {
        /// The class.
        class: String,
        /// The limit.
        limit: usize,
    },
    /// A resource of the node that cannot be published.
    #[error("its resource `{name}`: {why}")]
    Resource {
        /// The resource that the module named.
        name: String,
        /// What is wrong, and which values are valid.
        why: String,
    },
    /// The time after which resources become stale is out of range.
    #[error("its resources are to go stale after {seconds} s; give {least} to {most}")]
    StaleAfter {
        /// The time, in seconds.
        seconds: u32,
        /// The smallest time, in seconds.
        least: u32,
        /// The largest time, in seconds.
        most: u32,
    },
    /// A reason of an event that Kubernetes would reject.
    #[error("`{reason}` is not the reason of an event: one word in camel case, at most 128 letters and digits")]
    EventReason {
        /// The reason.
        reason: String,
    },
    /// The module calls an import that was not granted, in an instance of
    /// [`Engine::instantiate_partly`](crate::Engine::instantiate_partly).
    #[error("it calls `{import}`, which is not granted")]
    NotGranted {
        /// Interface and function.
        import: String,
    },
    /// An import called during `describe`.
    #[error("it calls `{import}` while it describes itself; `describe` must not call any import")]
    ImportInDescribe {
        /// Interface and function.
        import: String,
    },
    /// An import called while the module is instantiated.
    #[error("it calls `{interface}` while it is instantiated; imports work from `configure` on")]
    ImportAtStart {
        /// The interface.
        interface: Interface,
    },
    /// A Rego policy whose entrypoint is undefined.
    #[error(
        "its `settings` are undefined, neither a set nor an array; write it as `settings contains …`, or add `default settings := []`"
    )]
    NoSettings,
    /// A Rego policy whose settings have another type.
    #[error("its settings are of type {found}, not a set or an array")]
    NotSettings {
        /// Their type.
        found: &'static str,
    },
    /// An invalid object in the settings of a Rego policy.
    #[error("settings[{index}]{}: {flaw}", About(about))]
    Setting {
        /// Index of the object; in a set, in Rego's order.
        index: usize,
        /// What the object is about; empty if that is unknown.
        about: String,
        /// What is wrong.
        flaw: Box<SettingFlaw>,
    },
    /// The module reads `node` before its first evaluation.
    #[error("it reads `node` before its first evaluation, when nothing has been measured yet")]
    NothingMeasured,
}

struct About<'a>(&'a str);

impl fmt::Display for About<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, " ({})", self.0) }
    }
}

struct OnDomain(Option<u32>);

impl fmt::Display for OnDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |domain| write!(f, " on domain {domain}"))
    }
}

struct Named<'a>(&'a Target);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Target::Node => f.write_str("the node"),
            Target::Tier(tier) => write!(f, "the tier `{tier}`"),
            Target::Pod(PodId(id)) => write!(f, "pod number {id}"),
            Target::Container(ContainerId(id)) => write!(f, "container number {id}"),
        }
    }
}

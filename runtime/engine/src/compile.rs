//! Compiles modules. Third-party Wasm may crash or exhaust a compiler, so the compiler runs in a child process that may
//! only read its input and write its output, and that is killed when it exceeds its limits.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use qosm_confinement::{Confinement, ConfinementError, Seccomp, end_after};
use qosm_model::problem::chain;
use qosm_model::unit::Bytes;
use rustix::process::{Resource, Rlimit, Signal, getuid, set_parent_process_death_signal, setrlimit};
use rustix::thread::{Gid, Uid, set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use wasmparser::Parser;

use crate::engine::{Meter, wasm_engine};
use crate::error::{CompileError, WasmError};
use crate::memory::{Memory, Share};
use crate::precompiled::Precompiled;

/// Environment variable with the child's memory limit.
const MEMORY_VARIABLE: &str = "QOSM_COMPILER_MEMORY";
/// Environment variable with the seconds of CPU time that the child may use.
const CPU_VARIABLE: &str = "QOSM_COMPILER_CPU_SECONDS";
/// CPU time that a compiler may use by default.
const CPU_LIMIT: Duration = Duration::from_secs(30);
/// The largest CPU time that an operator can configure.
const MAX_CPU: Duration = Duration::from_secs(600);
/// Limit of wall-clock time as a multiple of CPU time. A compiler with a small CPU share on a busy node spends most of
/// its time waiting for a CPU; it waits for nothing else.
const WALL_FACTOR: u32 = 10;
/// Time after the wall-clock limit at which the child ends itself, in case the agent could not kill it.
const CHILD_GRACE: Duration = Duration::from_secs(2);
/// Limit of the child's output: more than a module of 16 MiB compiles to.
const MAX_OUTPUT: Bytes = Bytes(256 << 20);
const MAX_STDERR: u64 = 4096;
/// User and group of the child if the agent runs as root.
const NOBODY_UID: u32 = 65_534;
/// Exit code of the child if the module is invalid.
const EXIT_REFUSED: u8 = 3;
/// Exit code of the child if it cannot confine itself; it has not read the module then.
const EXIT_UNCONFINED: u8 = 4;

/// Where modules are compiled.
#[derive(Clone, Debug)]
pub enum Compiler {
    /// In a child process: this binary, started so that it runs [`compile_child_main`] and nothing else.
    Child {
        /// The binary.
        program: PathBuf,
        /// Arguments with which the binary runs [`compile_child_main`].
        args: Vec<OsString>,
        /// Memory that all compilers share.
        memory: Memory,
        /// CPU time that the child may use; see [`Compiler::cpu_time`].
        cpu: Duration,
    },
    /// In this process, for tools and tests. The process keeps the compiler's memory, about 20 MB.
    InProcess,
}

impl Compiler {
    /// The CPU time that a child may use: 30 s by default, or the operator's setting, clamped to between 1 s and 10 minutes.
    pub fn cpu_time(seconds: Option<u64>) -> Duration {
        seconds.map_or(CPU_LIMIT, Duration::from_secs).clamp(Duration::from_secs(1), MAX_CPU)
    }
}

/// Compiles a component, or the core module of a Rego policy. With [`Compiler::Child`] this process at most parses it.
/// With `alone`, waits until no other compiler runs, and may use the memory of all of them.
pub(crate) fn compile(
    compiler: &Compiler,
    engine: &wasmtime::Engine,
    wasm: &[u8],
    alone: bool,
) -> Result<Precompiled, CompileError> {
    match compiler {
        Compiler::InProcess => precompile(engine, wasm),
        Compiler::Child { program, args, memory, cpu } => in_child(program, args, wasm, &memory.take(alone), *cpu),
    }
    .map(Precompiled::vouched)
}

/// The first bytes of a binary tell a core module from a component.
fn precompile(engine: &wasmtime::Engine, wasm: &[u8]) -> Result<Vec<u8>, CompileError> {
    let compiled =
        if Parser::is_core_wasm(wasm) { engine.precompile_module(wasm) } else { engine.precompile_component(wasm) };
    compiled.map_err(|error| refused(error.into()))
}

fn refused(WasmError(message): WasmError) -> CompileError {
    CompileError::Refused(message)
}

fn in_child(
    program: &PathBuf,
    args: &[OsString],
    wasm: &[u8],
    share: &Share,
    cpu: Duration,
) -> Result<Vec<u8>, CompileError> {
    let allowed = share.bytes();
    let mut command = Command::new(program);
    command
        .args(args)
        .env_clear()
        .env(MEMORY_VARIABLE, allowed.0.to_string())
        .env(CPU_VARIABLE, cpu.as_secs().to_string())
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child =
        share.start(|| command.spawn()).map_err(|source| CompileError::Spawn { program: program.clone(), source })?;
    let result = exchange(&mut child, wasm, cpu, allowed);
    // No child outlives this call, even after an error. Killing a child that has ended has no effect.
    let _ = child.kill();
    let _ = child.wait();
    result
}

/// Writes to the child and reads from it on all three pipes at the same time, so that the two processes cannot deadlock.
#[expect(clippy::disallowed_methods, reason = "a compiler has a time limit")]
fn exchange(child: &mut Child, wasm: &[u8], cpu: Duration, memory: Bytes) -> Result<Vec<u8>, CompileError> {
    let wall = cpu * WALL_FACTOR;
    let deadline = Instant::now() + wall;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (output, stderr_text, status) = thread::scope(|scope| {
        scope.spawn(move || {
            // A child that ends early reports why by its status; the failed write adds nothing.
            stdin.map(|mut stdin| stdin.write_all(wasm))
        });
        let output = scope.spawn(move || read_at_most(stdout, MAX_OUTPUT.0 + 1));
        let stderr_text = scope.spawn(move || read_at_most(stderr, MAX_STDERR));
        let status = wait_until(child, deadline);
        if !matches!(status, Ok(Some(_))) {
            // Killing the child closes its ends of the pipes, so that the threads above end too.
            let _ = child.kill();
        }
        (joined(output), joined(stderr_text), status)
    });
    let status = status.map_err(CompileError::Pipe)?.ok_or(CompileError::TimedOut { after: wall })?;
    let stderr_text =
        stderr_text.map(|stderr_text| String::from_utf8_lossy(&stderr_text).trim().to_owned()).unwrap_or_default();
    if status.code() == Some(EXIT_REFUSED.into()) {
        return Err(CompileError::Refused(stderr_text));
    }
    if status.code() == Some(EXIT_UNCONFINED.into()) {
        return Err(CompileError::Unconfined(stderr_text));
    }
    if !status.success() {
        return Err(CompileError::Died { status, memory, cpu, stderr: stderr_text });
    }
    let output = output.map_err(CompileError::Pipe)?;
    if output.len() as u64 > MAX_OUTPUT.0 {
        return Err(CompileError::TooLarge { limit: MAX_OUTPUT });
    }
    Ok(output)
}

fn joined(thread: thread::ScopedJoinHandle<'_, io::Result<Vec<u8>>>) -> io::Result<Vec<u8>> {
    thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread that read from the compiler panicked")))
}

fn read_at_most(pipe: Option<impl Read>, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        let mut pipe = pipe.take(limit);
        pipe.read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

/// Waits for the child to end; `None` if it still runs at the deadline.
#[expect(clippy::disallowed_methods, reason = "a compiler has a time limit")]
fn wait_until(child: &mut Child, deadline: Instant) -> io::Result<Option<ExitStatus>> {
    // A compilation takes tens of milliseconds and happens only for new modules, so polling is good enough.
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        thread::sleep(pause.min(left));
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// Main function of [`Compiler::Child`]: confines this process, reads a component or core module from standard input,
/// writes its compiled form to standard output. Messages go to standard error.
///
/// The process must not have started any thread before: confinement applies to the calling thread and to what it starts.
pub fn compile_child_main() -> ExitCode {
    let unconfined = |error: ConfinementError| CompileError::Unconfined(chain(&error));
    let compiled = bound().map_err(unconfined).and_then(|()| {
        // Created before the last step of confinement, because the engine asks the kernel for the CPU's features.
        let engine = wasm_engine(Meter::None).map_err(|error| refused(error.into()))?;
        Confinement::new(Seccomp::Compute).all_paths().enter().map_err(unconfined)?;
        compile_stdin(&engine)
    });
    match compiled {
        Ok(()) => ExitCode::SUCCESS,
        Err(CompileError::Refused(message)) => fail(ExitCode::from(EXIT_REFUSED), &message),
        Err(CompileError::Unconfined(message)) => fail(ExitCode::from(EXIT_UNCONFINED), &message),
        Err(error) => fail(ExitCode::FAILURE, &chain(&error)),
    }
}

fn fail(code: ExitCode, message: &str) -> ExitCode {
    // A failure to write the message cannot be reported.
    let _ = writeln!(io::stderr(), "{message}");
    code
}

fn compile_stdin(engine: &wasmtime::Engine) -> Result<(), CompileError> {
    let mut wasm = Vec::new();
    io::stdin().lock().read_to_end(&mut wasm).map_err(CompileError::Pipe)?;
    let compiled = precompile(engine, &wasm)?;
    let mut stdout = io::stdout().lock();
    stdout.write_all(&compiled).and_then(|()| stdout.flush()).map_err(CompileError::Pipe)
}

/// Gives up everything that compiling does not need, except system calls: other files, file writes, processes,
/// privileges, unlimited time and memory.
fn bound() -> Result<(), ConfinementError> {
    limit().map_err(ConfinementError::Limits)?;
    // No paths and no capabilities. Confining needs a file descriptor, so it precedes the limit on descriptors.
    Confinement::new(Seccomp::All).enter()?;
    // The three standard streams are open; no descriptor can be added.
    let limit = Rlimit { current: Some(3), maximum: Some(3) };
    setrlimit(Resource::Nofile, limit).map_err(|errno| ConfinementError::Limits(errno.into()))
}

#[expect(clippy::disallowed_methods, reason = "asks the kernel to end this process first")]
fn limit() -> io::Result<()> {
    // If memory runs out nevertheless, the kernel kills this process and not the agent. If the score cannot be written,
    // as in a container without /proc, compiling continues. The child of a confined agent has inherited its score
    // (`OomScore`) and cannot write it.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    if getuid().is_root() {
        drop_privileges()?;
    }
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The child ends itself, because an agent without CAP_KILL cannot kill a process of another user.
    let cpu = said_cpu_time();
    end_after(cpu * WALL_FACTOR + CHILD_GRACE);
    for (resource, limit) in [
        (Resource::As, allowed().0),
        (Resource::Cpu, cpu.as_secs()),
        (Resource::Fsize, 0),
        (Resource::Core, 0),
        (Resource::Nproc, 0),
    ] {
        setrlimit(resource, Rlimit { current: Some(limit), maximum: Some(limit) })?;
    }
    Ok(())
}

/// The memory limit passed by the agent, at most [`Memory::MAX`].
fn allowed() -> Bytes {
    let stderr_text = std::env::var(MEMORY_VARIABLE).ok().and_then(|stderr_text| stderr_text.parse().ok());
    Bytes(stderr_text.map_or(Memory::MAX.0, |stderr_text: u64| stderr_text.min(Memory::MAX.0)))
}

/// The CPU time limit passed by the agent.
fn said_cpu_time() -> Duration {
    Compiler::cpu_time(std::env::var(CPU_VARIABLE).ok().and_then(|said| said.parse().ok()))
}

fn drop_privileges() -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(NOBODY_UID), Gid::from_raw(NOBODY_UID));
    let changed = set_thread_groups(&[])
        .and_then(|()| set_thread_res_gid(gid, gid, gid))
        .and_then(|()| set_thread_res_uid(uid, uid, uid));
    match changed {
        // Root without CAP_SETUID cannot change its user; giving up its capabilities has to suffice.
        Err(rustix::io::Errno::PERM) => Ok(()),
        other => Ok(other?),
    }
}

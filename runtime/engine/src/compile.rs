//! Compiling. What a stranger's Wasm does to a compiler is not the agent's problem: it happens in a child process that may do
//! nothing but read its input and write its output, and that is stopped when it takes too much.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use qosm_model::unit::Bytes;
use rustix::process::{Resource, Rlimit, Signal, getuid, set_parent_process_death_signal, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, Gid, Uid, clear_ambient_capability_set, set_capabilities, set_no_new_privs,
    set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};
use wasmparser::Parser;

use crate::engine::{Meter, wasm_engine};
use crate::error::{CompileError, WasmError};
use crate::precompiled::Precompiled;

/// What the child may use: a 16 MiB module is compiled within it, and a smaller one that is not is not meant to be.
const MEMORY: Bytes = Bytes(1 << 30);
const CPU: Duration = Duration::from_secs(30);
const WALL: Duration = Duration::from_secs(60);
/// What the child may write: what 16 MiB compile to, and then some.
const OUTPUT: Bytes = Bytes(256 << 20);
const SAID: u64 = 4096;
/// Who the child is where the agent is root: nobody.
const NOBODY: u32 = 65_534;
/// The child's answer when the module is at fault.
const REFUSED: u8 = 3;

/// Where modules are compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compiler {
    /// In a process of its own: this very binary, started so that it runs [`compile_child_main`] and nothing else.
    Child {
        /// The binary.
        program: PathBuf,
        /// What makes it compile.
        args: Vec<OsString>,
    },
    /// In this process: for tools and tests. Its memory stays with the process, about 20 MB.
    InProcess,
}

/// Compiles a component, or the core module of a Rego policy. It is only parsed here, or not even that.
pub(crate) fn compile(
    compiler: &Compiler,
    engine: &wasmtime::Engine,
    wasm: &[u8],
) -> Result<Precompiled, CompileError> {
    match compiler {
        Compiler::InProcess => precompile(engine, wasm),
        Compiler::Child { program, args } => in_child(program, args, wasm),
    }
    .map(Precompiled::vouched)
}

/// What a binary is, its first bytes say.
fn precompile(engine: &wasmtime::Engine, wasm: &[u8]) -> Result<Vec<u8>, CompileError> {
    let compiled =
        if Parser::is_core_wasm(wasm) { engine.precompile_module(wasm) } else { engine.precompile_component(wasm) };
    compiled.map_err(|error| refused(error.into()))
}

fn refused(WasmError(message): WasmError) -> CompileError {
    CompileError::Refused(message)
}

fn in_child(program: &PathBuf, args: &[OsString], wasm: &[u8]) -> Result<Vec<u8>, CompileError> {
    let deadline = Instant::now() + WALL;
    let mut child = Command::new(program)
        .args(args)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|source| CompileError::Spawn { program: program.clone(), source })?;
    let result = converse(&mut child, wasm, deadline);
    // Whatever went wrong, no child outlives its call. A child that has ended is only waited for.
    let _ = child.kill();
    let _ = child.wait();
    result
}

/// Feeds the child and listens to it, all three pipes at once, so that neither side waits for the other for ever.
fn converse(child: &mut Child, wasm: &[u8], deadline: Instant) -> Result<Vec<u8>, CompileError> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (output, said, status) = thread::scope(|scope| {
        scope.spawn(move || {
            // A child that ends early says why by its status; that it did not read to the end is no news.
            stdin.map(|mut stdin| stdin.write_all(wasm))
        });
        let output = scope.spawn(move || read_at_most(stdout, OUTPUT.0 + 1));
        let said = scope.spawn(move || read_at_most(stderr, SAID));
        let status = wait_until(child, deadline);
        if !matches!(status, Ok(Some(_))) {
            // Closes the pipes at the other end, so that the threads above end too.
            let _ = child.kill();
        }
        (joined(output), joined(said), status)
    });
    let status = status.map_err(CompileError::Pipe)?.ok_or(CompileError::TimedOut { after: WALL })?;
    let said = said.map(|said| String::from_utf8_lossy(&said).trim().to_owned()).unwrap_or_default();
    if status.code() == Some(REFUSED.into()) {
        return Err(CompileError::Refused(said));
    }
    if !status.success() {
        return Err(CompileError::Died { status, memory: MEMORY, cpu: CPU, said });
    }
    let output = output.map_err(CompileError::Pipe)?;
    if output.len() as u64 > OUTPUT.0 {
        return Err(CompileError::TooLarge { limit: OUTPUT });
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

/// Waits for the child to end; `None` if it does not until then.
fn wait_until(child: &mut Child, deadline: Instant) -> io::Result<Option<ExitStatus>> {
    // A compilation takes tens of milliseconds and happens when a module is new: looking now and then is good enough.
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

/// What [`Compiler::Child`] runs: confines this process, reads a component or core module from standard input, writes its compiled form to
/// standard output. Messages for people go to standard error.
///
/// The process must not have started any thread before: confinement holds for the calling thread and what it starts.
pub fn compile_child_main() -> ExitCode {
    match confine().map_err(|error| (ExitCode::FAILURE, format!("the compiler cannot be confined: {error}"))) {
        Ok(()) => {}
        Err((code, message)) => return fail(code, &message),
    }
    match compile_stdin() {
        Ok(()) => ExitCode::SUCCESS,
        Err(CompileError::Refused(message)) => fail(ExitCode::from(REFUSED), &message),
        Err(error) => fail(ExitCode::FAILURE, &error.to_string()),
    }
}

fn fail(code: ExitCode, message: &str) -> ExitCode {
    // Nobody is left to tell if this fails.
    let _ = writeln!(io::stderr(), "{message}");
    code
}

fn compile_stdin() -> Result<(), CompileError> {
    let mut wasm = Vec::new();
    io::stdin().lock().read_to_end(&mut wasm).map_err(CompileError::Pipe)?;
    let engine = wasm_engine(Meter::None).map_err(|error| refused(error.into()))?;
    let compiled = precompile(&engine, &wasm)?;
    let mut stdout = io::stdout().lock();
    stdout.write_all(&compiled).and_then(|()| stdout.flush()).map_err(CompileError::Pipe)
}

/// Gives up all that compiling does not need: other files, files to write, processes, privileges, time and memory without end.
fn confine() -> io::Result<()> {
    if getuid().is_root() {
        become_nobody()?;
    }
    // Ambient capabilities do not exist before Linux 4.3; without them there is nothing to clear.
    let _ = clear_ambient_capability_set();
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    set_no_new_privs(true)?;
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The three standard streams are open; none can be added.
    for (resource, limit) in [
        (Resource::As, MEMORY.0),
        (Resource::Cpu, CPU.as_secs()),
        (Resource::Nofile, 3),
        (Resource::Fsize, 0),
        (Resource::Core, 0),
        (Resource::Nproc, 0),
    ] {
        setrlimit(resource, Rlimit { current: Some(limit), maximum: Some(limit) })?;
    }
    Ok(())
}

fn become_nobody() -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    let changed = set_thread_groups(&[])
        .and_then(|()| set_thread_res_gid(gid, gid, gid))
        .and_then(|()| set_thread_res_uid(uid, uid, uid));
    match changed {
        // A root without CAP_SETUID has no other user to become: it loses its capabilities, and that must do.
        Err(rustix::io::Errno::PERM) => Ok(()),
        other => Ok(other?),
    }
}

//! How a command compiles a module, and where it keeps the result.

use std::path::{Path, PathBuf};

use anyhow::Context;
use cap_std::ambient_authority;
use cap_std::fs::Dir;
use qosm_engine::{Compiler, Memory, ModuleCache, OomScore};
use qosm_model::unit::Bytes;

/// The memory limit of the container that the agent runs in, in bytes.
const MEMORY_LIMIT: &str = "QOSM_MEMORY_LIMIT";
/// The CPU time that a compiler may use, in seconds, on machines that are slow.
const CPU_TIME: &str = "QOSM_COMPILER_SECONDS";

/// Compiles in a short-lived child of this very program, whose hidden verb `compile-module` calls
/// [`qosm_engine::compile_child_main`]. Made before a process confines itself.
pub fn compiler() -> Compiler {
    // Not the path: by the time that a module is compiled another version may lie there, whose code this one cannot use, and a
    // confined agent may start this very file alone.
    let program = PathBuf::from("/proc/self/exe");
    // The container's own limit, where the chart passes it on: with the node's cgroups mounted over its own it does not see it.
    let number = |name| {
        let said = std::env::var(name).ok()?;
        let number = said.parse::<u64>().ok();
        if number.is_none() {
            tracing::warn!("{name} is `{said}`, and counts as not said: give a whole number");
        }
        number
    };
    let said = number(MEMORY_LIMIT).map(Bytes);
    let left = move || qosm_host::own_memory_left(said);
    let memory = match OomScore::open() {
        Ok(score) => Memory::of_confined(left, score),
        Err(_) => Memory::of(left),
    };
    let cpu = Compiler::cpu_time(number(CPU_TIME));
    Compiler::Child { program, args: vec!["compile-module".into()], memory, cpu }
}

/// The cache of compiled modules in a folder, made if it is not there.
///
/// # Errors
///
/// When the folder cannot be made or opened, or is not for this user alone.
#[expect(clippy::disallowed_methods, reason = "a command makes its folders by path")]
pub fn cache(dir: &Path) -> anyhow::Result<ModuleCache> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .with_context(|| format!("cannot make the folder {}", dir.display()))?;
    let dir =
        Dir::open_ambient_dir(dir, ambient_authority()).with_context(|| format!("cannot open {}", dir.display()))?;
    ModuleCache::open(dir).context("the cache of compiled modules cannot be used")
}

/// A cache for commands that any user runs: plans and replays. Without a home directory there is none, and modules are compiled each time.
pub fn personal_cache() -> Option<ModuleCache> {
    cache(&personal_folder()?.join("modules")).ok()
}

/// The user's own folder that lasts between commands.
pub fn personal_folder() -> Option<PathBuf> {
    let base = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")))?;
    Some(base.join("qosm"))
}

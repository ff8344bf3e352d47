//! The compiler that commands use, and the cache of compiled modules.

use std::path::{Path, PathBuf};

use anyhow::Context;
use cap_std::ambient_authority;
use cap_std::fs::Dir;
use qosm_engine::{Compiler, Memory, ModuleCache, OomScore};
use qosm_model::unit::Bytes;

/// Environment variable with the memory limit of the agent's container, in bytes.
const MEMORY_LIMIT: &str = "QOSM_MEMORY_LIMIT";
/// Environment variable with the CPU time that a compiler may use, in seconds, for slow machines.
const CPU_TIME: &str = "QOSM_COMPILER_SECONDS";

/// The compiler: a short-lived child of this program, whose hidden verb `compile-module` calls
/// [`qosm_engine::compile_child_main`]. Call this function before the process confines itself.
pub fn compiler() -> Compiler {
    // Not the program's path: when a module is compiled, another version may be installed there, whose code this version
    // cannot use, and a confined agent may only execute its own file.
    let program = PathBuf::from("/proc/self/exe");
    // The chart passes the container's limit in the variable: the agent cannot read it, because the node's cgroups are
    // mounted over its own.
    let number = |name| {
        let said = std::env::var(name).ok()?;
        let number = said.parse::<u64>().ok();
        if number.is_none() {
            tracing::warn!("{name} is `{said}` and is ignored: give a whole number");
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

/// The cache of compiled modules in a folder, which is created if it does not exist.
///
/// # Errors
///
/// If the folder cannot be created or opened, or other users can access it.
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

/// The user's cache, for commands such as plan and replay. `None` without a home directory; modules are then compiled each time.
pub fn personal_cache() -> Option<ModuleCache> {
    cache(&personal_folder()?.join("modules")).ok()
}

/// The user's cache folder of qosm; `None` without a home directory.
pub fn personal_folder() -> Option<PathBuf> {
    let base = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")))?;
    Some(base.join("qosm"))
}

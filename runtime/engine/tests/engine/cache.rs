//! The folder of compiled modules: a module runs even if its file there is damaged.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use qosm_engine::{Cause, Columns, Compiler, Digest, Limits, Memory, ModuleCache};
use qosm_model::unit::Micros;
use tempfile::TempDir;

use crate::contract::{ENGINE, everything};
use crate::guest;

struct Home(TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn cache(&self) -> ModuleCache {
        ModuleCache::open(Dir::open_ambient_dir(self.0.path(), ambient_authority()).unwrap()).unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn files(&self) -> Vec<PathBuf> {
        let mut files: Vec<_> =
            fs::read_dir(self.path("compiled")).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    }

    /// The only compiled module.
    fn file(&self) -> PathBuf {
        let files = self.files();
        assert_eq!(files.len(), 1, "{files:?}");
        files.into_iter().next().unwrap()
    }
}

/// Loads a module and evaluates it.
fn load(cache: &ModuleCache) {
    let module = ENGINE.load(&guest::worker(), Some(cache), &Compiler::InProcess).unwrap();
    let mut instance = ENGINE.instantiate(&module, "worker", &everything(), &Limits::default(), Vec::new()).unwrap();
    assert_eq!(instance.evaluate(Micros(5), Cause::Interval, &Columns::default()).unwrap().log.len(), 2);
}

/// A compiler that cannot be started.
fn no_compiler() -> Compiler {
    Compiler::Child {
        program: "/nonexistent/compiler".into(),
        args: Vec::new(),
        memory: Memory::default(),
        cpu: Compiler::cpu_time(None),
    }
}

fn is_cached(cache: &ModuleCache) -> bool {
    ENGINE.load(&guest::worker(), Some(cache), &no_compiler()).is_ok()
}

#[test]
fn a_module_is_compiled_once() {
    let home = Home::new();
    assert!(!is_cached(&home.cache()));
    load(&home.cache());
    assert!(is_cached(&home.cache()), "also after a restart");
    let name = home.file().file_name().unwrap().to_str().unwrap().to_owned();
    assert!(name.starts_with(&Digest::of(&guest::worker()).hex()), "{name}");
}

#[test]
fn other_users_cannot_read_or_write_it() {
    let home = Home::new();
    fs::create_dir(home.path("compiled")).unwrap();
    fs::set_permissions(home.path("compiled"), fs::Permissions::from_mode(0o755)).unwrap();
    load(&home.cache());
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(&home.path("compiled")), 0o700);
    assert_eq!(mode(&home.path("compiled.key")), 0o600);
    assert_eq!(mode(&home.file()), 0o600);
}

/// Damages the compiled module, and expects that the next load compiles it again.
fn repaired(damage: impl FnOnce(&Home, &Path)) {
    let home = Home::new();
    load(&home.cache());
    damage(&home, &home.file());
    assert!(!is_cached(&home.cache()), "damaged code must not be loaded");
    load(&home.cache());
    assert!(is_cached(&home.cache()));
}

#[test]
fn a_flipped_bit_is_a_miss() {
    let size = {
        let home = Home::new();
        load(&home.cache());
        fs::metadata(home.file()).unwrap().len()
    };
    for part in 0..8 {
        repaired(|_, file| {
            let mut bytes = fs::read(file).unwrap();
            let at = usize::try_from(size * part / 8).unwrap();
            bytes[at] ^= 0x10;
            fs::write(file, bytes).unwrap();
        });
    }
}

#[test]
fn a_truncated_file_is_a_miss() {
    for length in [0, 1, 31, 32, 33, 1000] {
        repaired(|_, file| fs::File::options().write(true).open(file).unwrap().set_len(length).unwrap());
    }
    repaired(|_, file| {
        let bytes = fs::read(file).unwrap();
        fs::write(file, &bytes[..bytes.len() - 1]).unwrap();
    });
    repaired(|_, file| {
        let mut bytes = fs::read(file).unwrap();
        bytes.push(0);
        fs::write(file, bytes).unwrap();
    });
}

#[test]
fn an_alien_file_is_a_miss() {
    repaired(|_, file| fs::write(file, vec![0x90; 4096]).unwrap());
    // Another module's code under this module's name, complete and written by this node.
    repaired(|home, file| {
        let idle = ENGINE.load(&guest::component(""), Some(&home.cache()), &Compiler::InProcess).unwrap();
        let other = home.files().into_iter().find(|path| path != file).unwrap();
        assert!(other.to_str().unwrap().contains(&idle.digest().hex()));
        fs::rename(other, file).unwrap();
    });
    // A link to code in another folder.
    repaired(|home, file| {
        fs::rename(file, home.path("elsewhere")).unwrap();
        symlink("../elsewhere", file).unwrap();
    });
    repaired(|_, file| {
        fs::remove_file(file).unwrap();
        fs::create_dir(file).unwrap();
    });
}

#[test]
fn code_of_another_node_is_a_miss() {
    let other = Home::new();
    load(&other.cache());
    repaired(|_, file| {
        fs::copy(other.file(), file).unwrap();
    });
}

#[test]
fn another_key_empties_the_cache() {
    for damage in [
        |key: &Path| fs::remove_file(key).unwrap(),
        |key: &Path| fs::write(key, b"short").unwrap(),
        |key: &Path| fs::set_permissions(key, fs::Permissions::from_mode(0o644)).unwrap(),
    ] {
        repaired(|home, _| damage(&home.path("compiled.key")));
    }
}

#[test]
fn code_that_this_engine_does_not_know_is_a_miss() {
    // A file that this node wrote, but for another engine, as after a change of the engine's format.
    let home = Home::new();
    load(&home.cache());
    let file = home.file();
    fs::rename(&file, file.with_file_name(format!("{}-0000000000000000.cwasm", Digest::of(&guest::worker()).hex())))
        .unwrap();
    assert!(!is_cached(&home.cache()), "another engine's name is not looked at");
}

#[test]
fn a_file_is_never_written_again() {
    let home = Home::new();
    load(&home.cache());
    let before = fs::metadata(home.file()).unwrap();
    load(&home.cache());
    let after = fs::metadata(home.file()).unwrap();
    assert_eq!((before.ino(), before.mtime_nsec()), (after.ino(), after.mtime_nsec()));
    assert_eq!(after.nlink(), 1);
}

#[test]
fn many_may_load_at_the_same_time() {
    let home = Home::new();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| load(&home.cache()));
        }
    });
    assert!(is_cached(&home.cache()));
    assert!(home.file().to_str().unwrap().ends_with(".cwasm"));
}

#[test]
fn a_folder_that_cannot_be_written_costs_only_time() {
    let home = Home::new();
    let cache = home.cache();
    fs::remove_dir_all(home.path("compiled")).unwrap();
    load(&cache);
}

#[test]
fn what_is_not_kept_is_deleted() {
    let home = Home::new();
    let cache = home.cache();
    load(&cache);
    ENGINE.load(&guest::component(""), Some(&cache), &Compiler::InProcess).unwrap();
    fs::write(home.path("compiled/.left-over.1.0"), b"half").unwrap();
    let keep = BTreeSet::from([Digest::of(&guest::worker())]);
    assert_eq!(cache.prune(&ENGINE, &keep).unwrap(), 2);
    assert!(is_cached(&cache));
    assert_eq!(cache.prune(&ENGINE, &keep).unwrap(), 0);
}

#[test]
fn a_compiler_that_is_not_there_is_named() {
    let error = ENGINE.load(&guest::worker(), None, &no_compiler()).unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(source, "the compiler `/nonexistent/compiler` cannot be started");
}

#[test]
fn a_compiler_that_fails_is_reported() {
    let shell = |script: &str| Compiler::Child {
        program: "/bin/sh".into(),
        args: vec!["-c".into(), script.into()],
        memory: Memory::default(),
        cpu: Compiler::cpu_time(None),
    };
    for (script, expected) in [
        ("exit 3", ""),
        ("echo 'unknown opcode' >&2; exit 3", "unknown opcode"),
        ("cat >/dev/null; echo broken >&2; exit 1", "it said: broken"),
        ("kill -9 $$", "signal: 9"),
    ] {
        let error = ENGINE.load(&guest::worker(), None, &shell(script)).unwrap_err();
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert!(source.contains(expected), "{script}: {source}");
    }
    let error = ENGINE.load(&guest::worker(), None, &shell("cat")).unwrap_err();
    assert!(matches!(error, qosm_engine::EngineError::Load { .. }), "plain Wasm is no compiled code: {error}");
}

/// The folder may contain any kind of file, since other processes can write to it.
#[test]
fn a_fifo_does_not_block() {
    let home = Home::new();
    load(&home.cache());
    for name in [home.file(), home.path("compiled.key"), home.path("compiled-failures.json")] {
        let _ = fs::remove_file(&name);
        let made = std::process::Command::new("mkfifo").args(["-m", "600"]).arg(&name).status().unwrap();
        assert!(made.success());
        let (done, waits) = std::sync::mpsc::channel();
        let path = home.0.path().to_path_buf();
        std::thread::spawn(move || {
            let cache = ModuleCache::open(Dir::open_ambient_dir(path, ambient_authority()).unwrap()).unwrap();
            load(&cache);
            done.send(()).unwrap();
        });
        let ended = waits.recv_timeout(std::time::Duration::from_secs(60));
        assert!(ended.is_ok(), "{} holds the engine up", name.display());
    }
}

#[test]
fn a_failed_compilation_is_remembered_until_a_retry() {
    let home = Home::new();
    let refusing = Compiler::Child {
        program: "/bin/sh".into(),
        args: vec!["-c".into(), "echo 'unknown opcode' >&2; exit 3".into()],
        memory: Memory::default(),
        cpu: Compiler::cpu_time(None),
    };
    let why = |cache: &ModuleCache, compiler: &Compiler| {
        let error = ENGINE.load(&guest::worker(), Some(cache), compiler).unwrap_err();
        std::error::Error::source(&error).unwrap().to_string()
    };
    let cache = home.cache();
    assert_eq!(why(&cache, &refusing), "unknown opcode");
    // A day, or slightly less.
    let is_remembered = |why: &str| {
        why.starts_with("unknown opcode; it is not tried again for 2")
            && why.ends_with(" h, or until `qosm policy retry`")
    };
    assert!(is_remembered(&why(&cache, &Compiler::InProcess)));
    // Another module is still compiled, and a restart changes nothing.
    ENGINE.load(&guest::component(""), Some(&cache), &Compiler::InProcess).unwrap();
    drop(cache);
    let cache = home.cache();
    assert!(is_remembered(&why(&cache, &Compiler::InProcess)));
    assert_eq!(fs::metadata(home.path("compiled-failures.json")).unwrap().mode() & 0o777, 0o600);

    let module = Digest::of(&guest::worker());
    assert!(cache.clear_failure(&module) && !cache.clear_failure(&module));
    load(&cache);
    // A compiler that cannot be started is not recorded as a failure of the module.
    fs::remove_dir_all(home.path("compiled")).unwrap();
    let cache = home.cache();
    assert!(why(&cache, &no_compiler()).contains("cannot be started"));
    load(&cache);
}

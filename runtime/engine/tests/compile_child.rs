//! Tests the compiler's child process: this program starts itself as the child, so it has its own `main`.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::io::Write;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use qosm_engine::{BundleError, CompileError, Compiler, Engine, EngineError, Memory, compile_child_main};
use qosm_model::unit::Bytes;

const CHILD: &str = "compile-module";
const HOLLOW: &str = r#"(component (instance $i) (export "qosm:policy/lifecycle@0.1.0" (instance $i)))"#;

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some(CHILD) {
        return compile_child_main();
    }
    let tests: [(&str, fn()); 7] = [
        ("what_the_child_compiles_is_loaded", what_the_child_compiles_is_loaded),
        ("a_bundles_module_is_compiled_in_the_child_too", a_bundles_module_is_compiled_in_the_child_too),
        ("a_bad_module_is_refused_with_the_compilers_words", a_bad_module_is_refused_with_the_compilers_words),
        ("the_child_is_confined", the_child_is_confined),
        ("the_child_is_told_how_long_it_may_take", the_child_is_told_how_long_it_may_take),
        ("the_child_cannot_take_all_memory", the_child_cannot_take_all_memory),
        ("the_child_ends_with_its_input", the_child_ends_with_its_input),
    ];
    for (name, test) in tests {
        test();
        println!("test {name} ... ok");
    }
    ExitCode::SUCCESS
}

fn child() -> Compiler {
    Compiler::Child {
        program: std::env::current_exe().unwrap(),
        args: vec![CHILD.into()],
        memory: Memory::default(),
        cpu: Compiler::cpu_time(None),
    }
}

/// A component that does not implement the contract, with this core module inside.
fn around(core: &str) -> Vec<u8> {
    wat::parse_str(HOLLOW.replacen("(component", &format!("(component (core module {core})"), 1)).unwrap()
}

fn what_the_child_compiles_is_loaded() {
    // Loading fails only at the missing exports, so the component was compiled and loaded.
    let error = Engine::new().unwrap().load(&around("(func)"), None, &child()).unwrap_err();
    assert!(matches!(error, EngineError::Mismatch { .. }), "{error}");
}

fn a_bundles_module_is_compiled_in_the_child_too() {
    let manifest = r#"{"wasm": [{"entrypoint": "qosm/settings", "annotations": [
        {"custom": {"qosm": {"name": "tried", "version": "0.1.0"}}}]}]}"#;
    let core = wat::parse_str("(module)").unwrap();
    let mut builder = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (name, bytes) in [("policy.wasm", core.as_slice()), (".manifest", manifest.as_bytes())] {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        builder.append_data(&mut header, name, bytes).unwrap();
    }
    let bundle = builder.into_inner().unwrap().finish().unwrap();
    // Loading fails only at the missing ABI, so the module was compiled and loaded.
    let error = Engine::new().unwrap().load(&bundle, None, &child()).unwrap_err();
    let EngineError::Bundle { source: BundleError::NoAbi(_), .. } = error else { panic!("{error:?}") };
}

fn a_bad_module_is_refused_with_the_compilers_words() {
    let error = Engine::new().unwrap().load(&around("(func (result i32) i64.const 0)"), None, &child()).unwrap_err();
    let EngineError::Compile { source: CompileError::Refused(message), .. } = error else { panic!("{error}") };
    assert!(message.contains("type mismatch"), "{message}");
}

fn the_child_is_confined() {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .arg(CHILD)
        .env("QOSM_COMPILER_CPU_SECONDS", "7")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let read = |file: &str| std::fs::read_to_string(format!("/proc/{}/{file}", child.id())).unwrap();
    let limit = |name: &str| {
        let limits = read("limits");
        let line = limits.lines().find_map(|line| line.strip_prefix(name).map(str::to_owned)).unwrap();
        line.split_whitespace().next().unwrap().to_owned()
    };
    let start = Instant::now();
    // The seccomp filter is installed last.
    while !read("status").lines().any(|line| line.starts_with("Seccomp:\t2")) {
        assert!(start.elapsed() < Duration::from_secs(60), "its system calls are not filtered");
        std::thread::sleep(Duration::from_millis(2));
    }
    for (name, value) in [
        ("Max address space", "1073741824"),
        ("Max cpu time", "7"),
        ("Max open files", "3"),
        ("Max file size", "0"),
        ("Max core file size", "0"),
        ("Max processes", "0"),
    ] {
        assert_eq!(limit(name), value, "{name}");
    }
    assert_eq!(read("oom_score_adj").trim(), "1000", "the kernel would end the agent as well");
    let status = read("status");
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().collect::<Vec<_>>()
    };
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
        assert_eq!(field(set), ["0000000000000000"], "{set}");
    }
    assert_eq!(field("NoNewPrivs:"), ["1"]);
    let own = std::fs::read_to_string("/proc/self/status").unwrap();
    let root_with_setuid = own.lines().any(|line| line.starts_with("Uid:\t0")) && {
        let effective = own.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
        // CAP_SETGID and CAP_SETUID
        u64::from_str_radix(effective.trim(), 16).unwrap() & 0xc0 == 0xc0
    };
    if root_with_setuid {
        assert_eq!(field("Uid:"), ["65534"; 4]);
        assert_eq!(field("Gid:"), ["65534"; 4]);
        assert!(field("Groups:").is_empty());
    } else {
        println!("left out: the change of user, for this is no root that may change it");
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

fn the_child_is_told_how_long_it_may_take() {
    for (said, told) in [(None, "30"), (Some(7), "7"), (Some(0), "1"), (Some(100_000), "600")] {
        // Instead of the compiler, a program that refuses the module and prints its limit.
        let compiler = Compiler::Child {
            program: "/bin/sh".into(),
            args: vec!["-c".into(), "echo $QOSM_COMPILER_CPU_SECONDS >&2; exit 3".into()],
            memory: Memory::default(),
            cpu: Compiler::cpu_time(said),
        };
        let error = Engine::new().unwrap().load(&around("(func)"), None, &compiler).unwrap_err();
        let EngineError::Compile { source: CompileError::Refused(message), .. } = error else { panic!("{error}") };
        assert_eq!(message, told, "{said:?}");
    }
}

fn the_child_cannot_take_all_memory() {
    // Two megabytes of Wasm in one function, whose values all stay alive until its end.
    let body = format!("{}{}", "call $f ".repeat(500_000), "i32.add ".repeat(499_999));
    let error =
        Engine::new().unwrap().load(&around(&format!("(func $f (result i32) {body})")), None, &child()).unwrap_err();
    assert!(matches!(&error, EngineError::Compile { source: CompileError::Died { .. }, .. }), "{error:?}");
    // The child gets half of the container's remaining memory and fails at that limit, before the kernel would kill a process.
    let memory = Memory::of(|| Some(Bytes(400 << 20)));
    let tight = Compiler::Child {
        program: std::env::current_exe().unwrap(),
        args: vec![CHILD.into()],
        memory,
        cpu: Compiler::cpu_time(None),
    };
    let body = format!("{}{}", "call $f ".repeat(300_000), "i32.add ".repeat(299_999));
    let error =
        Engine::new().unwrap().load(&around(&format!("(func $f (result i32) {body})")), None, &tight).unwrap_err();
    let EngineError::Compile { source: CompileError::Died { memory, .. }, .. } = &error else { panic!("{error:?}") };
    assert_eq!(*memory, Bytes(200 << 20));
}

fn the_child_ends_with_its_input() {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .arg(CHILD)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"no Wasm").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(!output.stderr.is_empty() && output.stdout.is_empty());
}

//! Hostile bundles. Each ends in bounded time and memory, with an error that tells the reason.

use std::fmt::Write;
use std::time::{Duration, Instant};

use qosm_engine::{CallError, Limits};
use qosm_model::unit::Bytes;

use crate::node::{Tried, chain, load, refusal};
use crate::opa;

/// Maximum time of any of these tests on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

fn ends(bundle: &[u8]) -> CallError {
    let begun = Instant::now();
    let mut tried = Tried::of(bundle);
    let error = tried.evaluate().unwrap_err();
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    assert!(!tried.instance.is_usable());
    assert!(matches!(tried.evaluate(), Err(CallError::Spent { .. })));
    assert!(tried.instance.memory() <= Limits::default().memory);
    error
}

#[test]
fn an_endless_evaluation_is_stopped() {
    // A billion steps.
    let range =
        "some a in numbers.range(1, 1000)\n\tsome b in numbers.range(1, 1000)\n\tsome c in numbers.range(1, 1000)";
    let error =
        ends(&opa::policy("", &format!("settings contains {{\"log\": \"x\"}} if {{\n\t{range}\n\ta + b + c == 0\n}}")));
    assert!(matches!(error, CallError::TimedOut { .. }), "{error}");
}

#[test]
fn memory_is_bounded() {
    let rules = "settings contains {\"log\": \"x\"} if count([[a, b] | some a in numbers.range(1, 3000); some b in numbers.range(1, 1000)]) > 0";
    let bundle = opa::policy("", rules);
    let limits = Limits { evaluation: Duration::from_secs(10), ..Limits::default() };
    let error = Tried::within(&bundle, &limits).unwrap().evaluate().unwrap_err();
    assert!(matches!(error, CallError::OutOfMemory { .. }), "{error}");
    assert!(error.to_string().contains("may have 33554432 B"), "{error}");
}

#[test]
fn a_huge_answer_is_refused() {
    // 100 MB, with enough memory for it.
    let rules = "settings contains {\"log\": concat(\"\", [x | some _ in numbers.range(1, 1000)])} if x := concat(\"\", [\"0123456789\" | some _ in numbers.range(1, 1000)])";
    let bundle = opa::policy("", rules);
    let limits = Limits { evaluation: Duration::from_secs(10), memory: Bytes(256 << 20), ..Limits::default() };
    let error = Tried::within(&bundle, &limits).unwrap().evaluate().unwrap_err();
    assert!(error.to_string().contains("it hands over more than 2097152 B"), "{error}");

    let many = "settings contains {\"log\": sprintf(\"%d\", [n])} if some n in numbers.range(1, 20000)";
    let limits = Limits { evaluation: Duration::from_secs(10), ..Limits::default() };
    let error = Tried::within(&opa::policy("", many), &limits).unwrap().evaluate().unwrap_err();
    assert!(error.to_string().contains("it stages more than 16384 settings"), "{error}");
}

#[test]
fn depth_is_bounded_wherever_it_comes_from() {
    let deep = |levels| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let rules = "settings contains {\"log\": \"x\"} if count(data.deep) > 0";
    let of_data = |levels| {
        let policy = opa::text("", rules);
        opa::build(&[("policy.rego", &policy), ("data.json", &format!("{{\"deep\": {}}}", deep(levels)))])
    };
    assert_eq!(Tried::of(&of_data(90)).evaluated().log.len(), 1);
    let error = refusal(&of_data(5000));
    assert!(error.contains("its `data.json` cannot be used"), "{error}");

    // A configuration, which is refused, and a policy that creates a deep value itself.
    let mut tried = Tried::of(&opa::policy("", rules));
    let error = tried.instance.configure(&format!("{{\"data\": {{\"deep\": {}}}}}", deep(5000))).unwrap_err();
    assert_eq!(error.outcome(), "refused", "{error}");
    let rules = "settings contains {\"log\": \"x\"} if {\n\ttext := concat(\"\", [\"[\" | some _ in numbers.range(1, 60000)])\n\t\
                 x := json.unmarshal(text)\n\tcount(x) > 0\n}";
    let limits = Limits { evaluation: Duration::from_secs(10), ..Limits::default() };
    let error = Tried::within(&opa::policy("", rules), &limits).unwrap().evaluate().unwrap_err();
    assert!(matches!(error, CallError::Trap { .. }), "{error}");
}

#[test]
fn a_bomb_does_not_go_off() {
    let begun = Instant::now();
    let zeros = vec![0; 80 << 20];
    let bomb = opa::archive(&[("policy.wasm", &zeros)]);
    assert!(bomb.len() < 200_000, "{}", bomb.len());
    assert!(refusal(&bomb).contains("what it unpacks to has more than the 67108864 B"));
    let large = opa::archive(&[("policy.wasm", &zeros[..17 << 20])]);
    assert!(refusal(&large).contains("policy.wasm has more than the 16777216 B"));
    let names: Vec<_> = (0..1001).map(|number| format!("file-{number}")).collect();
    let many: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), &b""[..])).collect();
    assert!(refusal(&opa::archive(&many)).contains("it holds more than 1000 files"));
    assert!(begun.elapsed() < PATIENCE);
}

/// A core module with OPA's exports, whose functions do nothing; `change` modifies its text.
fn module(change: impl FnOnce(String) -> String) -> Vec<u8> {
    let mut text = String::from(
        r#"(module (import "env" "memory" (memory 2))
        (global (export "opa_wasm_abi_version") i32 (i32.const 1))
        (global (export "opa_wasm_abi_minor_version") i32 (i32.const 3))
        (data (i32.const 1024) "{\"qosm/settings\": 0}\00")
        (data (i32.const 2048) "{}\00")"#,
    );
    for (name, signature, body) in [
        ("opa_malloc", "(param i32) (result i32)", "i32.const 65536"),
        ("opa_free", "(param i32)", ""),
        ("opa_value_parse", "(param i32 i32) (result i32)", "i32.const 65536"),
        ("opa_value_dump", "(param i32) (result i32)", "local.get 0"),
        ("opa_value_add_path", "(param i32 i32 i32) (result i32)", "i32.const 0"),
        ("opa_heap_ptr_get", "(result i32)", "i32.const 65536"),
        ("opa_heap_ptr_set", "(param i32)", ""),
        ("opa_eval_ctx_new", "(result i32)", "i32.const 65536"),
        ("opa_eval_ctx_set_input", "(param i32 i32)", ""),
        ("opa_eval_ctx_set_data", "(param i32 i32)", ""),
        ("opa_eval_ctx_set_entrypoint", "(param i32 i32)", ""),
        ("opa_eval_ctx_get_result", "(param i32) (result i32)", "i32.const 4096"),
        ("eval", "(param i32) (result i32)", "i32.const 0"),
        ("builtins", "(result i32)", "i32.const 2048"),
        ("entrypoints", "(result i32)", "i32.const 1024"),
    ] {
        writeln!(text, "(func (export \"{name}\") {signature} {body})").unwrap();
    }
    let wasm = wat::parse_str(change(text + ")")).unwrap();
    opa::archive(&[("policy.wasm", &wasm), (".manifest", opa::manifest().as_bytes())])
}

#[test]
fn a_module_that_is_not_opas_is_refused() {
    for (from, to, expected) in [
        ("i32 (i32.const 3)", "i32 (i32.const 1)", "speaks version 1.1 of OPA's ABI, and this host 1.2"),
        ("_version\") i32 (i32.const 1)", "_version\") i32 (i32.const 2)", "speaks version 2.3 of OPA's ABI"),
        ("opa_wasm_abi_minor_version", "other", "it exports no number `opa_wasm_abi_minor_version`"),
        ("\"opa_value_dump\"", "\"other\"", "`opa_value_dump`: "),
        ("\"opa_free\") (param i32)", "\"opa_free\") (param i64)", "`opa_free`: "),
        ("qosm/settings", "qosm/bettings", "it has no entrypoint `qosm/settings` but `qosm/bettings`"),
        ("\"{}\\00\"", "\"{\\\"nothing.at_all\\\": 0}\\00\"", "it calls `nothing.at_all`, which is not known here"),
        ("\"{}\\00\"", "\"[1]\\00\"", "a table is not one of names and numbers"),
        ("\"{}\\00\"", "\"\\ff\\00\"", "a table of names cannot be read"),
        ("\"builtins\") (result i32) i32.const 2048", "\"builtins\") (result i32) i32.const -1", "without an end"),
        ("(module ", "(module (import \"env\" \"fetch\" (func))", "its module imports `env.fetch`"),
        (
            "(module ",
            "(module (import \"wasi_snapshot_preview1\" \"fd_write\" (func))",
            "`wasi_snapshot_preview1.fd_write`",
        ),
        ("(memory 2)", "(memory 2000)", "it wants 131072000 B of memory and may have"),
    ] {
        let error = refusal(&module(|text| {
            assert!(text.contains(from), "{from}");
            text.replacen(from, to, 1)
        }));
        assert!(error.contains(expected), "{error}\n  should contain {expected}");
    }
    let malloc = "(func (export \"opa_malloc\")";
    let looping = module(|text| text.replace(malloc, &format!("(func $s (loop br 0)) (start $s) {malloc}")));
    let error = refusal(&looping);
    assert!(error.contains("it had used up its 500ms"), "{error}");
}

#[test]
fn a_module_that_lies_ends_its_own_evaluation() {
    for (change, expected) in [
        (
            ("\"eval\") (param i32) (result i32) i32.const 0", "\"eval\") (param i32) (result i32) i32.const 7"),
            "status 7",
        ),
        (("\"eval\") (param i32) (result i32)", "\"eval\") (param i32) (result i32) unreachable"), "unreachable"),
        (("i32.const 4096", "i32.const 2048"), "its result cannot be read: it is no set"),
        (("i32.const 4096", "i32.const -1"), "without an end"),
        (
            (
                "\"opa_malloc\") (param i32) (result i32) i32.const 65536",
                "\"opa_malloc\") (param i32) (result i32) i32.const -1",
            ),
            "out of bounds",
        ),
        (
            (
                "\"opa_value_parse\") (param i32 i32) (result i32) i32.const 65536",
                "\"opa_value_parse\") (param i32 i32) (result i32) i32.const 0",
            ),
            "cannot read a document",
        ),
        (
            (
                "\"eval\") (param i32) (result i32) i32.const 0",
                "\"eval\") (param i32) (result i32) (call $b (i32.const 5) (i32.const 0))",
            ),
            "it calls a built-in function that it did not announce, number 5",
        ),
    ] {
        let bundle = module(|text| {
            assert!(text.contains(change.0), "{}", change.0);
            let text = text.replacen(change.0, change.1, 1);
            text.replacen(
                "(module ",
                "(module (import \"env\" \"opa_builtin0\" (func $b (param i32 i32) (result i32)))",
                1,
            )
        });
        load(&bundle).unwrap_or_else(|error| panic!("{}", chain(&error)));
        let error = match Tried::within(&bundle, &Limits::default()) {
            Ok(mut tried) => tried.evaluate().unwrap_err(),
            Err(error) => error,
        };
        assert!(error.to_string().contains(expected), "{error}\n  should contain {expected}");
    }
}

#[test]
fn print_that_was_left_in_harms_nothing() {
    let printed = opa::policy("", "settings contains {\"log\": \"x\"} if print(\"pods:\", count(input.pods))");
    assert!(Tried::of(&printed).evaluated().log.iter().any(|line| line.message == "x"));
}

#[test]
fn constants_that_end_just_past_a_page_are_taken() {
    // OPA 1.22 determines the memory of a module before it lays out the last constants.
    let first = "(data (i32.const 1024)";
    let text = |offset: u32| {
        let constants = format!("(data (i32.const {offset}) \"constants that end past a page\")");
        move |text: String| text.replacen(first, &format!("{constants}{first}"), 1)
    };
    let taken = module(text(2 * 65_536 - 10));
    let error = Tried::of(&taken).evaluate().unwrap_err().to_string();
    assert!(!error.contains("out of bounds"), "{error}");
    let error = refusal(&module(text(3 * 65_536 - 10)));
    assert!(error.contains("out of bounds"), "{error}");
}

#[test]
fn built_in_functions_end_an_evaluation_that_asks_too_much_of_them() {
    let text = "concat(\"\", [\"ab\" | some _ in numbers.range(1, 16384)])";
    for (what, rules) in [
        ("CPU time", format!("x := regex.find_n(\"[ab]*a[ab]{{900}}c|a|b\", {text}, -1)")),
        ("CPU time", format!("x := regex.replace({text}, \"[ab]*a[ab]{{900}}c|a|b\", \"c\")")),
        (
            "memory",
            "k := concat(\"\", [\"k\" | some _ in numbers.range(1, 30000)])\n\
             \tn := [\"10.0.0.1\" | some _ in numbers.range(1, 2000)]\n\tx := net.cidr_contains_matches({k: \"10.0.0.0/8\"}, n)"
                .to_owned(),
        ),
        // Each call is small.
        ("memory", "x := [y | some i in numbers.range(1, 100000); y := sprintf(\"%.1000f\", [i + 0.5])]".to_owned()),
    ] {
        let rules = format!("settings contains {{\"log\": \"x\"}} if {{\n\t{rules}\n\tcount(x) > 0\n}}");
        // The limit is high, so that the budget ends the evaluation and not the deadline.
        let limits = Limits { evaluation: Duration::from_secs(2), ..Limits::default() };
        let begun = Instant::now();
        let error = Tried::within(&opa::policy("", &rules), &limits).unwrap().evaluate();
        let error = error.expect_err(&rules).to_string();
        let is_spent = error.contains("the built-in functions of one evaluation have used up the") && error.contains(what);
        assert!(is_spent || error.contains("had used up its 2s of CPU time"), "{rules}: {error}");
        assert!(begun.elapsed() < PATIENCE, "{rules}");
    }
}

#[test]
fn a_state_whose_keys_double_at_each_level_is_refused() {
    // Deep enough to exceed any bound of a state; at 40 levels `opa build` itself runs out of memory.
    let state = format!("{}\"a\": 1{}", "{".repeat(20), "}: 1".repeat(19) + "}");
    let error = Tried::of(&opa::policy("", &format!("settings := [{{\"state\": {state}}}]"))).evaluate().unwrap_err();
    assert!(error.to_string().contains("state"), "{error}");
}

//! Checks that the table of built-in functions is complete and that `docs/rego-builtins.md` agrees with it.

use std::collections::BTreeSet;
use std::path::Path;
use std::{env, fs};

use qosm_rego::{Budget, Context, Support, Value, builtin, support, table};

use crate::opa::opa;

#[test]
fn the_page_about_them_is_up_to_date() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/rego-builtins.md");
    let page = table::page();
    if env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&file, &page).unwrap();
    }
    let written = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        written == page,
        "docs/rego-builtins.md is not what the table in runtime/rego says: \
         `UPDATE_DOCS=1 cargo test -p qosm-rego --test builtins` writes it"
    );
}

#[test]
fn names_have_one_verdict_each() {
    for name in table::names() {
        match support(name) {
            Support::Works => {}
            Support::Refused { why, instead } => {
                assert!(!why.is_empty() && !instead.is_empty(), "{name}");
                assert_eq!(builtin(name).map(|builtin| builtin.name()), None);
            }
            Support::Unknown { .. } => panic!("{name}"),
        }
    }
    let names: Vec<&str> = table::names().collect();
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "each once");
    assert_eq!(names.len(), 206);
}

#[test]
fn a_misspelt_name_is_told_the_right_one() {
    let instead = |name: &str| match support(name) {
        Support::Unknown { instead } => instead,
        other => panic!("{name}: {other:?}"),
    };
    assert_eq!(instead("sprint"), "did you mean `sprintf`?");
    assert_eq!(instead("time.now"), "did you mean `time.now_ns`?");
    assert!(instead("quux").contains("opa capabilities"));
}

#[test]
fn a_call_with_other_arguments_is_an_error() {
    let sprintf = builtin("sprintf").unwrap();
    let error = sprintf.call(&[Value::from("x")], &Context::new(0)).unwrap_err();
    assert_eq!(error.to_string(), "sprintf: takes 2 arguments, was given 1");
}

#[test]
fn what_depends_on_the_evaluation_is_given_by_it() {
    let mut context = Context::new(42);
    let none = |name: &str, context: &Context| builtin(name).unwrap().call(&[], context).unwrap().unwrap();
    assert_eq!(none("time.now_ns", &context), Value::from(42));
    assert_eq!(none("opa.runtime", &context).to_string(), "{}");
    let print = builtin("internal.print").unwrap();
    print.call(&[Value::parse(r#"[{"a", 1}, set(), {[true]}]"#).unwrap()], &context).unwrap();
    builtin("trace").unwrap().call(&[Value::from("note")], &context).unwrap();
    assert_eq!(context.take_log(), ["1 <undefined> [true]", "a <undefined> [true]", "note"]);
    context.restart(43, Budget::default());
    assert_eq!(none("time.now_ns", &context), Value::from(43));
}

#[test]
fn arguments_are_as_many_as_opa_says() {
    let run = opa().args(["capabilities", "--current"]).output().unwrap();
    let capabilities = Value::from_json(&String::from_utf8(run.stdout).unwrap()).unwrap();
    let listed = capabilities.get("builtins").and_then(Value::as_array).unwrap();
    let field = |value: &Value, name: &str| value.get(name).cloned();
    let mut theirs = BTreeSet::new();
    for entry in listed {
        let Some(Value::String(name)) = field(entry, "name") else { panic!("{entry}") };
        let arguments = field(entry, "decl").and_then(|decl| field(&decl, "args"));
        if let Some(builtin) = builtin(&name) {
            assert_eq!(builtin.arity(), arguments.map_or(0, |args| args.as_array().unwrap().len()), "{name}");
        }
        theirs.insert(name);
    }
    assert_eq!(theirs, table::names().map(str::to_owned).collect());
}

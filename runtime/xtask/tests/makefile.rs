//! Checks the help text of `make`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

/// The targets with a description, and the descriptions.
fn described(makefile: &str) -> BTreeMap<&str, &str> {
    // Recipes are indented, and a variable may hold a colon.
    let rules = makefile.lines().filter(|line| line.starts_with(|of: char| of.is_ascii_alphanumeric()));
    rules.filter_map(|line| Some((line.split_once(':')?.0, line.split_once("## ")?.1))).collect()
}

#[test]
fn every_target_that_says_what_it_is_for_is_listed_by_make_help() {
    let repository = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let makefile = std::fs::read_to_string(repository.join("Makefile")).unwrap();
    let described = described(&makefile);
    // A target without prerequisites, and one with a prerequisite.
    assert!(described.contains_key("test") && described.contains_key("image"), "{described:?}");

    // `make test` passes its own flags to the program that runs this test.
    let mut make = Command::new("make");
    make.arg("help").current_dir(&repository).env_remove("MAKEFLAGS").env_remove("MAKELEVEL").env_remove("MFLAGS");
    let output = make.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let listed: BTreeMap<_, _> = printed
        .lines()
        .filter_map(|line| line.strip_prefix("  ")?.split_once("  "))
        .map(|(a, b)| (a, b.trim()))
        .collect();
    assert_eq!(listed, described);
}

//! What wkg takes of us and we take of it. It is compiled for these tests alone, so that `make test` leaves them out.

use std::fs;

use crate::artefacts::{Desk, module};
use crate::env::{env, run, wkg};

#[test]
fn it_answers() {
    let printed = run(wkg().arg("--version")).well();
    assert!(printed.contains("wkg 0.16."), "{printed}");
}

#[test]
fn it_takes_what_we_push() {
    let (desk, host) = (Desk::new(), &env().plain.host);
    let reference = format!("{host}/wkg/ours:0.1.0");
    desk.push(&module("cpu-burst"), &reference);
    let file = desk.path("taken.wasm");
    run(wkg().args(["oci", "pull", "--insecure", host, &reference, "--output"]).arg(&file)).well();
    assert_eq!(fs::read(file).unwrap(), fs::read(module("cpu-burst")).unwrap());
}

#[test]
fn what_it_pushes_we_take() {
    let desk = Desk::new();
    for registry in [&env().plain, &env().referrers] {
        let reference = format!("{}/wkg/theirs:0.1.0", registry.host);
        run(wkg().args(["oci", "push", "--insecure", &registry.host, &reference]).arg(module("cpu-burst"))).well();
        desk.json(&["pull", &reference, "--to", "taken.wasm"]);
        assert_eq!(fs::read(desk.path("taken.wasm")).unwrap(), fs::read(module("cpu-burst")).unwrap(), "{reference}");
    }
}

//! Checks the documentation. Needs the programs that `make build` builds, and no root.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::Command;

use qosm_book::{Annotation, Checker, Fence, Finding, Page, Programs, Repository, links};
use serde::de::DeserializeOwned;
use serde_json::Value;

fn pages() -> Vec<Page> {
    let pages = Repository::here().pages().unwrap();
    assert!(pages.len() > 15, "these are not all pages: {}", pages.len());
    pages
}

fn page(path: &str) -> Page {
    pages().into_iter().find(|page| page.path == path).expect("the page is there")
}

#[track_caller]
fn none(findings: &[Finding]) {
    let mut text = String::new();
    for finding in findings {
        writeln!(text, "{finding}").unwrap();
    }
    assert!(findings.is_empty(), "{} findings:\n{text}", findings.len());
}

#[test]
fn every_block_holds() {
    let programs = Programs::find().unwrap_or_else(|missing| unreachable!("{missing}"));
    let checker = Checker::new(Repository::here(), programs).unwrap();
    none(&pages().iter().flat_map(|page| checker.check(page)).collect::<Vec<_>>());
}

/// `make manuals` writes these pages.
#[test]
fn the_reference_of_the_commands_is_what_the_programs_say() {
    let programs = Programs::find().unwrap_or_else(|missing| unreachable!("{missing}"));
    for (program, path) in [(&programs.qosm, "docs/cli.md"), (&programs.qosm_policy, "docs/cli-policy.md")] {
        let said = Command::new(program).arg("manual").output().unwrap();
        assert!(said.status.success(), "{said:?}");
        let is_same = String::from_utf8(said.stdout).unwrap() == Repository::here().text(path).unwrap();
        assert!(is_same, "{path} is of another version: run `make manuals`");
    }
}

#[test]
fn every_link_leads_somewhere() {
    none(&links::check(&Repository::here(), &pages()));
}

#[test]
fn every_page_is_in_the_table_of_contents() {
    none(&links::check_summary(&pages()));
}

/// `src/lib.rs` lists the pages for doctests; a page with Rust that is missing there would not be compiled.
#[test]
fn every_page_with_rust_is_compiled() {
    let compiled = Repository::here().text("runtime/book/src/lib.rs").unwrap();
    let has_rust = |page: &&Page| {
        page.blocks
            .iter()
            .any(|block| matches!(&block.fence, Fence::Info(info) if Annotation::parse(info) == Ok(Annotation::Rust)))
    };
    for page in pages().iter().filter(has_rust) {
        let named = format!("#[doc = include_str!(\"../../../{}\")]", page.path);
        assert!(
            compiled.contains(&named),
            "{} has blocks of Rust: add `{named}` to runtime/book/src/lib.rs",
            page.path
        );
    }
}

/// The fields of a type, from the error that it returns for an unknown field.
fn fields<T: DeserializeOwned>() -> Vec<String> {
    const NONE: &str = "no field is called so";
    let nobody = Value::Object([(NONE.to_owned(), Value::Null)].into_iter().collect());
    let error = serde_json::from_value::<T>(nobody).map(|_| ()).expect_err("unknown fields are errors").to_string();
    let (_, known) = error.split_once("expected").expect("serde names the fields that there are");
    let fields: Vec<_> = known.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    assert!(!fields.is_empty(), "{error}");
    fields
}

/// The rows of the tables below a heading, by the name in their first column.
#[track_caller]
fn rows(page: &Page, heading: &str) -> BTreeMap<String, Vec<String>> {
    let section = page.section(heading).unwrap_or_else(|| unreachable!("{} has no heading `{heading}`", page.path));
    // A subheading starts another table.
    let section = section.split("\n#").next().unwrap_or_default();
    let cells = |line: &str| Some(line.strip_prefix("| ")?.split(" | ").map(str::to_owned).collect::<Vec<_>>());
    let name = |cells: &Vec<String>| cells.first()?.split('`').nth(1).map(str::to_owned);
    section.lines().filter_map(cells).filter_map(|cells| Some((name(&cells)?, cells))).collect()
}

/// The names in the first column of the tables below a heading.
#[track_caller]
fn first_column(page: &Page, heading: &str) -> Vec<String> {
    rows(page, heading).into_keys().collect()
}

#[test]
fn every_field_of_the_agents_file_is_documented() {
    use qosm_agent::config::{
        AgentConfig, DriftConfig, EvictionRails, GuardRails, ModuleVerification, NriConfig, PageMigrationConfig,
        PolicyConfig, ResctrlConfig, SwapConfig,
    };
    use qosm_registry::trust::{TrustKey, TrustRule};
    use qosm_registry::{HostSettings, RegistryLimits, RegistrySettings};
    let page = page("docs/configuration.md");
    for (heading, fields) in [
        ("The file", fields::<AgentConfig>()),
        ("policies", fields::<PolicyConfig>()),
        ("policies[].verification", fields::<ModuleVerification>()),
        ("guardRails", fields::<GuardRails>()),
        ("guardRails.evictions", fields::<EvictionRails>()),
        ("drift", fields::<DriftConfig>()),
        ("pageMigration", fields::<PageMigrationConfig>()),
        ("resctrl", fields::<ResctrlConfig>()),
        ("swaps", fields::<SwapConfig>()),
        ("nri", fields::<NriConfig>()),
        ("registries", fields::<RegistrySettings>()),
        ("registries.hosts", fields::<HostSettings>()),
        ("registries.verification", fields::<TrustRule>()),
        ("keys", fields::<TrustKey>()),
        ("registries.limits", fields::<RegistryLimits>()),
    ] {
        let mut fields = fields;
        fields.sort();
        assert_eq!(first_column(&page, heading), fields, "the table below `{heading}` in {}", page.path);
    }
}

#[test]
fn every_field_of_a_case_is_documented() {
    use qosm_sdk::testing::{Case, ContainerFacts, NodeFacts, PodDescription, TickFacts};
    let page = page("docs/cases.md");
    for (heading, fields) in [
        ("A case", fields::<Case>()),
        ("The node", fields::<NodeFacts>()),
        ("A pod", fields::<PodDescription>()),
        ("A container", fields::<ContainerFacts>()),
        ("A tick", fields::<TickFacts>()),
    ] {
        let mut fields = fields;
        fields.sort();
        assert_eq!(first_column(&page, heading), fields, "the tables below `{heading}` in {}", page.path);
    }
}

/// The policy has no `protocol`, so that without `all-pods` it sets nothing.
#[test]
fn the_first_policy_in_rego_is_granted_what_it_declares() {
    let page = Repository::here().text("docs/rego.md").unwrap();
    let list = |start: &str, end: char| -> Vec<String> {
        let (_, rest) = page.split_once(start).expect("the page has it");
        let (list, _) = rest.split_once(end).expect("the list ends");
        list.split(',').map(|grant| grant.trim().to_owned()).collect()
    };
    let declared = list("grants: [", ']');
    assert_eq!(declared, ["memory-protection", "all-pods"]);
    assert_eq!(list("--grant batch-memory=", ' '), declared);
}

#[test]
fn every_metric_is_documented() {
    let mut metrics: Vec<String> = qosm_agent::Metrics::default().names().to_vec();
    metrics.sort();
    assert_eq!(first_column(&page("docs/metrics.md"), "Metrics"), metrics);
}

#[test]
fn every_interface_is_documented() {
    let mut interfaces: Vec<_> = qosm_engine::Interface::ALL.iter().map(ToString::to_string).collect();
    interfaces.sort();
    assert_eq!(first_column(&page("docs/concepts.md"), "An import is a permission"), interfaces);
}

/// In pages, alerts and the dashboard. A graph of a metric that no agent exports stays empty.
#[test]
fn every_metric_that_is_spoken_of_is_there() {
    let repository = Repository::here();
    let metrics = qosm_agent::Metrics::default().names().to_vec();
    // Names of crates look like names of metrics.
    let crates = ["qosm_agent", "qosm_book", "qosm_cluster", "qosm_engine", "qosm_model", "qosm_registry", "qosm_sdk"];
    let is_there = |name: &str| {
        let of_histogram = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
        let is_metric = |name: &str| metrics.iter().any(|metric| metric == name);
        // `qosm_numa` stands for all metrics with this prefix.
        let begins = |metric: &String| metric.strip_prefix(name).is_some_and(|rest| rest.starts_with('_'));
        is_metric(name) || of_histogram.is_some_and(is_metric) || metrics.iter().any(begins) || crates.contains(&name)
    };
    let mut files = repository.files("docs", ".md").unwrap();
    files.extend(repository.files("deploy/helm/qosm", ".yaml").unwrap());
    files.extend(repository.files("deploy/helm/qosm/dashboards", ".json").unwrap());
    let mut unknown = Vec::new();
    for file in files {
        let text = repository.text(&file).unwrap();
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let wrong = words.filter(|word| word.starts_with("qosm_") && !is_there(word.trim_end_matches('_')));
        unknown.extend(wrong.map(|word| format!("{file}: {word}")));
    }
    assert!(unknown.is_empty(), "{unknown:#?}");
}

/// The book lists the same fields, defaults and ranges as the module's schema.
#[test]
fn every_parameter_of_the_default_policies_is_documented() {
    let programs = Programs::find().unwrap_or_else(|missing| unreachable!("{missing}"));
    let policies = [
        "cpu-burst",
        "memory-qos",
        "memory-locality",
        "llc-mba",
        "be-suppress",
        "cpu-identity",
        "cpu-topology",
        "eviction",
        "node-memory",
        "block-io",
        "reclaimed-resources",
    ];
    for policy in policies {
        let mut inspect = Command::new(&programs.qosm);
        inspect.args(["policy", "inspect", policy, "-o", "json"]).env("QOSM_MODULE_DIR", &programs.modules);
        let output = inspect.output().unwrap();
        assert!(output.status.success(), "{policy}: {output:?}");
        let module: Value = serde_json::from_slice(&output.stdout).unwrap();
        let page = page(&format!("docs/policies/{policy}.md"));
        for (heading, schema) in [("What a pod may ask", "schema"), ("What the operator may set", "configSchema")] {
            // A policy without pod configuration has no such table.
            let Some(fields) = module[schema]["properties"].as_object() else {
                assert_eq!(schema, "schema", "{policy} takes a configuration of its own");
                continue;
            };
            let rows = rows(&page, heading);
            let known: Vec<_> = fields.keys().collect();
            assert_eq!(rows.keys().collect::<Vec<_>>(), known, "the table below `{heading}` in {}", page.path);
            for (name, field) in fields {
                let (row, place) = (&rows[name], format!("{}: `{heading}`, row `{name}`", page.path));
                if let Some(default) = field.get("default") {
                    let documented = row[1].trim_matches('`');
                    assert_eq!(
                        documented,
                        default.as_str().map_or_else(|| default.to_string(), str::to_owned),
                        "{place}"
                    );
                }
                for bound in ["minimum", "maximum"].iter().filter_map(|bound| field.get(bound)?.as_i64()) {
                    // The bounds of the integer type are not a documented range.
                    let is_bound = !matches!(bound, i64::MIN | i64::MAX);
                    let has =
                        row[2].split(|c: char| !c.is_ascii_digit() && c != '-').any(|word| word == bound.to_string());
                    assert!(has || !is_bound, "{place}: {bound} is not documented");
                }
            }
        }
    }
}

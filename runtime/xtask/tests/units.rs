//! The systemd unit in the documentation is equal to the one in `deploy`, and it is hardened.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

const UNIT: &str = "deploy/systemd/qosm.service";
/// Maximum exposure in tenths: below 3.0.
const MAX_EXPOSED: &str = "29";

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_documentation_shows_the_unit_as_it_is() {
    let page = fs::read_to_string(repository().join("docs/host.md")).unwrap();
    let (_, after) = page.split_once("```ini,systemd\n").unwrap();
    let (shown, _) = after.split_once("```\n").unwrap();
    assert_eq!(shown, fs::read_to_string(repository().join(UNIT)).unwrap());
}

#[test]
fn systemd_rates_the_unit_below_three() {
    let output = Command::new("systemd-analyze")
        .args(["security", "--offline=true", "--no-pager", "--threshold", MAX_EXPOSED])
        .arg(repository().join(UNIT))
        .output();
    let Ok(output) = output else { panic!("systemd-analyze is missing: run `cargo xtask setup`, or install systemd") };
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(told.contains("Overall exposure level"), "{told}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{told}");
}

//! The sample of `docs/writing-a-runbook.md`, which the scenarios take their driver
//! script from.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::PHAROS;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Each file of the page is a line with its name and then a block.
#[test]
fn the_page_shows_the_files_of_the_sample_as_they_are() {
    let page = std::fs::read_to_string(root().join("docs/writing-a-runbook.md")).unwrap();
    for name in
        ["pharos.toml", "runbooks/web.yaml", "runbooks/orders.yaml", "runbooks/evacuate-east.yaml"]
    {
        let file = std::fs::read_to_string(root().join("samples/promote").join(name)).unwrap();
        let kind = name.rsplit('.').next().unwrap();
        let block = format!("\n`{name}`\n```{kind}\n{file}```\n");
        assert!(page.contains(&block), "{name} is another on the page");
    }
}

#[test]
fn the_runbooks_of_the_sample_pass_the_check_without_a_warning() {
    let checked = Command::new(PHAROS)
        .args(["runbook", "check", "samples/promote/runbooks"])
        .current_dir(root())
        .output()
        .unwrap();
    let complaint = String::from_utf8(checked.stderr).unwrap();
    let text = String::from_utf8(checked.stdout).unwrap();
    assert!(checked.status.success(), "{text}{complaint}");
    assert_eq!(
        (text.as_str(), complaint.as_str()),
        ("3 files are good; evacuations of east\n", "")
    );
}

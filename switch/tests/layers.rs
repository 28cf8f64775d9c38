// SPDX-License-Identifier: Apache-2.0
//! The modules are layers, as the table in `src/lib.rs` lists them: none uses one that comes after it.

use std::fs;
use std::path::{Path, PathBuf};

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// The words between backquotes in the second column of the table.
fn layers() -> Vec<String> {
    let text = fs::read_to_string(source().join("lib.rs")).unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("//! | ")).skip(2);
    let columns = rows.map(|row| row.split(" | ").nth(1).unwrap().to_string());
    columns.flat_map(|column| column.split('`').skip(1).step_by(2).map(String::from).collect::<Vec<_>>()).collect()
}

fn files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files(&path, found),
            false if path.extension().is_some_and(|extension| extension == "rs") => found.push(path),
            false => {}
        }
    }
}

/// The modules of this crate that a file uses, but for its tests.
fn used(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap();
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let parts = lines.flat_map(|line| line.split("crate::").skip(1));
    let word = |part: &str| part.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    parts.map(word).collect()
}

#[test]
fn no_module_uses_one_that_comes_after_it() {
    let layers = layers();
    let place = |module: &str| layers.iter().position(|layer| layer == module);
    let mut found = Vec::new();
    files(&source(), &mut found);
    let mut edges = 0;
    for file in found.iter().filter(|file| !file.ends_with("lib.rs") && !file.ends_with("gnmi/tests.rs")) {
        let inside = file.strip_prefix(source()).unwrap();
        let own = inside.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs");
        let at = place(own).unwrap_or_else(|| panic!("{own} is missing in the table of src/lib.rs"));
        for module in used(file) {
            let other =
                place(&module).unwrap_or_else(|| panic!("{}: crate::{module} {{a, b}}: one a line", file.display()));
            assert!(other <= at, "{} uses {module}, which comes after {own}", inside.display());
            edges += usize::from(other < at);
        }
    }
    assert!(edges > 100, "this looks for what is no longer written so: {edges} uses found");
}

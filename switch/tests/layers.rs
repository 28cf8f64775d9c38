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

/// The code of a file, but for its tests and comments.
fn code(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap();
    let (before, tests) = text.split_once("#[cfg(test)]\nmod tests {\n").unwrap_or((&text, ""));
    let after = tests.split_once("\n}\n").map_or("", |(_, after)| after);
    let lines = before.lines().chain(after.lines()).filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// The modules of this crate that code names.
fn used(code: &str) -> Vec<String> {
    let word = |part: &str| part.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    code.split("crate::").skip(1).map(word).collect()
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
        let code = code(file);
        // Other layers are named from `crate::` on, so that none is overlooked below.
        let outwards =
            if inside.iter().count() == 1 || inside.ends_with("mod.rs") { "super::" } else { "super::super::" };
        assert!(!code.contains(outwards), "{} names with {outwards} what `crate::` names", inside.display());
        for module in used(&code) {
            let other =
                place(&module).unwrap_or_else(|| panic!("{}: crate::{module} {{a, b}}: one a line", file.display()));
            assert!(other <= at, "{} uses {module}, which comes after {own}", inside.display());
            edges += usize::from(other < at);
        }
    }
    assert!(edges > 100, "this looks for what is no longer written so: {edges} uses found");
}

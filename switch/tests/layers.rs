// SPDX-License-Identifier: Apache-2.0
//! The modules are layers, as the table in `src/lib.rs` lists them: none uses one that comes after it. Within a folder
//! they form no circle.

use std::collections::{BTreeMap, BTreeSet};
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

fn word(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// The modules of this crate that code names.
fn used(code: &str) -> Vec<String> {
    code.split("crate::").skip(1).map(word).collect()
}

/// The words that code names behind `prefix`, one by one or in braces.
fn named(code: &str, prefix: &str) -> Vec<String> {
    let words = |rest: &str| match rest.strip_prefix('{') {
        Some(list) => list.split('}').next().unwrap().split(',').map(|part| word(part.trim())).collect(),
        None => vec![word(rest)],
    };
    code.split(prefix).skip(1).flat_map(words).collect()
}

/// The modules of a folder, each with those of the folder that it names.
fn siblings(folder: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let (mut found, mut uses) = (Vec::new(), BTreeMap::<String, BTreeSet<String>>::new());
    files(folder, &mut found);
    for file in &found {
        let inside = file.strip_prefix(folder).unwrap();
        let own = inside.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs").to_string();
        if ["mod", "lib", "tests"].contains(&own.as_str()) {
            continue;
        }
        let code = code(file);
        let mut names = named(&code, &format!("crate::{}::", folder.file_name().unwrap().display()));
        if inside.iter().count() == 1 {
            names.extend(named(&code, "super::"));
        }
        uses.entry(own).or_default().extend(names);
    }
    let modules: BTreeSet<String> = uses.keys().cloned().collect();
    for (module, used) in &mut uses {
        used.retain(|name| name != module && modules.contains(name));
    }
    uses
}

#[test]
fn the_modules_of_a_folder_form_no_circle() {
    // Their constructs contain each other: an index is an expression, and a stack of headers stands in code.
    const INHERENT: [(&str, &[&str]); 2] =
        [("loader", &["expr", "operands"]), ("state", &["code", "headers", "select"])];
    let mut folders: Vec<PathBuf> = fs::read_dir(source()).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.retain(|path| path.is_dir());
    folders.push(Path::new(env!("CARGO_MANIFEST_DIR")).join("reference/src"));
    let mut edges = 0;
    for folder in folders {
        let mut uses = siblings(&folder);
        edges += uses.values().map(BTreeSet::len).sum::<usize>();
        // A module that names none of the others, or is named by none of them, is in no circle.
        loop {
            let left: BTreeSet<String> = uses.keys().cloned().collect();
            let named: BTreeSet<String> = uses.values().flatten().cloned().collect();
            uses.retain(|module, used| {
                used.retain(|name| left.contains(name));
                !used.is_empty() && named.contains(module)
            });
            if uses.len() == left.len() {
                break;
            }
        }
        let name = folder.file_name().unwrap().to_str().unwrap();
        let expected = INHERENT.iter().find(|(folder, _)| *folder == name).map_or(&[][..], |(_, modules)| modules);
        assert_eq!(uses.keys().collect::<Vec<_>>(), expected, "modules of {} that form a circle", folder.display());
    }
    assert!(edges > 200, "this looks for what is no longer written so: {edges} uses found");
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

// SPDX-License-Identifier: Apache-2.0
//! The modules of each folder form no circle, those of a crate's root neither. What crates may use of each other, cargo
//! keeps.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const CRATES: [&str; 7] = ["core", "dataplane", "p4runtime", "gnmi", "thrift", "cli", "reference"];

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

/// The words that code names behind `prefix`, one by one or in braces.
fn named(code: &str, prefix: &str) -> Vec<String> {
    let words = |rest: &str| match rest.strip_prefix('{') {
        Some(list) => list.split('}').next().unwrap().split(',').map(|part| word(part.trim())).collect(),
        None => vec![word(rest)],
    };
    code.split(prefix).skip(1).flat_map(words).collect()
}

/// The modules of a folder, each with those of the folder that it names. `prefix`: how others name what is in it.
fn siblings(folder: &Path, prefix: &str) -> BTreeMap<String, BTreeSet<String>> {
    let (mut found, mut uses) = (Vec::new(), BTreeMap::<String, BTreeSet<String>>::new());
    files(folder, &mut found);
    for file in &found {
        let inside = file.strip_prefix(folder).unwrap();
        let own = inside.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs").to_string();
        if ["mod", "lib", "main", "bin", "tests"].contains(&own.as_str()) {
            continue;
        }
        let code = code(file);
        let mut names = named(&code, prefix);
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
        [("core/src/loader", &["expr", "operands"]), ("core/src/state", &["code", "headers", "select"])];
    let switch = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut folders: Vec<(PathBuf, String)> = Vec::new();
    for source in CRATES.map(|name| switch.join(name).join("src")) {
        let inner = fs::read_dir(&source).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
        folders.extend(inner.map(|path| (path.clone(), format!("crate::{}::", path.file_name().unwrap().display()))));
        folders.push((source, "crate::".into()));
    }
    let mut edges = 0;
    for (folder, prefix) in folders {
        let mut uses = siblings(&folder, &prefix);
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
        let name = folder.strip_prefix(&switch).unwrap().to_str().unwrap();
        let expected = INHERENT.iter().find(|(folder, _)| *folder == name).map_or(&[][..], |(_, modules)| modules);
        assert_eq!(uses.keys().collect::<Vec<_>>(), expected, "modules of {name} that form a circle");
    }
    assert!(edges > 250, "this looks for what is no longer written so: {edges} uses found");
}

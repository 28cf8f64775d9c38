// SPDX-License-Identifier: Apache-2.0
//! Compiles a crate's `bpf/*.bpf.c` with clang into skeletons that it includes: `bpf/vegas.bpf.c` gives `$OUT_DIR/vegas.skel.rs`
//! and the object that it embeds, `$OUT_DIR/vegas.bpf.o`. Headers are beside it or beside this file's. `algorithms/*.c`, which
//! `hosts` has, are compiled and linked.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use libbpf_cargo::SkeletonBuilder;

fn main() {
    for folder in
        ["bpf", "../bpf", "algorithms", "../algorithms"].into_iter().filter(|folder| Path::new(folder).exists())
    {
        println!("cargo::rerun-if-changed={folder}");
    }
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for source in files("bpf") {
        let name = source.file_name().and_then(OsStr::to_str).expect("names in bpf/ are ASCII");
        if let Some(stem) = name.strip_suffix(".bpf.c") {
            compile(&source, &out.join(format!("{stem}.bpf.o")), &out.join(format!("{stem}.skel.rs")));
        }
    }
    if Path::new("algorithms").exists() {
        let sources = files("algorithms").into_iter().filter(|file| file.extension() == Some(OsStr::new("c")));
        cc::Build::new().files(sources).warnings_into_errors(true).extra_warnings(true).compile("algorithms");
    }
}

fn files(folder: &str) -> Vec<PathBuf> {
    let mut found: Vec<_> = std::fs::read_dir(folder).expect(folder).map(|e| e.expect(folder).path()).collect();
    found.sort();
    found
}

fn compile(source: &Path, object: &Path, skeleton: &Path) {
    // mcpu=v3: 32-bit jumps and arithmetic, known to every kernel since 5.1.
    let flags = ["-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", "-mcpu=v3", "-I", "bpf", "-I", "../bpf"];
    if let Err(e) = SkeletonBuilder::new().source(source).obj(object).clang_args(flags).build_and_generate(skeleton) {
        eprintln!("{}: {e:#}", source.display());
        eprintln!("clang, libelf and zlib are needed: apt-get install clang libelf-dev zlib1g-dev pkg-config");
        std::process::exit(1);
    }
}

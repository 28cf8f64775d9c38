// SPDX-License-Identifier: Apache-2.0
//! Compiles a crate's `bpf/*.bpf.c` with clang into skeletons that it includes: `bpf/vegas.bpf.c` gives `$OUT_DIR/vegas.skel.rs`
//! and the object that it embeds, `$OUT_DIR/vegas.bpf.o`. Headers are beside it or beside this file's.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use libbpf_cargo::SkeletonBuilder;

fn main() {
    for folder in ["bpf", "../bpf"].into_iter().filter(|folder| Path::new(folder).exists()) {
        println!("cargo::rerun-if-changed={folder}");
    }
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let mut sources: Vec<_> = std::fs::read_dir("bpf").expect("bpf/").map(|e| e.expect("bpf/").path()).collect();
    sources.sort();
    for source in sources {
        let name = source.file_name().and_then(OsStr::to_str).expect("names in bpf/ are ASCII");
        if let Some(stem) = name.strip_suffix(".bpf.c") {
            compile(&source, &out.join(format!("{stem}.bpf.o")), &out.join(format!("{stem}.skel.rs")));
        }
    }
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

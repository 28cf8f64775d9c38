// SPDX-License-Identifier: Apache-2.0
//! Every input that fuzzing has kept, through what its target does: see switch/fuzz/README.md.

#[path = "../../dataplane/tests/common/mod.rs"]
mod common;
mod targets;

use targets::TARGETS;

#[test]
fn kept_inputs_do_no_harm() {
    for (name, run) in TARGETS {
        let directory = format!("{}/../testdata/corpus/{name}", env!("CARGO_MANIFEST_DIR"));
        let mut count = 0;
        for file in std::fs::read_dir(&directory).unwrap_or_else(|e| panic!("{directory}: {e}")) {
            run(&std::fs::read(file.unwrap().path()).unwrap());
            count += 1;
        }
        assert!(count > 0, "{directory} is empty");
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The compiled form against the reference on programs that nobody wrote: expressions over fields of any width,
//! actions, jumps, registers, hashes, tables of every kind, with entries and packets of their own. `APSWITCH_CASES=100`
//! makes a hundred times as many programs.

use crate::common::generate::Generator;
use crate::common::guess::Seen;
use crate::common::pair::{PORTS, Pair, cases};
use apswitch_dataplane::control::*;
use fastrand::Rng;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

const PACKETS: usize = 20;

fn frame(rng: &mut Rng) -> Vec<u8> {
    let extreme = rng.bool();
    let byte = |rng: &mut Rng| if extreme { [0, 0xff, 0x80, 1][rng.usize(..4)] } else { rng.u8(..) };
    (0..rng.usize(..160)).map(|_| byte(rng)).collect()
}

#[test]
fn generated_programs() {
    // Failures are made again from the seed; there is no file to keep.
    let config = Config { cases: cases(600), failure_persistence: None, ..Config::default() };
    let strategy = (prop::collection::vec(any::<u32>(), 0..1500), any::<u64>());
    let mut runner =
        TestRunner::new_with_rng(config, prop::test_runner::TestRng::deterministic_rng(Default::default()));
    let result = runner.run(&strategy, |(numbers, seed)| {
        let json = Generator::new(&numbers).program().to_string();
        let mut pair = Pair::new(json.as_bytes()).map_err(|e| TestCaseError::fail(format!("{e}\n{json}")))?;
        let mut rng = Rng::with_seed(seed);
        let mut seen = Seen::default();
        let program = pair.program.clone();
        for round in 0..2 {
            for _ in 0..PACKETS {
                let (port, frame) = (rng.u16(PORTS), frame(&mut rng));
                let (compiled, interpreted) = pair.send(port, &frame);
                if compiled != interpreted {
                    let trace = pair.trace(port, &frame);
                    return Err(TestCaseError::fail(format!("{compiled:02x?}\n{interpreted:02x?}\n{trace}\n{json}")));
                }
                seen.watch(&mut pair, port, &frame);
            }
            if round == 0 {
                let tables = (0..program.tables.len()).map(TableId);
                let entries = tables.flat_map(|table| std::iter::repeat_n(table, 20));
                let updates: Vec<_> = entries.filter_map(|table| seen.entry(&program, table, &mut rng)).collect();
                pair.write(updates.into_iter());
            }
        }
        pair.same_state();
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

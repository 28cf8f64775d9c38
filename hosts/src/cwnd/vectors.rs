// SPDX-License-Identifier: Apache-2.0
//! Inputs of [`super::model`] with what it makes of them, in tests/cwnd_vectors.json: what others implement of it is tested on
//! the same (topologies/ns3/transports). `RENEW=1 cargo test cwnd::vectors` writes them anew.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::model::{Bound, Capacity, Control, path_rtt, ratio};

/// Return the next number below `end` of a fixed sequence (Knuth's MMIX).
fn next(state: &mut u64, end: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % end
}

fn name(bound: Bound) -> &'static str {
    match bound {
        Bound::None => "none",
        Bound::One => "one",
        Bound::Ideal => "ideal",
    }
}

fn windows(state: &mut u64) -> Vec<Value> {
    (0..100)
        .map(|_| {
            let capacity = Capacity {
                mbit_per_s: 1.0 + next(state, 600) as f64 / 10.0,
                exponent: -(next(state, 15) as f64) / 10.0,
            };
            let (terminals, connections) = (next(state, 12) as usize, next(state, 4) as usize);
            let rtt = 1000 + next(state, 15_000_000) as u32;
            let window = capacity.ideal_window(terminals, connections, rtt);
            json!({
                "mbit_per_s": capacity.mbit_per_s, "exponent": capacity.exponent, "terminals": terminals,
                "connections": connections, "rtt_us": rtt, "window": window,
            })
        })
        .collect()
}

fn ratios(state: &mut u64) -> Vec<Value> {
    (0..100)
        .map(|_| {
            let (min, more) = (next(state, 300_000) as u32, next(state, 400_000) as u32);
            let (rtt, window) = (min + more, 1 + next(state, 3) as u32);
            let path = path_rtt(rtt, min, window);
            json!({
                "rtt_us": rtt, "min_rtt_us": min, "window": window, "path_rtt_us": path, "ratio": ratio(path, min),
            })
        })
        .collect()
}

/// Make connections whose ratio is read every half second, and at uneven times.
fn controls(state: &mut u64) -> Vec<Value> {
    let start = Instant::now();
    (0..40)
        .map(|row| {
            let (mut control, mut us) = (Control::default(), 0);
            let (mut times, mut ratios, mut bounds) = (vec![], vec![], vec![]);
            for _ in 0..40 {
                us += if row % 2 == 0 { 500_000 } else { 1 + next(state, 1_500_000) };
                let ratio = next(state, if row % 4 < 2 { 70 } else { 200 }) as f64 / 10.0;
                bounds.push(name(control.step(start + Duration::from_micros(us), ratio)));
                times.push(us);
                ratios.push(ratio);
            }
            json!({"us": times, "ratios": ratios, "bounds": bounds})
        })
        .collect()
}

#[test]
fn those_that_are_kept_are_this_models() {
    let mut state = 2;
    let made = json!({
        "windows": windows(&mut state), "ratios": ratios(&mut state), "controls": controls(&mut state),
    });
    let made = format!("{made}\n");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cwnd_vectors.json");
    if std::env::var_os("RENEW").is_some() {
        std::fs::write(&file, &made).unwrap();
    }
    let kept = std::fs::read_to_string(&file).unwrap();
    assert!(kept == made, "renew them: RENEW=1 cargo test cwnd::vectors");
}

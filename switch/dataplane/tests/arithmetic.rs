// SPDX-License-Identifier: Apache-2.0
//! Every operator against the same calculation in Rust, on random and extreme operands.

mod common;

use common::lab::Lab;
use common::program;
use fastrand::Rng;

struct Operands {
    shift: u8,
    a16: u16,
    b16: u16,
    i16: i16,
    j16: i16,
    a64: u64,
    b64: u64,
    a128: u128,
    b128: u128,
    nibble: u8,
    twelve: u16,
}

#[derive(Debug, Default, PartialEq)]
struct Results {
    r16: u16,
    s16: i16,
    r64: u64,
    r128: u128,
    flag: bool,
}

impl Operands {
    fn random(rng: &mut Rng) -> Operands {
        /// Extremes are as likely as everything else.
        fn value(rng: &mut Rng) -> u128 {
            match rng.u8(..5) {
                0 => 0,
                1 => u128::MAX,
                2 => 1 << rng.u32(..128),
                3 => (1 << rng.u32(..128)) - 1,
                _ => rng.u128(..),
            }
        }
        Operands {
            shift: if rng.bool() { rng.u8(..) } else { rng.u8(..18) },
            a16: value(rng) as u16,
            b16: value(rng) as u16,
            i16: value(rng) as i16,
            j16: value(rng) as i16,
            a64: value(rng) as u64,
            b64: value(rng) as u64,
            a128: value(rng),
            b128: value(rng),
            nibble: rng.u8(..16),
            twelve: rng.u16(..4096),
        }
    }

    fn frame(&self, op: u8) -> Vec<u8> {
        let mut frame = vec![op, self.shift];
        for value in [self.a16, self.b16, self.i16 as u16, self.j16 as u16] {
            frame.extend(value.to_be_bytes());
        }
        frame.extend(self.a64.to_be_bytes());
        frame.extend(self.b64.to_be_bytes());
        frame.extend(self.a128.to_be_bytes());
        frame.extend(self.b128.to_be_bytes());
        frame.extend((u16::from(self.nibble) << 12 | self.twelve).to_be_bytes());
        frame
    }

    /// Returns the answers of testdata/programs/arithmetic.p4.
    fn expected(&self, op: u8) -> Results {
        let Operands { a16, b16, i16, j16, a64, b64, a128, b128, .. } = *self;
        let shift = self.shift as u32;
        let mut r = Results::default();
        match op {
            0 => (r.r16, r.r64, r.r128) = (a16.wrapping_add(b16), a64.wrapping_add(b64), a128.wrapping_add(b128)),
            1 => (r.r16, r.r64, r.r128) = (a16.wrapping_sub(b16), a64.wrapping_sub(b64), a128.wrapping_sub(b128)),
            2 => (r.r16, r.r64, r.r128) = (a16.wrapping_mul(b16), a64.wrapping_mul(b64), a128.wrapping_mul(b128)),
            3 => {
                (r.r16, r.r64, r.r128) = (a16.saturating_add(b16), a64.saturating_add(b64), a128.saturating_add(b128));
                r.s16 = i16.saturating_add(j16);
            }
            4 => {
                (r.r16, r.r64, r.r128) = (a16.saturating_sub(b16), a64.saturating_sub(b64), a128.saturating_sub(b128));
                r.s16 = i16.saturating_sub(j16);
            }
            5 => {
                r.r16 = a16.checked_shl(shift).unwrap_or(0);
                r.r64 = a64.checked_shl(shift).unwrap_or(0);
                r.r128 = a128.checked_shl(shift).unwrap_or(0);
                r.s16 = i16.checked_shl(shift).unwrap_or(0);
            }
            6 => {
                r.r16 = a16.checked_shr(shift).unwrap_or(0);
                r.r64 = a64.checked_shr(shift).unwrap_or(0);
                r.r128 = a128.checked_shr(shift).unwrap_or(0);
                r.s16 = i16 >> shift.min(15);
            }
            7 => (r.r16, r.r64, r.r128, r.s16) = (a16 & b16, a64 | b64, a128 ^ b128, !i16),
            8 => (r.r16, r.r64, r.r128, r.s16) = (!a16, a64.wrapping_neg(), !a128, i16.wrapping_neg()),
            9 => (r.s16, r.r16) = (i16.wrapping_add(j16), i16.wrapping_sub(j16) as u16),
            10 => {
                r.s16 = i16.wrapping_mul(j16);
                r.r64 = i16 as u16 as u64;
                r.r128 = u128::from(a64) << 64 | u128::from(b64);
            }
            11 => {
                r.r16 = u16::from(self.nibble) << 12 | self.twelve;
                r.r64 = (a128 >> 36) as u64;
                r.r128 = u128::from(a64) << 7;
            }
            12 => r.flag = a16 < b16,
            13 => r.flag = i16 < j16,
            14 => r.flag = a128 < b128,
            15 => r.flag = a64 >= b64,
            16 => r.flag = a128 == b128 || a64 != b64 && a16 <= b16,
            17 => (r.r16, r.s16) = (a16.max(b16), i16.min(j16)),
            18 => (r.r64, r.r128) = ((a128 as u64).wrapping_add(a16 as u64), u128::from(a64) * 3),
            19 => (r.s16, r.r16) = (i16 as i8 as i16, self.nibble as u16),
            _ => unreachable!(),
        }
        r
    }
}

fn results(frame: &[u8]) -> Results {
    Results {
        r16: u16::from_be_bytes(frame[0..2].try_into().unwrap()),
        s16: i16::from_be_bytes(frame[2..4].try_into().unwrap()),
        r64: u64::from_be_bytes(frame[4..12].try_into().unwrap()),
        r128: u128::from_be_bytes(frame[12..28].try_into().unwrap()),
        flag: frame[28] == 1,
    }
}

#[test]
fn operators_calculate_as_p4_says() {
    let lab = Lab::new(program("arithmetic"), &[None, None]);
    let mut rng = Rng::with_seed(1);
    for _ in 0..500 {
        for op in 0..20 {
            let operands = Operands::random(&mut rng);
            let frame = operands.frame(op);
            lab.send(1, &frame);
            let answer = lab.receive(2);
            assert_eq!(answer.len(), 29);
            assert_eq!(results(&answer), operands.expected(op), "operator {op} on {frame:02x?}");
        }
    }
}

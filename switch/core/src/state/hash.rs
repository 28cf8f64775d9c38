// SPDX-License-Identifier: Apache-2.0
//! Checksums and hashes over header fields and payload.

use crc::{CRC_16_ARC, CRC_16_IBM_3740, CRC_32_ISO_HDLC, Crc};

use super::bits::BitWriter;
use super::code::{Algorithm, Calculation, FieldRef, HashInput};
use super::op::{REGISTERS, Registers};
use super::wire::HeaderLayout;
use crate::value::Value;

const CRC16: Crc<u16> = Crc::<u16>::new(&CRC_16_ARC);
const CRC32: Crc<u32> = Crc::<u32>::new(&CRC_32_ISO_HDLC);
const CRC_CCITT: Crc<u16> = Crc::<u16>::new(&CRC_16_IBM_3740);

/// The value of a field, without the copies of a sign.
#[inline]
pub fn read(place: FieldRef, regs: &Registers) -> Value {
    let first = place.reg as usize % REGISTERS;
    if place.width <= 64 {
        (regs[first] & place.mask()).into()
    } else {
        Value::from_words(&regs[first..first + place.words()])
    }
}

/// `scratch` keeps its memory from call to call.
pub fn calculate(
    calculation: &Calculation,
    headers: &[HeaderLayout],
    regs: &Registers,
    payload: &[u8],
    scratch: &mut Vec<u8>,
    random: impl FnOnce() -> u64,
) -> u64 {
    scratch.clear();
    let mut writer = BitWriter::new(scratch);
    for input in &calculation.input {
        match input {
            HashInput::Field { place, valid } => {
                if regs[*valid as usize % REGISTERS] != 0 {
                    let first = place.reg as usize % REGISTERS;
                    writer.push(&regs[first..first + place.words()], place.width as u32);
                }
            }
            HashInput::Varbit { place, valid, length } => {
                if regs[*valid as usize % REGISTERS] != 0 {
                    let first = place.reg as usize % REGISTERS;
                    writer.push(&regs[first..first + place.words()], regs[*length as usize % REGISTERS] as u32);
                }
            }
            HashInput::Constant { words, width } => writer.push(words, *width as u32),
            HashInput::Header(header) => {
                let layout = &headers[*header as usize];
                if regs[layout.valid as usize % REGISTERS] != 0 {
                    writer.align();
                    layout.append(writer.bytes, regs);
                }
            }
            HashInput::Payload => {
                writer.align();
                writer.bytes.extend_from_slice(payload);
            }
        }
    }
    writer.align();
    match calculation.algorithm {
        Algorithm::Csum16 => internet_checksum(scratch) as u64,
        Algorithm::Xor16 => words(scratch).fold(0, |sum, word| sum ^ word) as u64,
        Algorithm::Crc16 => CRC16.checksum(scratch) as u64,
        Algorithm::Crc32 => CRC32.checksum(scratch) as u64,
        Algorithm::CrcCcitt => CRC_CCITT.checksum(scratch) as u64,
        Algorithm::Random => random(),
        Algorithm::Identity => scratch.iter().take(8).fold(0, |value, &byte| value << 8 | byte as u64),
    }
}

/// 16-bit words in network order, the last one filled with a zero.
fn words(bytes: &[u8]) -> impl Iterator<Item = u16> {
    bytes.chunks(2).map(|pair| u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]))
}

/// RFC 1071.
fn internet_checksum(bytes: &[u8]) -> u16 {
    let mut sum: u64 = words(bytes).map(u64::from).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_of_rfc_1071() {
        // Section 3: 00 01 f2 03 f4 f5 f6 f7 sum to ddf2.
        assert_eq!(internet_checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
        // An odd byte counts as the high one of a word.
        assert_eq!(internet_checksum(&[0x12]), !0x1200);
    }
}

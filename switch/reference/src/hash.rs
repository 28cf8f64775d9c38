// SPDX-License-Identifier: Apache-2.0
//! v1model's hash algorithms, bit by bit as they are defined.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// RFC 1071.
    Csum16,
    Xor16,
    Crc16,
    Crc32,
    CrcCcitt,
    Identity,
    /// Any number, whatever the input.
    Random,
}

impl Algorithm {
    /// Finds an algorithm by its name in the JSON; of the custom CRCs nobody changes the parameters.
    pub fn named(name: &str) -> Option<Algorithm> {
        Some(match name {
            "csum16" => Algorithm::Csum16,
            "xor16" => Algorithm::Xor16,
            "crc16" | "crc16_custom" => Algorithm::Crc16,
            "crc32" | "crc32_custom" => Algorithm::Crc32,
            "crcCCITT" => Algorithm::CrcCcitt,
            "identity" => Algorithm::Identity,
            "random" => Algorithm::Random,
            _ => return None,
        })
    }

    pub fn hash(self, bytes: &[u8], rng: &mut fastrand::Rng) -> u64 {
        // 16-bit words in network order, the last one filled with a zero.
        let words = bytes.chunks(2).map(|pair| u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0)));
        match self {
            Algorithm::Csum16 => {
                let sum = words.fold(0, |sum, word| (sum + word) % 0x10000 + (sum + word) / 0x10000);
                0xffff - sum
            }
            Algorithm::Xor16 => words.fold(0, |sum, word| sum ^ word),
            Algorithm::Crc16 => crc(bytes, 16, 0x8005, 0, true, 0),
            Algorithm::Crc32 => crc(bytes, 32, 0x04c1_1db7, 0xffff_ffff, true, 0xffff_ffff),
            Algorithm::CrcCcitt => crc(bytes, 16, 0x1021, 0xffff, false, 0),
            Algorithm::Random => rng.u64(..),
            Algorithm::Identity => bytes.iter().take(8).fold(0, |value, &byte| value << 8 | u64::from(byte)),
        }
    }
}

/// `reflected`: each byte begins with its lowest bit, and so does the result.
fn crc(bytes: &[u8], width: u32, polynomial: u64, start: u64, reflected: bool, end: u64) -> u64 {
    let mut rest = start;
    for &byte in bytes {
        let byte = if reflected { byte.reverse_bits() } else { byte };
        for bit in (0..8).rev() {
            let top = rest >> (width - 1) & 1 ^ u64::from(byte >> bit & 1);
            rest = (rest << 1) % (1 << width);
            if top == 1 {
                rest ^= polynomial;
            }
        }
    }
    if reflected {
        rest = rest.reverse_bits() >> (64 - width);
    }
    rest ^ end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_values_of_the_catalogues() {
        let digits = b"123456789";
        let hash = |algorithm: Algorithm, bytes: &[u8]| algorithm.hash(bytes, &mut fastrand::Rng::with_seed(1));
        assert_eq!(hash(Algorithm::Crc16, digits), 0xbb3d);
        assert_eq!(hash(Algorithm::Crc32, digits), 0xcbf4_3926);
        assert_eq!(hash(Algorithm::CrcCcitt, digits), 0x29b1);
        // RFC 1071, section 3.
        assert_eq!(hash(Algorithm::Csum16, &[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xffff - 0xddf2);
        assert_eq!(hash(Algorithm::Xor16, &[0x12, 0x34, 0x56]), 0x1234 ^ 0x5600);
        assert_eq!(hash(Algorithm::Identity, &[1, 2]), 0x0102);
    }
}

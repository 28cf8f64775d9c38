// SPDX-License-Identifier: Apache-2.0
//! Values at any bit of a row of bytes, in network order; registers hold them in 64-bit words, low word first.

/// `count` bits (1 to 64) that start at bit `at`; the caller has checked that they are there.
fn load_word(bytes: &[u8], at: usize, count: usize) -> u64 {
    let end = at + count;
    let mut value = 0u128;
    for byte in &bytes[at / 8..end.div_ceil(8)] {
        value = value << 8 | *byte as u128;
    }
    let behind = end.next_multiple_of(8) - end;
    (value >> behind) as u64 & (u64::MAX >> (64 - count))
}

/// Reads `width` bits that start at bit `at` into `words`; words above the value become 0.
pub fn load(bytes: &[u8], at: usize, width: usize, words: &mut [u64]) {
    for (index, word) in words.iter_mut().enumerate() {
        let low = 64 * index;
        *word = if low < width {
            let count = (width - low).min(64);
            load_word(bytes, at + width - low - count, count)
        } else {
            0
        };
    }
}

/// Values written bit by bit, the last byte filled with zeros.
pub struct BitWriter<'b> {
    pub bytes: &'b mut Vec<u8>,
    /// Bits not yet written, right-aligned; fewer than 8.
    rest: u8,
    rest_bits: u32,
}

impl<'b> BitWriter<'b> {
    pub fn new(bytes: &'b mut Vec<u8>) -> Self {
        BitWriter { bytes, rest: 0, rest_bits: 0 }
    }

    /// The low `width` bits of `words`.
    pub fn push(&mut self, words: &[u64], width: u32) {
        for (index, &word) in words.iter().enumerate().rev() {
            let low = 64 * index as u32;
            if low < width {
                self.push_word(word, (width - low).min(64));
            }
        }
    }

    fn push_word(&mut self, value: u64, mut width: u32) {
        while width > 0 {
            let take = width.min(8 - self.rest_bits);
            let bits = (value >> (width - take)) as u8 & (u8::MAX >> (8 - take));
            self.rest = if take == 8 { bits } else { self.rest << take | bits };
            self.rest_bits += take;
            width -= take;
            if self.rest_bits == 8 {
                self.bytes.push(self.rest);
                (self.rest, self.rest_bits) = (0, 0);
            }
        }
    }

    pub fn align(&mut self) {
        if self.rest_bits > 0 {
            self.push_word(0, 8 - self.rest_bits);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value of 128 bits whose every byte is another one.
    const WORDS: [u64; 2] = [0x89ab_cdef_0123_4567, 0x0123_4567_89ab_cdef];

    #[test]
    fn bits_are_concatenated_across_bytes() {
        let mut bytes = Vec::new();
        let mut writer = BitWriter::new(&mut bytes);
        writer.push(&[0xf], 3);
        writer.push(&WORDS, 128);
        writer.push(&[1], 1);
        writer.align();
        let value = (WORDS[1] as u128) << 64 | WORDS[0] as u128;
        assert_eq!(bytes[..16], ((0b111u128 << 125) | (value >> 3)).to_be_bytes());
        assert_eq!(bytes[16..], [0b1111_0000]);
    }

    #[test]
    fn what_was_written_at_any_bit_is_read_again() {
        for skip in 0..9 {
            for width in [1, 7, 8, 63, 64, 65, 127, 128] {
                let mut bytes = Vec::new();
                let mut writer = BitWriter::new(&mut bytes);
                writer.push(&[u64::MAX], skip);
                writer.push(&WORDS, width);
                writer.push(&[u64::MAX], 64);
                writer.align();
                let mut read = [u64::MAX; 3];
                load(&bytes, skip as usize, width as usize, &mut read);
                let mask = |bits: u32| if bits >= 64 { u64::MAX } else { (1 << bits) - 1 };
                let expected = [WORDS[0] & mask(width), WORDS[1] & mask(width.saturating_sub(64)), 0];
                assert_eq!(read, expected, "{width} bits at {skip}");
            }
        }
    }
}

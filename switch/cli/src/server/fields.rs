// SPDX-License-Identifier: Apache-2.0
//! Fields of a protobuf message, counted while it comes: an empty one takes two bytes on the wire and many
//! more once it is decoded.

/// Part of a message that comes next.
#[derive(Clone, Copy, Default, PartialEq)]
enum Next {
    #[default]
    Tag,
    Varint,
    Length,
    /// Nothing that can be decoded, and so nothing that is.
    Fault,
}

/// A message as far as it has come, `encoding` of protobuf: tags, and values that their wire types delimit.
#[derive(Default)]
pub struct Fields {
    next: Next,
    varint: u64,
    shift: u32,
    /// Bytes of a value that have not come.
    rest: usize,
}

impl Fields {
    /// Takes the next bytes; answers how many fields of the message itself begin in them.
    pub fn count(&mut self, mut data: &[u8]) -> usize {
        let mut number = 0;
        while let Some((&byte, others)) = data.split_first() {
            if self.rest > 0 {
                let skipped = self.rest.min(data.len());
                (self.rest, data) = (self.rest - skipped, &data[skipped..]);
                continue;
            }
            if self.next == Next::Fault {
                break;
            }
            data = others;
            self.varint |= u64::from(byte & 0x7F) << self.shift;
            self.shift += 7;
            if byte & 0x80 != 0 {
                if self.shift >= 64 {
                    self.next = Next::Fault;
                }
                continue;
            }
            let value = std::mem::take(&mut self.varint);
            self.shift = 0;
            match self.next {
                Next::Tag => {
                    number += 1;
                    (self.next, self.rest) = match value & 7 {
                        0 => (Next::Varint, 0),
                        1 => (Next::Tag, 8),
                        2 => (Next::Length, 0),
                        5 => (Next::Tag, 4),
                        // Fields in a group count as if they were in the message.
                        3 | 4 => (Next::Tag, 0),
                        _ => (Next::Fault, 0),
                    };
                }
                Next::Length => (self.next, self.rest) = (Next::Tag, usize::try_from(value).unwrap_or(usize::MAX)),
                Next::Varint | Next::Fault => self.next = Next::Tag,
            }
        }
        number
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use prost::Message;

    use super::*;
    use apswitch_p4runtime::proto::p4::v1 as p4;

    #[test]
    fn fields_are_those_of_the_message_however_it_comes() {
        let updates = [vec![], vec![7; 300], p4::Update { r#type: 1, entity: None }.encode_to_vec()].map(Bytes::from);
        let request = p4::WriteRequest {
            device_id: u64::MAX,
            role: "one".into(),
            election_id: Some(p4::Uint128 { high: 1 << 40, low: 2 }),
            updates: updates.into(),
            ..Default::default()
        };
        let bytes = request.encode_to_vec();
        for size in [1, 2, 7, bytes.len()] {
            let mut fields = Fields::default();
            assert_eq!(bytes.chunks(size).map(|part| fields.count(part)).sum::<usize>(), 6, "{size}");
        }
    }

    #[test]
    fn fixed_values_groups_and_faults_are_no_fields_more() {
        let fixed = [&[0x09][..], &[0xFF; 8], &[0x0D], &[0xFF; 4], &[0x0B, 0x12, 0x00, 0x0C]].concat();
        assert_eq!(Fields::default().count(&fixed), 5);
        assert_eq!(Fields::default().count(&[0xFF; 64]), 0);
        assert_eq!(Fields::default().count(&[0x0F, 0x08, 0x08]), 1);
        let endless = [&[0x12][..], &[0xFF; 9], &[0x01, 0x12, 0x00]].concat();
        assert_eq!(Fields::default().count(&endless), 1);
    }
}

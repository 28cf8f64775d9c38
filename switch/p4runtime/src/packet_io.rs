// SPDX-License-Identifier: Apache-2.0
//! Packet-in and packet-out: controller headers between metadata messages and the bytes in front of a frame
//! (P4Runtime 1.4, "Packet I/O").

use apswitch_core::state::bits::{BitWriter, load};
use apswitch_dataplane::control::Value;
use bytes::Bytes;

use super::error::{Checked, refuse};
use super::header::HeaderField;
use super::names::Naming;
use super::proto::p4::v1::{PacketIn, PacketMetadata, PacketOut};

/// The frame that enters the CPU port: the packet-out header, then the payload.
pub fn packet_out(header: &[HeaderField], packet: &PacketOut) -> Checked<Vec<u8>> {
    let mut frame = Vec::with_capacity(header_len(header) + packet.payload.len());
    let mut bits = BitWriter::new(&mut frame);
    if let Some(unknown) = packet.metadata.iter().find(|m| header.iter().all(|field| field.id != m.metadata_id)) {
        return refuse!(InvalidArgument, "packet_out has no metadata {}", unknown.metadata_id);
    }
    for field in header {
        let mut given = packet.metadata.iter().filter(|m| m.metadata_id == field.id);
        let value = match (given.next(), given.next()) {
            (Some(metadata), None) => (field.sdn_type)
                .decode(&metadata.value, field.width, Naming::Find)
                .map_err(|bad| bad.at(format_args!("packet_out.{}", field.name)))?,
            (None, _) if field.is_padding => Value::ZERO,
            (None, _) => return refuse!(InvalidArgument, "packet_out.{} is missing", field.name),
            (Some(_), Some(_)) => return refuse!(InvalidArgument, "packet_out.{} is given twice", field.name),
        };
        let words: Vec<u64> = (0..field.width.div_ceil(64) as usize).map(|word| value.word(word)).collect();
        bits.push(&words, field.width);
    }
    frame.extend_from_slice(&packet.payload);
    Ok(frame)
}

/// The message for a frame that left through the CPU port, or `None` when it is shorter than the packet-in header.
pub fn packet_in(header: &[HeaderField], frame: Vec<u8>) -> Option<PacketIn> {
    let frame = Bytes::from(frame);
    let mut position = 0;
    if frame.len() < header_len(header) {
        return None;
    }
    let metadata = header
        .iter()
        .map(|field| {
            let mut words = vec![0; field.width.div_ceil(64) as usize];
            load(&frame, position, field.width as usize, &mut words);
            position += field.width as usize;
            PacketMetadata { metadata_id: field.id, value: field.sdn_type.encode(&Value::from_words(&words)) }
        })
        .collect();
    Some(PacketIn { payload: frame.slice(position / 8..), metadata })
}

fn header_len(header: &[HeaderField]) -> usize {
    header.iter().map(|field| field.width as usize).sum::<usize>() / 8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;
    use crate::translation::SdnType;
    use crate::value;
    use proptest::prelude::*;

    fn header() -> Vec<HeaderField> {
        let field = |id, name: &str, width, is_padding| {
            let sdn_type = SdnType::Plain;
            HeaderField { id, name: name.into(), width, sdn_type, is_padding }
        };
        vec![field(1, "egress_port", 9, false), field(2, "pad", 7, true), field(3, "cookie", 72, false)]
    }

    fn out(metadata: &[(u32, &[u8])]) -> PacketOut {
        let message =
            |&(metadata_id, value): &(u32, &[u8])| PacketMetadata { metadata_id, value: Bytes::copy_from_slice(value) };
        PacketOut { payload: Bytes::from_static(b"payload"), metadata: metadata.iter().map(message).collect() }
    }

    #[test]
    fn header_bits_stand_in_order() {
        let frame = packet_out(&header(), &out(&[(3, &[7]), (1, &[1, 0xff])])).unwrap();
        assert_eq!(frame, b"\xff\x80\0\0\0\0\0\0\0\0\x07payload");
    }

    #[test]
    fn refusals() {
        let code = |metadata: &[(u32, &[u8])]| packet_out(&header(), &out(metadata)).unwrap_err().code;
        assert_eq!(code(&[(1, &[1])]), Code::InvalidArgument, "one is missing");
        assert_eq!(code(&[(1, &[1]), (3, &[1]), (9, &[1])]), Code::InvalidArgument, "one is unknown");
        assert_eq!(code(&[(1, &[1]), (3, &[1]), (3, &[1])]), Code::InvalidArgument, "one is given twice");
        assert_eq!(code(&[(1, &[2, 0]), (3, &[1])]), Code::OutOfRange, "10 bits in 9");
        assert_eq!(code(&[(1, &[]), (3, &[1])]), Code::OutOfRange, "empty");
        assert_eq!(packet_in(&header(), vec![0; 10]), None, "shorter than the header");
    }

    proptest! {
        #[test]
        fn what_goes_out_comes_in(port in 0u128..512, cookie in 0u128..1 << 72, payload: Vec<u8>) {
            let metadata = [(1, port), (2, 0), (3, cookie)]
                .map(|(metadata_id, v)| PacketMetadata { metadata_id, value: value::from_value(&v.into()) })
                .to_vec();
            let packet = PacketOut { payload: payload.clone().into(), metadata: metadata.clone() };
            let back = packet_in(&header(), packet_out(&header(), &packet).unwrap());
            prop_assert_eq!(back, Some(PacketIn { payload: payload.into(), metadata }));
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Requests to testdata/programs/features.p4, and its answers.

use super::lab::Lab;
use super::{internet_checksum, program};

pub fn lab() -> Lab {
    Lab::new(program("features"), &[None, None, None])
}

/// A request with a correct checksum.
pub fn request(kind: u8, index: u8, value: u32) -> Vec<u8> {
    let mut frame = vec![kind, index];
    frame.extend(value.to_be_bytes());
    let checksum = internet_checksum(&frame);
    frame.extend(checksum.to_be_bytes());
    frame
}

/// A request followed by an address header.
pub fn address_request(kind: u8, address: u128) -> Vec<u8> {
    let mut frame = request(kind, 0, 0);
    // The lookahead of the parser reads the first bits of what follows: anything but 0xabc.
    frame.extend(address.to_be_bytes());
    frame
}

#[derive(Debug, PartialEq)]
pub struct Answer {
    pub value: u32,
    pub instance_type: u8,
    pub error_code: u8,
    pub egress_rid: u16,
    pub ingress_port: u16,
    pub packet_length: u32,
}

/// The answer in front of a frame, and what follows it.
pub fn answer(frame: &[u8]) -> (Answer, &[u8]) {
    let (front, rest) = frame.split_at(14);
    let answer = Answer {
        value: u32::from_be_bytes(front[0..4].try_into().unwrap()),
        instance_type: front[4],
        error_code: front[5],
        egress_rid: u16::from_be_bytes(front[6..8].try_into().unwrap()),
        ingress_port: u16::from_be_bytes(front[8..10].try_into().unwrap()),
        packet_length: u32::from_be_bytes(front[10..14].try_into().unwrap()),
    };
    (answer, rest)
}

/// Sends to port 1 and takes the answer from port 2.
pub fn ask(lab: &Lab, frame: &[u8]) -> (Answer, Vec<u8>) {
    lab.send(1, frame);
    let received = lab.receive(2);
    let (answer, rest) = answer(&received);
    (answer, rest.to_vec())
}

pub fn value(lab: &Lab, frame: &[u8]) -> u32 {
    ask(lab, frame).0.value
}

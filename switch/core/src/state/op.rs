// SPDX-License-Identifier: Apache-2.0
//! The instructions that a program is compiled to. Operands are registers; constants are registers that nothing writes.

use crate::value::words;

/// A register of the machine.
pub type Reg = u16;

/// A power of two, so that an index taken modulo it needs no check.
pub const REGISTERS: usize = 1 << 15;

pub type Registers = [u64; REGISTERS];

/// Address of an instruction.
pub type Address = u32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    SignedLess,
    SignedLessOrEqual,
}

/// Instructions that only use registers, those that direct the flow, and [`Effect`]s. Values are modulo 2^64 and, where
/// the instruction says signed, in two's complement.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    Move {
        dst: Reg,
        a: Reg,
    },
    Add {
        dst: Reg,
        a: Reg,
        b: Reg,
    },
    Subtract {
        dst: Reg,
        a: Reg,
        b: Reg,
    },
    Multiply {
        dst: Reg,
        a: Reg,
        b: Reg,
    },
    /// Division by 0 gives 0.
    Divide {
        dst: Reg,
        a: Reg,
        b: Reg,
    },
    Modulo {
        dst: Reg,
        a: Reg,
        b: Reg,
    },
    And {
        dst: Reg,
        a: Reg,
        b: Reg,
    },
    Or {
        dst: Reg,
        a: Reg,
        b: Reg,
    },
    Xor {
        dst: Reg,
        a: Reg,
        b: Reg,
    },
    Not {
        dst: Reg,
        a: Reg,
    },
    /// Shifts by 64 and more give 0, or the sign.
    ShiftLeft {
        dst: Reg,
        a: Reg,
        b: Reg,
    },
    ShiftRight {
        dst: Reg,
        a: Reg,
        b: Reg,
    },
    SignedShiftRight {
        dst: Reg,
        a: Reg,
        b: Reg,
    },
    Compare {
        dst: Reg,
        a: Reg,
        b: Reg,
        compare: Compare,
    },
    Select {
        dst: Reg,
        condition: Reg,
        a: Reg,
        b: Reg,
    },
    SignExtend {
        dst: Reg,
        a: Reg,
        width: u8,
    },
    /// The nearest value in `low..=high`.
    Clamp {
        dst: Reg,
        a: Reg,
        low: Reg,
        high: Reg,
    },
    SignedClamp {
        dst: Reg,
        a: Reg,
        low: Reg,
        high: Reg,
    },
    Jump {
        to: Address,
    },
    /// Jumps if the comparison holds.
    Branch {
        compare: Compare,
        a: Reg,
        b: Reg,
        to: Address,
    },
    /// Looks the table up and runs the action; the action continues where the table says.
    Apply {
        table: u16,
    },
    /// End of an action that a table runs.
    Return,
    /// End of the pipeline, also in the middle of an action.
    Exit,
    MarkToDrop,
    /// Counts the packet and its bytes as received. Here and below, an index beyond the array does nothing.
    Count {
        counter: u16,
        index: Reg,
    },
    /// Reads a cell of one word; the next writes one.
    ReadRegister {
        dst: Reg,
        register: u16,
        index: Reg,
    },
    WriteRegister {
        register: u16,
        index: Reg,
        a: Reg,
    },
    Effect(Effect),
}

/// Instructions that use more than registers; `State::effect` carries them out. Headers that they name are neither of
/// variable length nor in a union: those are the matter of [`Effect::Headers`].
#[derive(Clone, Copy, Debug)]
pub enum Effect {
    /// Evaluates a wide expression and keeps its low `width` bits.
    Wide {
        dst: Reg,
        expression: u32,
        width: u16,
    },
    /// Reads a cell wider than a word; an index beyond the array does nothing.
    ReadCell {
        dst: Reg,
        words: Reg,
        register: u16,
        index: Reg,
    },
    WriteCell {
        register: u16,
        index: Reg,
        a: Reg,
        words: Reg,
    },
    AddHeader {
        header: u16,
    },
    RemoveHeader {
        header: u16,
    },
    CopyHeader {
        dst: u16,
        src: u16,
    },
    /// Stacks, unions and varbits: see [`HeaderOp`](super::headers::HeaderOp). May write any header.
    Headers {
        op: u32,
    },
    ExecuteMeter {
        meter: u16,
        index: Reg,
        dst: Reg,
    },
    Digest {
        list: u16,
    },
    Random {
        dst: Reg,
        low: Reg,
        high: Reg,
    },
    /// `low + hash % size`.
    Hash {
        dst: Reg,
        calculation: u16,
        low: Reg,
        size: Reg,
    },
    Clone {
        session: Reg,
        fields: u16,
    },
    Resubmit {
        fields: u16,
    },
    Recirculate {
        fields: u16,
    },
    Truncate {
        length: Reg,
    },
    Log {
        message: u32,
    },
    AssertionFailed {
        message: u32,
    },
}

impl Effect {
    /// The first register and the number of registers that it writes, apart from whole headers.
    pub fn destination(self) -> Option<(Reg, Reg)> {
        match self {
            Effect::Wide { dst, width, .. } => Some((dst, words(width) as Reg)),
            Effect::ReadCell { dst, words, .. } => Some((dst, words)),
            Effect::ExecuteMeter { dst, .. } | Effect::Random { dst, .. } | Effect::Hash { dst, .. } => Some((dst, 1)),
            Effect::AddHeader { .. }
            | Effect::RemoveHeader { .. }
            | Effect::WriteCell { .. }
            | Effect::CopyHeader { .. }
            | Effect::Headers { .. }
            | Effect::Digest { .. }
            | Effect::Clone { .. }
            | Effect::Resubmit { .. }
            | Effect::Recirculate { .. }
            | Effect::Truncate { .. }
            | Effect::Log { .. }
            | Effect::AssertionFailed { .. } => None,
        }
    }
}

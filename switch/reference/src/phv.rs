// SPDX-License-Identifier: Apache-2.0
//! One packet, its headers and metadata, and expressions over them. All numbers are integers of any size; they are
//! cut when a field takes them, as BMv2 does.

use num_bigint::{BigInt, BigUint, Sign};

use super::program::*;

/// A left shift by more leaves nothing in any field.
const MAX_SHIFT: u32 = 1 << 16;

#[derive(Clone, Debug)]
pub struct HeaderValue {
    pub valid: bool,
    pub fields: Vec<BigInt>,
    /// Bits that the varbit has.
    pub varbit: u32,
}

#[derive(Clone, Debug)]
pub struct Phv {
    pub headers: Vec<HeaderValue>,
    /// Filled elements of each stack, as the parser counts them.
    pub filled: Vec<usize>,
    pub filled_unions: Vec<usize>,
}

/// A packet between the parts of the architecture.
#[derive(Clone, Debug)]
pub struct Packet {
    /// As it came.
    pub frame: Vec<u8>,
    /// Bytes of the frame that the parser has consumed.
    pub parsed: usize,
    pub phv: Phv,
    /// Bytes of the packet beside its headers; less than 0 where headers were added before parsing ended.
    pub rest: i64,
    /// Bytes as received: what counters and meters count.
    pub ingress_length: u64,
    /// Bytes that leave at most.
    pub truncate: u64,
    /// Times that actions have gone back to an earlier primitive.
    pub jumps_back: usize,
    /// Statement that chose the egress port, for the trace.
    pub chosen_by: String,
}

impl Packet {
    pub fn new(program: &Program, frame: Vec<u8>) -> Packet {
        let length = frame.len();
        Packet {
            phv: Phv::new(program),
            jumps_back: 0,
            parsed: 0,
            rest: length as i64,
            ingress_length: length as u64,
            truncate: u32::MAX.into(),
            frame,
            chosen_by: String::new(),
        }
    }

    pub fn payload(&self) -> &[u8] {
        &self.frame[self.parsed..]
    }

    /// Bytes of its valid headers.
    pub fn headers_len(&self, program: &Program) -> i64 {
        let valid = (0..program.headers.len()).filter(|&h| self.phv.headers[h].valid && !program.headers[h].metadata);
        valid.map(|header| self.phv.header_len(program, header) as i64).sum()
    }

    /// Bytes of the packet as it is now.
    pub fn length(&self, program: &Program) -> u64 {
        (self.rest + self.headers_len(program)) as u64
    }
}

fn power(bits: u32) -> BigInt {
    BigInt::from(1) << bits
}

/// The number of `width` bits that is `value` modulo 2^width.
pub fn fit(value: &BigInt, width: u32, signed: bool) -> BigInt {
    let low = value & (power(width) - 1);
    if signed && width > 0 && low >= power(width - 1) { low - power(width) } else { low }
}

pub fn is_true(value: &BigInt) -> bool {
    value.sign() != Sign::NoSign
}

/// An amount or index; what is beyond is as large as can be, what is below 0 is 0.
pub fn small(value: &BigInt) -> u64 {
    if value.sign() == Sign::Minus { 0 } else { u64::try_from(value).unwrap_or(u64::MAX) }
}

/// The low 64 bits.
pub fn low64(value: &BigInt) -> u64 {
    small(&fit(value, 64, false))
}

/// Bits one after the other.
#[derive(Clone, Debug, Default)]
pub struct Bits {
    value: BigUint,
    pub len: u32,
}

impl Bits {
    pub fn push(&mut self, value: &BigInt, width: u32) {
        let bits = fit(value, width, false).magnitude().clone();
        self.value = (std::mem::take(&mut self.value) << width) | bits;
        self.len += width;
    }

    /// Whole bytes, the last one filled with zeros.
    pub fn bytes(&self) -> Vec<u8> {
        let len = self.len.div_ceil(8);
        let bytes = (&self.value << (8 * len - self.len)).to_bytes_be();
        let mut padded = vec![0; len as usize];
        let start = padded.len().saturating_sub(bytes.len());
        padded[start..].copy_from_slice(&bytes[bytes.len().saturating_sub(len as usize)..]);
        padded
    }

    pub fn value(&self) -> BigInt {
        BigInt::from(self.value.clone())
    }
}

/// `width` bits that begin at bit `offset`; `None`: the bytes end before.
pub fn bits_of(bytes: &[u8], offset: usize, width: usize) -> Option<BigInt> {
    let end = (offset + width).div_ceil(8);
    let bytes = bytes.get(offset / 8..end)?;
    let value = BigUint::from_bytes_be(bytes) >> (8 * end - offset - width);
    Some(fit(&BigInt::from(value), width as u32, false))
}

impl Phv {
    /// Makes headers that are invalid and 0, and metadata that is valid.
    pub fn new(program: &Program) -> Phv {
        let header = |header: &Header| HeaderValue {
            valid: header.metadata,
            fields: vec![BigInt::ZERO; header.fields.len()],
            varbit: 0,
        };
        Phv {
            headers: program.headers.iter().map(header).collect(),
            filled: vec![0; program.stacks.len()],
            filled_unions: vec![0; program.union_stacks.len()],
        }
    }

    pub fn width(&self, program: &Program, header: usize, part: Part) -> u32 {
        match part {
            Part::Valid => 1,
            Part::Field(field) if program.headers[header].fields[field].varbit => self.headers[header].varbit,
            Part::Field(field) => program.headers[header].fields[field].width,
        }
    }

    /// The field of a known header.
    pub fn get(&self, header: usize, part: Part) -> BigInt {
        match part {
            Part::Valid => BigInt::from(u8::from(self.headers[header].valid)),
            Part::Field(field) => self.headers[header].fields[field].clone(),
        }
    }

    pub fn set(&mut self, program: &Program, header: usize, field: usize, value: &BigInt) {
        let signed = program.headers[header].fields[field].signed;
        let width = self.width(program, header, Part::Field(field));
        self.headers[header].fields[field] = fit(value, width, signed);
    }

    /// Sets a header's validity; of a union, one header is valid at most.
    pub fn set_valid(&mut self, program: &Program, header: usize, valid: bool) {
        if let (true, Some(union)) = (valid, program.headers[header].union) {
            for &member in &program.unions[union].members {
                self.headers[member].valid = false;
            }
        }
        self.headers[header].valid = valid;
    }

    pub fn union_valid(&self, program: &Program, union: usize) -> bool {
        program.unions[union].members.iter().any(|&member| self.headers[member].valid)
    }

    /// Bytes of the header on the wire.
    pub fn header_len(&self, program: &Program, header: usize) -> usize {
        let fields = 0..program.headers[header].fields.len();
        fields.map(|field| self.width(program, header, Part::Field(field))).sum::<u32>() as usize / 8
    }

    pub fn push_header(&self, program: &Program, header: usize, bits: &mut Bits) {
        for (field, value) in self.headers[header].fields.iter().enumerate() {
            bits.push(value, self.width(program, header, Part::Field(field)));
        }
    }
}

/// Values that an expression is evaluated over.
pub struct Scope<'a> {
    pub program: &'a Program,
    pub phv: &'a Phv,
    pub params: &'a [BigInt],
}

impl Scope<'_> {
    /// `None`: the index is beyond the stack.
    pub fn header(&self, header: &HeaderRef) -> Option<usize> {
        match header {
            HeaderRef::Header(header) => Some(*header),
            HeaderRef::Element { stack, index } => {
                let index = usize::try_from(&self.eval(index)).ok()?;
                self.program.stacks[*stack].elements.get(index).copied()
            }
            HeaderRef::Last { stack } => {
                let last = self.phv.filled[*stack].checked_sub(1)?;
                self.program.stacks[*stack].elements.get(last).copied()
            }
            HeaderRef::Member { union, member } => {
                self.program.unions[self.union(union)?].members.get(*member).copied()
            }
        }
    }

    pub fn union(&self, union: &UnionRef) -> Option<usize> {
        match union {
            UnionRef::Union(union) => Some(*union),
            UnionRef::Element { stack, index } => {
                let index = usize::try_from(&self.eval(index)).ok()?;
                self.program.union_stacks[*stack].elements.get(index).copied()
            }
            UnionRef::Last { stack } => {
                let last = self.phv.filled_unions[*stack].checked_sub(1)?;
                self.program.union_stacks[*stack].elements.get(last).copied()
            }
        }
    }

    pub fn field(&self, field: &FieldRef) -> BigInt {
        self.header(&field.header).map_or(BigInt::ZERO, |header| self.phv.get(header, field.part))
    }

    pub fn holds(&self, expr: &Expr) -> bool {
        is_true(&self.eval(expr))
    }

    pub fn eval(&self, expr: &Expr) -> BigInt {
        let bool = |value: bool| BigInt::from(u8::from(value));
        match expr {
            Expr::Constant(value) => value.clone(),
            Expr::Field(field) => self.field(field),
            Expr::Param(index) => self.params.get(*index).cloned().unwrap_or_default(),
            Expr::Unary(op, a) => {
                let a = self.eval(a);
                match op {
                    Unary::Negative => -a,
                    Unary::Complement => !a,
                    Unary::Not => bool(!is_true(&a)),
                    Unary::ToBool => bool(is_true(&a)),
                    Unary::Same => a,
                }
            }
            Expr::Binary(op, a, b) => binary(*op, self.eval(a), self.eval(b)),
            Expr::Choose(condition, a, b) => self.eval(if self.holds(condition) { a } else { b }),
            Expr::Valid(header) => bool(self.header(header).is_some_and(|header| self.phv.headers[header].valid)),
            Expr::ValidUnion(union) => {
                bool(self.union(union).is_some_and(|union| self.phv.union_valid(self.program, union)))
            }
            Expr::SameField(a, b) => bool(self.field(a) == self.field(b) && self.varbit(a) == self.varbit(b)),
            Expr::SameHeader(a, b) => bool(self.same(self.header(a), self.header(b))),
            Expr::SameUnion(a, b) => {
                let members = |union| self.union(union).map_or(&[][..], |union| &self.program.unions[union].members);
                let (a, b) = (members(a), members(b));
                bool((0..a.len().max(b.len())).all(|at| self.same(a.get(at).copied(), b.get(at).copied())))
            }
            Expr::Size { stack } => BigInt::from(self.phv.filled[*stack]),
        }
    }

    /// The language calls it an error of the parser.
    pub fn reads_last_of_empty(&self, expr: &Expr) -> bool {
        match expr {
            Expr::Field(field) => {
                let is_last = match &field.header {
                    HeaderRef::Last { .. } => true,
                    HeaderRef::Member { union, .. } => matches!(union, UnionRef::Last { .. }),
                    _ => false,
                };
                is_last && self.header(&field.header).is_none()
            }
            Expr::SameField(a, b) => {
                [a, b].into_iter().any(|field| self.reads_last_of_empty(&Expr::Field(field.clone())))
            }
            Expr::Unary(_, a) => self.reads_last_of_empty(a),
            Expr::Binary(_, a, b) => self.reads_last_of_empty(a) || self.reads_last_of_empty(b),
            Expr::Choose(a, b, c) => [a, b, c].into_iter().any(|expr| self.reads_last_of_empty(expr)),
            _ => false,
        }
    }

    /// Bits of a varbit; 0 of every other field.
    fn varbit(&self, field: &FieldRef) -> u32 {
        match (self.header(&field.header), field.part) {
            (Some(header), Part::Field(index)) if self.program.headers[header].fields[index].varbit => {
                self.phv.headers[header].varbit
            }
            _ => 0,
        }
    }

    /// Both are invalid, or valid and equal.
    fn same(&self, a: Option<usize>, b: Option<usize>) -> bool {
        // An element that does not exist is as good as an invalid one.
        let valid = |header: Option<usize>| header.map(|h| &self.phv.headers[h]).filter(|header| header.valid);
        match (valid(a), valid(b)) {
            (Some(a), Some(b)) => a.fields == b.fields && a.varbit == b.varbit,
            (a, b) => a.is_none() && b.is_none(),
        }
    }
}

fn binary(op: Binary, a: BigInt, b: BigInt) -> BigInt {
    let bool = |value: bool| BigInt::from(u8::from(value));
    let amount = || small(&b).min(MAX_SHIFT.into()) as u32;
    match op {
        Binary::Add => a + b,
        Binary::Subtract => a - b,
        Binary::Multiply => a * b,
        Binary::Divide => {
            if is_true(&b) {
                a / b
            } else {
                BigInt::ZERO
            }
        }
        Binary::Modulo => {
            if is_true(&b) {
                a % b
            } else {
                BigInt::ZERO
            }
        }
        Binary::And => a & b,
        Binary::Or => a | b,
        Binary::Xor => a ^ b,
        Binary::ShiftLeft => a << amount(),
        Binary::ShiftRight => a >> amount(),
        Binary::Equal => bool(a == b),
        Binary::Less => bool(a < b),
        Binary::LessOrEqual => bool(a <= b),
        Binary::Greater => bool(a > b),
        Binary::GreaterOrEqual => bool(a >= b),
        Binary::TwosComplement => fit(&a, amount(), true),
        Binary::SaturateSigned => a.clamp(-power(amount().max(1) - 1), power(amount().max(1) - 1) - 1),
        Binary::SaturateUnsigned => a.clamp(BigInt::ZERO, power(amount()) - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_cut_to_their_fields() {
        let fit = |value: i32, width, signed| i32::try_from(&super::fit(&BigInt::from(value), width, signed)).unwrap();
        assert_eq!([fit(-1, 8, false), fit(-1, 8, true), fit(256, 8, false), fit(128, 8, true)], [255, -1, 0, -128]);
        // The examples of the format's description.
        let two = |a: i32, b: i32| binary(Binary::TwosComplement, a.into(), b.into());
        assert_eq!((two(257, 8), two(-129, 8)), (1.into(), 127.into()));
        let one = |op, a: i32| binary(op, a.into(), 8.into());
        assert_eq!(one(Binary::SaturateSigned, -200), (-128).into());
        assert_eq!(one(Binary::SaturateUnsigned, 300), 255.into());
    }

    #[test]
    fn bits_are_read_and_written_in_network_order() {
        let mut bits = Bits::default();
        for (value, width) in [(0xa, 4), (0xbcd, 12), (1, 1)] {
            bits.push(&BigInt::from(value), width);
        }
        assert_eq!(bits.bytes(), [0xab, 0xcd, 0x80]);
        assert_eq!(bits_of(&bits.bytes(), 4, 12), Some(BigInt::from(0xbcd)));
        assert_eq!(bits_of(&[0xff], 4, 5), None);
    }
}

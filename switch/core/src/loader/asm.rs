// SPDX-License-Identifier: Apache-2.0
//! Assembler from expression trees to instructions: registers for parameters, temporaries and constants, labels and
//! jumps.

use std::cell::Cell;
use std::collections::HashMap;

use num_bigint::BigInt;

use super::expr::{Expr, Range, constant};
use super::operands::HeaderRef;
use super::phv::{Field, Phv};
use super::{LoadError, refuse};
use crate::state::headers::{self, HeaderOp};
use crate::state::op::{Address, Compare, Effect, Op, REGISTERS, Reg};
use crate::state::wide::{Binary, Fit, Wide, is_true, low_word, power, store};
use crate::value;

/// Instructions of a program at most, and operands and operations of all its wide expressions together.
const MAX_INSTRUCTIONS: usize = 1 << 18;
const MAX_WIDE_TERMS: usize = 1 << 21;

/// A place in the code that is not yet known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Label(u32);

/// Meaning of a reference to an action parameter.
#[derive(Clone, Debug)]
pub enum Param {
    Register { reg: Reg, width: u16 },
    Constant(BigInt),
}

/// The expression needs more than 64 bits.
struct NeedsWide;

pub struct Assembler<'a> {
    pub phv: &'a Phv,
    pub code: Vec<Op>,
    pub wide: Vec<Wide>,
    pub header_ops: Vec<HeaderOp>,
    pub params: Vec<Param>,
    /// Position of the present construct, for messages.
    pub place: String,
    /// A register that takes what nobody reads.
    pub sink: Reg,
    labels: Vec<Option<Address>>,
    constants: HashMap<u64, Reg>,
    first_temporary: usize,
    next_temporary: usize,
    /// Behind those of any statement: no constant may stand where one of them was.
    behind_temporaries: usize,
    /// Nodes of all wide expressions so far.
    wide_nodes: Cell<usize>,
}

impl<'a> Assembler<'a> {
    /// `param_registers`: what the action with the longest parameter list needs.
    pub fn new(phv: &'a Phv, param_registers: usize) -> Self {
        let sink = phv.fields + param_registers;
        let first_temporary = sink + 1;
        Assembler {
            phv,
            code: Vec::new(),
            wide: Vec::new(),
            header_ops: Vec::new(),
            params: Vec::new(),
            place: String::new(),
            sink: sink as Reg,
            labels: Vec::new(),
            constants: HashMap::new(),
            first_temporary,
            next_temporary: first_temporary,
            behind_temporaries: first_temporary,
            wide_nodes: Cell::new(0),
        }
    }

    pub fn refuse<T>(&self, reason: impl Into<String>) -> Result<T, LoadError> {
        refuse(self.place.clone(), reason)
    }

    /// Refuses more code than a program may have; asked before every statement and expression.
    pub fn check_length(&self) -> Result<(), LoadError> {
        match self.code.len() > MAX_INSTRUCTIONS || self.wide_nodes.get() > MAX_WIDE_TERMS {
            true => {
                self.refuse("the program is too long: its actions, expressions and calls of them take too much code")
            }
            false => Ok(()),
        }
    }

    pub fn new_label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() as u32 - 1)
    }

    pub fn bind(&mut self, label: Label) {
        self.labels[label.0 as usize] = Some(self.code.len() as Address);
    }

    pub fn jump(&mut self, to: Label) {
        self.code.push(Op::Jump { to: to.0 });
    }

    /// The address of a bound label.
    pub fn address(&self, label: Label) -> Address {
        self.labels[label.0 as usize].expect("every label that is used is bound")
    }

    /// Puts addresses in the place of labels; the registers of all constants.
    pub fn finish(&mut self) -> Vec<(Reg, u64)> {
        let labels = std::mem::take(&mut self.labels);
        for op in &mut self.code {
            if let Op::Jump { to } | Op::Branch { to, .. } = op {
                *to = labels[*to as usize].expect("every label that is used is bound");
            }
        }
        self.constants.iter().map(|(&value, &reg)| (reg, value)).collect()
    }

    /// Temporaries of the statement before are free again.
    pub fn next_statement(&mut self) {
        self.next_temporary = self.first_temporary;
    }

    fn temporary(&mut self) -> Result<Reg, LoadError> {
        self.temporaries(1)
    }

    /// A temporary of so many bits.
    pub fn temporary_field(&mut self, width: u16) -> Result<Field, LoadError> {
        Ok(Field::of_none(self.temporaries(value::words(width) as Reg)?, width))
    }

    /// Neighbouring registers for a value of so many words.
    pub fn temporaries(&mut self, words: u16) -> Result<Reg, LoadError> {
        let first = self.next_temporary;
        self.next_temporary += words as usize;
        self.behind_temporaries = self.behind_temporaries.max(self.next_temporary);
        if self.next_temporary + self.constants.len() + 2 >= REGISTERS {
            return self.refuse("the program needs more registers than there are");
        }
        Ok(first as Reg)
    }

    pub fn constant(&mut self, value: u64) -> Result<Reg, LoadError> {
        if let Some(&reg) = self.constants.get(&value) {
            return Ok(reg);
        }
        let reg = REGISTERS - 1 - self.constants.len();
        if reg < self.behind_temporaries.max(self.first_temporary + REGISTERS / 8) {
            return self.refuse("the program has more constants than the register file holds");
        }
        self.constants.insert(value, reg as Reg);
        Ok(reg as Reg)
    }

    /// `field = expr`, cut to the field's width.
    pub fn assign(&mut self, field: Field, expr: &Expr) -> Result<(), LoadError> {
        if field.is_wide() {
            return self.assign_wide(field.reg, field.width, expr);
        }
        let narrow = self.narrow(expr, Some(field.reg))?;
        let Ok((reg, range)) = narrow else {
            return if field.signed {
                self.wide_into(field.reg, 64, &Expr::Fit(Fit::TwosComplement, Box::new(expr.clone()), field.width))
            } else {
                self.wide_into(field.reg, field.width, expr)
            };
        };
        if range.within(Range::of_field(field)) {
            if reg != field.reg {
                self.code.push(Op::Move { dst: field.reg, a: reg });
            }
        } else if field.signed {
            self.code.push(Op::SignExtend { dst: field.reg, a: reg, width: field.width as u8 });
        } else {
            let mask = self.constant(u64::MAX >> (64 - field.width))?;
            self.code.push(Op::And { dst: field.reg, a: reg, b: mask });
        }
        Ok(())
    }

    fn assign_wide(&mut self, dst: Reg, width: u16, expr: &Expr) -> Result<(), LoadError> {
        let words = value::words(width) as Reg;
        let from = match expr {
            // Fields of the same width have the same bits, signed or not.
            Expr::Field(from) if from.width == width || from.width < width && !from.signed => {
                Some((from.reg, from.words()))
            }
            Expr::Param(index) => match self.param(*index)? {
                Param::Register { reg, width: from } if from <= width => Some((reg, value::words(from) as Reg)),
                _ => None,
            },
            _ => None,
        };
        if let Some((reg, given)) = from {
            for word in 0..words {
                let a = if word < given { reg + word } else { self.constant(0)? };
                self.code.push(Op::Move { dst: dst + word, a });
            }
            return Ok(());
        }
        if let Expr::Constant(value) = expr {
            let mut values = vec![0; words.into()];
            store(value, width, &mut values);
            for (word, value) in (0..).zip(values) {
                let a = self.constant(value)?;
                self.code.push(Op::Move { dst: dst + word, a });
            }
            return Ok(());
        }
        self.wide_into(dst, width, expr)
    }

    /// A register with the value of the expression modulo 2^64.
    pub fn value(&mut self, expr: &Expr) -> Result<Reg, LoadError> {
        match self.narrow(expr, None)? {
            Ok((reg, _)) => Ok(reg),
            Err(NeedsWide) => {
                let dst = self.temporary()?;
                self.wide_into(dst, 64, expr)?;
                Ok(dst)
            }
        }
    }

    /// Jumps to `to` if the comparison holds.
    pub fn branch_if(&mut self, compare: Compare, a: Reg, b: Reg, to: Label) {
        self.code.push(Op::Branch { compare, a, b, to: to.0 });
    }

    /// Jumps to `to` if the condition is `when`; goes on otherwise.
    pub fn branch(&mut self, condition: &Expr, when: bool, to: Label) -> Result<(), LoadError> {
        match condition {
            Expr::Constant(value) => {
                if is_true(value) == when {
                    self.jump(to);
                }
                return Ok(());
            }
            Expr::Binary(Binary::And, a, b) if is_bool(a) && is_bool(b) => {
                return if when {
                    let skip = self.new_label();
                    self.branch(a, false, skip)?;
                    self.branch(b, true, to)?;
                    self.bind(skip);
                    Ok(())
                } else {
                    self.branch(a, false, to)?;
                    self.branch(b, false, to)
                };
            }
            Expr::Binary(Binary::Or, a, b) if is_bool(a) && is_bool(b) => {
                return if when {
                    self.branch(a, true, to)?;
                    self.branch(b, true, to)
                } else {
                    let skip = self.new_label();
                    self.branch(a, true, skip)?;
                    self.branch(b, false, to)?;
                    self.bind(skip);
                    Ok(())
                };
            }
            Expr::Binary(Binary::Compare(compare), a, b) => {
                // `not x` and `d2b(x)` of conditions.
                if is_bool(a) && **b == constant(0) && matches!(compare, Compare::Equal | Compare::NotEqual) {
                    return self.branch(a, when == (*compare == Compare::NotEqual), to);
                }
                if let (Ok((a, range_a)), Ok((b, range_b))) = (self.narrow(a, None)?, self.narrow(b, None)?)
                    && let Some(compare) = sign_aware(*compare, range_a, range_b)
                {
                    let (compare, a, b) = if when { (compare, a, b) } else { inverse(compare, a, b) };
                    self.code.push(Op::Branch { compare, a, b, to: to.0 });
                    return Ok(());
                }
            }
            _ => {}
        }
        let a = self.value(condition)?;
        let b = self.constant(0)?;
        let compare = if when { Compare::NotEqual } else { Compare::Equal };
        self.code.push(Op::Branch { compare, a, b, to: to.0 });
        Ok(())
    }

    pub fn header_op(&mut self, op: HeaderOp) {
        self.header_ops.push(op);
        self.code.push(Op::Effect(Effect::Headers { op: self.header_ops.len() as u32 - 1 }));
    }

    /// The reference with its index in a register.
    pub fn header_ref(&mut self, header: &HeaderRef) -> Result<headers::HeaderRef, LoadError> {
        Ok(match header {
            HeaderRef::Fixed(header) => headers::HeaderRef::Fixed(*header),
            HeaderRef::Indexed { headers, index } => {
                headers::HeaderRef::Indexed { headers: headers.as_slice().into(), index: self.value(index)? }
            }
        })
    }

    fn param(&self, index: usize) -> Result<Param, LoadError> {
        match self.params.get(index) {
            Some(param) => Ok(param.clone()),
            None => self.refuse(format!("there is no parameter {index}")),
        }
    }

    /// Evaluates in 64-bit registers, into `want` if an instruction is needed at all.
    /// The register holds the value modulo 2^64; the value itself if its range fits.
    fn narrow(&mut self, expr: &Expr, want: Option<Reg>) -> Result<Result<(Reg, Range), NeedsWide>, LoadError> {
        // Code that a failed attempt left is harmless, but need not stay.
        let mark = self.code.len();
        let result = self.try_narrow(expr, want)?;
        if result.is_err() {
            self.code.truncate(mark);
        }
        Ok(result)
    }

    fn try_narrow(&mut self, expr: &Expr, want: Option<Reg>) -> Result<Result<(Reg, Range), NeedsWide>, LoadError> {
        self.check_length()?;
        macro_rules! narrow {
            ($e:expr) => {
                narrow!($e, None)
            };
            ($e:expr, $want:expr) => {
                match self.try_narrow($e, $want)? {
                    Ok(result) => result,
                    Err(NeedsWide) => return Ok(Err(NeedsWide)),
                }
            };
        }
        macro_rules! exact {
            ($e:expr) => {{
                let (reg, range) = narrow!($e);
                if !range.fits_register() {
                    return Ok(Err(NeedsWide));
                }
                (reg, range)
            }};
        }
        Ok(Ok(match expr {
            Expr::Constant(value) => (self.constant(low_word(value))?, Range::of_constant(value)),
            Expr::Field(field) => (field.reg, Range::of_field(*field)),
            Expr::Element(..) => return Ok(Err(NeedsWide)),
            Expr::Param(index) => match self.param(*index)? {
                Param::Register { reg, width } => (reg, Range::Unsigned(width as u32)),
                Param::Constant(value) => (self.constant(low_word(&value))?, Range::of_constant(&value)),
            },
            Expr::Not(a) => {
                let (a, range) = narrow!(a);
                let dst = self.destination(want)?;
                self.code.push(Op::Not { dst, a });
                (dst, Range::Signed(range.signed_bits()))
            }
            Expr::Binary(op, a, b) => {
                let mask = if let Expr::Constant(mask) = &**b { Some(mask) } else { None };
                let ((a, range_a), (b, range_b)) = match op {
                    // A mask may turn out to be none: then what it was put on is the result.
                    Binary::And if mask.is_some() => (narrow!(a, want), narrow!(b)),
                    Binary::Add | Binary::Subtract | Binary::Multiply | Binary::And | Binary::Or | Binary::Xor => {
                        (narrow!(a), narrow!(b))
                    }
                    Binary::ShiftLeft => (narrow!(a), exact!(b)),
                    _ => (exact!(a), exact!(b)),
                };
                let range = Range::of_binary(*op, range_a, range_b);
                // A mask that takes nothing away.
                if let (Binary::And, Some(mask)) = (op, mask)
                    && covers(mask, range_a)
                {
                    return Ok(Ok((a, range_a)));
                }
                let unsigned = range_a.is_unsigned() && range_b.is_unsigned();
                let dst = self.destination(want)?;
                self.code.push(match op {
                    Binary::Add => Op::Add { dst, a, b },
                    Binary::Subtract => Op::Subtract { dst, a, b },
                    Binary::Multiply => Op::Multiply { dst, a, b },
                    Binary::Divide if unsigned => Op::Divide { dst, a, b },
                    Binary::Modulo if unsigned => Op::Modulo { dst, a, b },
                    Binary::Divide | Binary::Modulo => return Ok(Err(NeedsWide)),
                    Binary::And => Op::And { dst, a, b },
                    Binary::Or => Op::Or { dst, a, b },
                    Binary::Xor => Op::Xor { dst, a, b },
                    Binary::ShiftLeft => Op::ShiftLeft { dst, a, b },
                    Binary::ShiftRight if range_a.is_unsigned() => Op::ShiftRight { dst, a, b },
                    Binary::ShiftRight => Op::SignedShiftRight { dst, a, b },
                    Binary::Compare(compare) => match sign_aware(*compare, range_a, range_b) {
                        Some(compare) => Op::Compare { dst, a, b, compare },
                        None => return Ok(Err(NeedsWide)),
                    },
                });
                (dst, range)
            }
            Expr::Select(condition, a, b) => {
                let (condition, _) = exact!(condition);
                let ((a, range_a), (b, range_b)) = (narrow!(a), narrow!(b));
                let dst = self.destination(want)?;
                self.code.push(Op::Select { dst, condition, a, b });
                (dst, Range::of_select(range_a, range_b))
            }
            Expr::Fit(fit, a, width) => {
                let range = Range::of_fit(*fit, *width);
                let (a, range_a) = narrow!(a);
                if *fit == Fit::TwosComplement && range_a.within(range) && range.fits_register() {
                    return Ok(Ok((a, range_a)));
                }
                if *width > 64 || (*fit != Fit::TwosComplement && !range_a.fits_register()) {
                    return Ok(Err(NeedsWide));
                }
                let dst = self.destination(want)?;
                let most = u64::MAX >> (64 - width);
                // As a signed number, a limit of 2^64-1 is beyond all values.
                let (signed, low, high) = match (fit, range_a.is_unsigned()) {
                    (Fit::TwosComplement, _) => {
                        self.code.push(Op::SignExtend { dst, a, width: *width as u8 });
                        return Ok(Ok((dst, range)));
                    }
                    (Fit::SaturateUnsigned, true) => (false, 0, most),
                    (Fit::SaturateUnsigned, false) => (true, 0, most.min(i64::MAX as u64)),
                    (Fit::SaturateSigned, true) => (false, 0, most >> 1),
                    (Fit::SaturateSigned, false) => (true, !(most >> 1), most >> 1),
                };
                let (low, high) = (self.constant(low)?, self.constant(high)?);
                self.code.push(match signed {
                    true => Op::SignedClamp { dst, a, low, high },
                    false => Op::Clamp { dst, a, low, high },
                });
                (dst, range)
            }
        }))
    }

    fn destination(&mut self, want: Option<Reg>) -> Result<Reg, LoadError> {
        match want {
            Some(reg) => Ok(reg),
            None => self.temporary(),
        }
    }

    fn wide_into(&mut self, dst: Reg, width: u16, expr: &Expr) -> Result<(), LoadError> {
        let wide = self.to_wide(expr)?;
        self.wide.push(wide);
        self.code.push(Op::Effect(Effect::Wide { dst, expression: self.wide.len() as u32 - 1, width }));
        Ok(())
    }

    pub fn to_wide(&self, expr: &Expr) -> Result<Wide, LoadError> {
        self.wide_nodes.update(|nodes| nodes + if let Expr::Element(fields, _) = expr { fields.len() } else { 1 });
        self.check_length()?;
        let wide = |e: &Expr| -> Result<Box<Wide>, LoadError> { Ok(Box::new(self.to_wide(e)?)) };
        Ok(match expr {
            Expr::Constant(value) => Wide::Constant(value.clone()),
            Expr::Field(f) => Wide::Register { reg: f.reg, width: f.width, signed: f.signed },
            Expr::Element(fields, index) => Wide::Element {
                regs: fields.iter().map(|f| f.reg).collect(),
                width: fields[0].width,
                signed: fields[0].signed,
                index: wide(index)?,
            },
            Expr::Param(index) => match self.param(*index)? {
                Param::Register { reg, width } => Wide::Register { reg, width, signed: false },
                Param::Constant(value) => Wide::Constant(value),
            },
            Expr::Not(a) => Wide::Not(wide(a)?),
            Expr::Binary(op, a, b) => Wide::Binary { op: *op, a: wide(a)?, b: wide(b)? },
            Expr::Select(c, a, b) => Wide::Select { condition: wide(c)?, a: wide(a)?, b: wide(b)? },
            Expr::Fit(fit, a, width) => Wide::Fit { fit: *fit, a: wide(a)?, width: *width },
        })
    }
}

/// The node can only be 0 or 1.
fn is_bool(expr: &Expr) -> bool {
    match expr {
        Expr::Binary(Binary::Compare(_), ..) => true,
        Expr::Binary(Binary::And | Binary::Or, a, b) => is_bool(a) && is_bool(b),
        Expr::Constant(value) => *value == BigInt::ZERO || *value == BigInt::from(1),
        Expr::Field(field) => field.width == 1 && !field.signed,
        Expr::Element(fields, _) => fields[0].width == 1 && !fields[0].signed,
        _ => false,
    }
}

/// All bits of the unsigned range are set in the mask.
fn covers(mask: &BigInt, range: Range) -> bool {
    match range {
        Range::Unsigned(bits) => {
            let all = power(bits) - 1;
            mask & &all == all
        }
        Range::Signed(_) => false,
    }
}

/// The comparison on registers; `None`: the ranges have no common 64-bit form.
fn sign_aware(compare: Compare, a: Range, b: Range) -> Option<Compare> {
    if !a.fits_register() || !b.fits_register() {
        return None;
    }
    if a.is_unsigned() && b.is_unsigned() {
        return Some(compare);
    }
    if a.signed_bits() > 64 || b.signed_bits() > 64 {
        return None;
    }
    Some(match compare {
        Compare::Less => Compare::SignedLess,
        Compare::LessOrEqual => Compare::SignedLessOrEqual,
        same => same,
    })
}

fn inverse(compare: Compare, a: Reg, b: Reg) -> (Compare, Reg, Reg) {
    match compare {
        Compare::Equal => (Compare::NotEqual, a, b),
        Compare::NotEqual => (Compare::Equal, a, b),
        Compare::Less => (Compare::LessOrEqual, b, a),
        Compare::LessOrEqual => (Compare::Less, b, a),
        Compare::SignedLess => (Compare::SignedLessOrEqual, b, a),
        Compare::SignedLessOrEqual => (Compare::SignedLess, b, a),
    }
}

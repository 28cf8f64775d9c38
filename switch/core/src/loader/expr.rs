// SPDX-License-Identifier: Apache-2.0
//! Expressions: from JSON to a tree, and the range of values that each node can take.
//!
//! BMv2 calculates with integers of any size. The range tells where 64-bit registers give the same result.

use std::rc::Rc;

use num_bigint::{BigInt, BigUint, Sign};
use serde_json::Value;

use super::json::Typed;
use super::operands::HeaderRef;
use super::phv::{Field, MAX_WIDTH, Phv};
use super::{LoadError, operands, refuse};
use crate::program::Value as Number;
use crate::state::op::Compare;
use crate::state::wide::{Binary, Fit, low_word, power, store};
use crate::value::words;

#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    Constant(BigInt),
    Field(Field),
    /// The field of the element at the index; 0 beyond the last. Each field of a header has the same index.
    Element(Rc<[Field]>, Rc<Expr>),
    /// Parameter of the enclosing action.
    Param(usize),
    Not(Box<Expr>),
    Binary(Binary, Box<Expr>, Box<Expr>),
    Select(Box<Expr>, Box<Expr>, Box<Expr>),
    Fit(Fit, Box<Expr>, u16),
}

/// Values that a node can take: `[0, 2^bits)`, or `[-2^(bits-1), 2^(bits-1))`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    Unsigned(u32),
    Signed(u32),
}

/// No constant has more bits, and no left shift by a variable adds more.
const MAX_BITS: u32 = 1 << 16;
/// Bits of a value on its way at most.
const MAX_INTERMEDIATE_BITS: u32 = 1 << 20;
/// Nodes of an expression at most.
const MAX_NODES: usize = 1 << 16;

/// The expression, if it takes no more than so much memory and time to evaluate.
fn bounded(expr: Expr, place: &str) -> Result<Expr, LoadError> {
    if !expr.is_within(&mut { MAX_NODES }) {
        return refuse(place, format!("its expression is too large: more than {MAX_NODES} operands and operations"));
    }
    match expr.bits() {
        ..=MAX_INTERMEDIATE_BITS => Ok(expr),
        bits => refuse(
            place,
            format!("its expression has values of up to {bits} bits: at most {MAX_INTERMEDIATE_BITS} are supported"),
        ),
    }
}

impl Expr {
    /// Takes its nodes from `left`; false: there are more.
    fn is_within(&self, left: &mut usize) -> bool {
        let own = if let Expr::Element(fields, _) = self { fields.len() } else { 1 };
        let Some(rest) = left.checked_sub(own) else { return false };
        *left = rest;
        match self {
            Expr::Constant(_) | Expr::Field(_) | Expr::Param(_) => true,
            Expr::Element(_, index) => index.is_within(left),
            Expr::Not(a) | Expr::Fit(_, a, _) => a.is_within(left),
            Expr::Binary(_, a, b) => a.is_within(left) && b.is_within(left),
            Expr::Select(condition, a, b) => condition.is_within(left) && a.is_within(left) && b.is_within(left),
        }
    }

    /// Bits of the largest value on the way at most, with its sign.
    fn bits(&self) -> u32 {
        match self {
            Expr::Constant(value) => Range::of_constant(value).signed_bits(),
            Expr::Field(field) => u32::from(field.width) + 1,
            Expr::Element(fields, index) => (u32::from(fields[0].width) + 1).max(index.bits()),
            Expr::Param(_) => u32::from(MAX_WIDTH) + 1,
            Expr::Not(a) => a.bits(),
            Expr::Fit(_, a, width) => a.bits().max(u32::from(*width) + 1),
            Expr::Select(condition, a, b) => condition.bits().max(a.bits()).max(b.bits()),
            Expr::Binary(op, a, b) => {
                let (left, right) = (a.bits(), b.bits());
                match op {
                    Binary::Multiply => left.saturating_add(right),
                    Binary::ShiftLeft => match &**b {
                        Expr::Constant(amount) => left.saturating_add(u32::try_from(amount).unwrap_or(0).min(MAX_BITS)),
                        _ if right < 16 => left.saturating_add(1 << right),
                        _ => left.saturating_add(MAX_BITS),
                    }
                    .max(right),
                    _ => left.max(right).saturating_add(1),
                }
            }
        }
    }
}

impl Range {
    /// A 64-bit register tells all values apart.
    pub fn fits_register(self) -> bool {
        matches!(self, Range::Unsigned(bits) | Range::Signed(bits) if bits <= 64)
    }

    pub fn is_unsigned(self) -> bool {
        matches!(self, Range::Unsigned(_))
    }

    /// Bits of a signed range that contains this one.
    pub fn signed_bits(self) -> u32 {
        match self {
            Range::Unsigned(bits) => bits + 1,
            Range::Signed(bits) => bits,
        }
    }

    fn bits(self) -> u32 {
        match self {
            Range::Unsigned(bits) | Range::Signed(bits) => bits,
        }
    }

    pub fn of_field(field: Field) -> Range {
        if field.signed { Range::Signed(field.width as u32) } else { Range::Unsigned(field.width as u32) }
    }

    pub fn of_constant(value: &BigInt) -> Range {
        match value.sign() {
            Sign::Minus => Range::Signed((!value).bits() as u32 + 1),
            _ => Range::Unsigned(value.bits().max(1) as u32),
        }
    }

    pub fn of_binary(op: Binary, a: Range, b: Range) -> Range {
        let signed = a.signed_bits().max(b.signed_bits());
        let unsigned = a.bits().max(b.bits());
        let both_unsigned = a.is_unsigned() && b.is_unsigned();
        match op {
            Binary::Compare(_) => Range::Unsigned(1),
            Binary::Add if both_unsigned => Range::Unsigned(unsigned + 1),
            Binary::Add | Binary::Subtract => Range::Signed(signed + 1),
            Binary::Multiply if both_unsigned => Range::Unsigned(a.bits() + b.bits()),
            Binary::Multiply => Range::Signed(a.signed_bits() + b.signed_bits()),
            Binary::Divide | Binary::Modulo if both_unsigned => a,
            Binary::Divide | Binary::Modulo => Range::Signed(signed + 1),
            Binary::And => match (a, b) {
                (Range::Unsigned(x), Range::Unsigned(y)) => Range::Unsigned(x.min(y)),
                (Range::Unsigned(x), _) | (_, Range::Unsigned(x)) => Range::Unsigned(x),
                _ => Range::Signed(signed),
            },
            Binary::Or | Binary::Xor if both_unsigned => Range::Unsigned(unsigned),
            Binary::Or | Binary::Xor => Range::Signed(signed),
            Binary::ShiftLeft => {
                let most = if b.bits() < 16 { (1 << b.bits()) - 1 } else { MAX_BITS };
                let bits = (a.bits() + most).min(MAX_BITS);
                if a.is_unsigned() { Range::Unsigned(bits) } else { Range::Signed(bits) }
            }
            Binary::ShiftRight => a,
        }
    }

    pub fn of_select(a: Range, b: Range) -> Range {
        if a.is_unsigned() && b.is_unsigned() {
            Range::Unsigned(a.bits().max(b.bits()))
        } else {
            Range::Signed(a.signed_bits().max(b.signed_bits()))
        }
    }

    pub fn of_fit(fit: Fit, width: u16) -> Range {
        match fit {
            Fit::SaturateUnsigned => Range::Unsigned(width as u32),
            Fit::TwosComplement | Fit::SaturateSigned => Range::Signed(width as u32),
        }
    }

    /// Every value of `self` is one of `other`.
    pub fn within(self, other: Range) -> bool {
        match (self, other) {
            (Range::Unsigned(a), Range::Unsigned(b)) | (Range::Signed(a), Range::Signed(b)) => a <= b,
            (Range::Unsigned(a), Range::Signed(b)) => a < b,
            (Range::Signed(_), Range::Unsigned(_)) => false,
        }
    }
}

pub fn constant(value: u64) -> Expr {
    Expr::Constant(value.into())
}

/// Parses `0x1f`, `-0x1f`.
pub fn hex(text: &str, place: &str) -> Result<BigInt, LoadError> {
    if text.len() > MAX_BITS as usize / 4 {
        return refuse(place, format!("a constant of {} digits is longer than {MAX_BITS} bits", text.len()));
    }
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => (Sign::Minus, rest),
        None => (Sign::Plus, text),
    };
    match BigUint::parse_bytes(digits.strip_prefix("0x").unwrap_or(digits).as_bytes(), 16) {
        Some(value) => Ok(BigInt::from_biguint(sign, value)),
        None => refuse(place, format!("`{text}` is not a hexadecimal number")),
    }
}

/// The number in the bits of its type; negative ones in two's complement.
pub fn number(text: &str, width: u16, place: &str) -> Result<Number, LoadError> {
    let value = hex(text, place)?;
    if value < -power(u32::from(width) - 1) || value >= power(width.into()) {
        return refuse(place, format!("`{text}` does not fit in {width} bits"));
    }
    let mut bits = vec![0; words(width)];
    store(&value, width, &mut bits);
    Ok(Number::from_words(&bits))
}

/// The expression of a parameter or operand.
pub fn parse(typed: &Typed, phv: &Phv, place: &str) -> Result<Expr, LoadError> {
    match typed.kind.as_str() {
        "expression" => match typed.value.get("type") {
            // p4c wraps an expression in another where it stands for a value.
            Some(_) => parse(&to_typed(&typed.value, place)?, phv, place),
            None => bounded(parse_operation(&typed.value, phv, place)?, place),
        },
        "field" | "stack_field" | "union_stack_field" => match operands::field(typed, phv, place)? {
            Some(field) => bounded(field, place),
            None => refuse(place, format!("{} is not a field", typed.value)),
        },
        "hexstr" => Ok(Expr::Constant(hex(typed.value.as_str().unwrap_or_default(), place)?)),
        "bool" => match typed.value.as_bool() {
            Some(value) => Ok(constant(value.into())),
            None => refuse(place, "a `bool` is neither true nor false"),
        },
        "local" | "runtime_data" => match typed.value.as_u64() {
            Some(index) => Ok(Expr::Param(index as usize)),
            None => refuse(place, "a parameter reference is not a number"),
        },
        other => refuse(place, format!("`{other}` in an expression is not supported")),
    }
}

pub fn to_typed(value: &Value, place: &str) -> Result<Typed, LoadError> {
    serde_json::from_value(value.clone()).or_else(|_| refuse(place, format!("{value} is not an expression")))
}

fn parse_operation(value: &Value, phv: &Phv, place: &str) -> Result<Expr, LoadError> {
    let op = value.get("op").and_then(Value::as_str).unwrap_or_default();
    let operand = |name: &str| -> Result<Expr, LoadError> {
        match value.get(name) {
            Some(v) if !v.is_null() => parse(&to_typed(v, place)?, phv, place),
            _ => refuse(place, format!("operation `{op}` lacks its `{name}` operand")),
        }
    };
    let binary = |op: Binary| -> Result<Expr, LoadError> {
        Ok(Expr::Binary(op, Box::new(operand("left")?), Box::new(operand("right")?)))
    };
    let swapped = |op: Binary| -> Result<Expr, LoadError> {
        Ok(Expr::Binary(op, Box::new(operand("right")?), Box::new(operand("left")?)))
    };
    let fit = |fit: Fit| -> Result<Expr, LoadError> {
        match operand("right")? {
            Expr::Constant(width) if (BigInt::from(1)..=BigInt::from(MAX_WIDTH)).contains(&width) => {
                Ok(Expr::Fit(fit, Box::new(operand("left")?), low_word(&width) as u16))
            }
            _ => refuse(
                place,
                format!("`{op}` to a width that is not a constant from 1 to {MAX_WIDTH} is not supported"),
            ),
        }
    };
    let zero = || Box::new(constant(0));
    match op {
        "+" => binary(Binary::Add),
        "-" if value.get("left").is_none_or(Value::is_null) => {
            Ok(Expr::Binary(Binary::Subtract, zero(), Box::new(operand("right")?)))
        }
        "-" => binary(Binary::Subtract),
        "*" => binary(Binary::Multiply),
        "/" => binary(Binary::Divide),
        "%" => binary(Binary::Modulo),
        "&" | "and" => binary(Binary::And),
        "|" | "or" => binary(Binary::Or),
        "^" => binary(Binary::Xor),
        "<<" => binary(Binary::ShiftLeft),
        ">>" => binary(Binary::ShiftRight),
        "==" | "!=" => match (operand("left")?, operand("right")?) {
            (Expr::Field(a), Expr::Field(b)) if a.length.is_some() && b.length.is_some() => {
                let same = all(same_field(a, b));
                Ok(if op == "==" { same } else { equal(same, constant(0)) })
            }
            (a, b) if op == "==" => Ok(equal(a, b)),
            (a, b) => Ok(Expr::Binary(Binary::Compare(Compare::NotEqual), Box::new(a), Box::new(b))),
        },
        "<" => binary(Binary::Compare(Compare::Less)),
        "<=" => binary(Binary::Compare(Compare::LessOrEqual)),
        ">" => swapped(Binary::Compare(Compare::Less)),
        ">=" => swapped(Binary::Compare(Compare::LessOrEqual)),
        "~" => Ok(Expr::Not(Box::new(operand("right")?))),
        "not" => Ok(Expr::Binary(Binary::Compare(Compare::Equal), Box::new(operand("right")?), zero())),
        "d2b" => Ok(Expr::Binary(Binary::Compare(Compare::NotEqual), Box::new(operand("right")?), zero())),
        "b2d" => operand("right"),
        "==b" => binary(Binary::Compare(Compare::Equal)),
        "!=b" => binary(Binary::Compare(Compare::NotEqual)),
        "==h" | "!=h" => {
            let header =
                |name| operands::header(&to_typed(value.get(name).unwrap_or(&Value::Null), place)?, phv, place);
            same(vec![(header("left")?, header("right")?)], op == "==h", phv, place)
        }
        "==u" | "!=u" => {
            let union =
                |name| operands::union_members(&to_typed(value.get(name).unwrap_or(&Value::Null), place)?, phv, place);
            let (left, right) = (union("left")?, union("right")?);
            if left.len() != right.len() {
                return refuse(place, "unions of different types are compared");
            }
            let pairs = left.into_iter().zip(right).collect();
            same(pairs, op == "==u", phv, place)
        }
        "valid" => {
            let header = operands::header(&to_typed(value.get("right").unwrap_or(&Value::Null), place)?, phv, place)?;
            match header.field(|h| phv.header_field(h, "$valid$")) {
                Some(valid) => Ok(valid),
                None => refuse(place, "unknown header"),
            }
        }
        "valid_union" => {
            let union = to_typed(value.get("right").unwrap_or(&Value::Null), place)?;
            Ok(any(operands::union_validity(&union, phv, place)?))
        }
        "last_stack_index" | "size_stack" => {
            let (_, stack) =
                operands::stack(&to_typed(value.get("right").unwrap_or(&Value::Null), place)?, phv, place)?;
            Ok(if op == "size_stack" { Expr::Field(stack.next) } else { operands::last_index(stack.next) })
        }
        "access_field" => {
            let typed = Typed { kind: "expression".to_string(), value: value.clone(), bitwidth: None };
            match operands::field(&typed, phv, place)? {
                Some(field) => Ok(field),
                None => refuse(place, "not a field"),
            }
        }
        "?" => Ok(Expr::Select(Box::new(operand("cond")?), Box::new(operand("left")?), Box::new(operand("right")?))),
        "two_comp_mod" => fit(Fit::TwosComplement),
        "sat_cast" => fit(Fit::SaturateSigned),
        "usat_cast" => fit(Fit::SaturateUnsigned),
        other => refuse(place, format!("operation `{other}` is not supported")),
    }
}

fn any(conditions: Vec<Expr>) -> Expr {
    combine(Binary::Or, conditions).unwrap_or_else(|| constant(0))
}

fn all(conditions: Vec<Expr>) -> Expr {
    combine(Binary::And, conditions).unwrap_or_else(|| constant(1))
}

/// Combines conditions to a tree that is not deep: a header may have thousands of fields.
fn combine(op: Binary, mut conditions: Vec<Expr>) -> Option<Expr> {
    while conditions.len() > 1 {
        let mut pairs = Vec::with_capacity(conditions.len().div_ceil(2));
        let mut rest = conditions.into_iter();
        while let Some(a) = rest.next() {
            pairs.push(match rest.next() {
                Some(b) => Expr::Binary(op, Box::new(a), Box::new(b)),
                None => a,
            });
        }
        conditions = pairs;
    }
    conditions.pop()
}

fn equal(a: Expr, b: Expr) -> Expr {
    Expr::Binary(Binary::Compare(Compare::Equal), Box::new(a), Box::new(b))
}

/// Headers, pair by pair: both invalid, or both valid with the same fields.
fn same(pairs: Vec<(HeaderRef, HeaderRef)>, when: bool, phv: &Phv, place: &str) -> Result<Expr, LoadError> {
    let mut conditions = Vec::new();
    for (a, b) in pairs {
        let valid =
            |header: &HeaderRef| header.field(|h| phv.header_field(h, "$valid$")).unwrap_or_else(|| constant(0));
        let count = |header: &HeaderRef| phv.headers[header.sample() as usize].fields.len();
        if count(&a) != count(&b) {
            return refuse(place, "headers of different types are compared");
        }
        let field = |header: &HeaderRef, at: usize, find: fn(Field) -> Option<Field>| {
            header.field(|h| phv.headers[h as usize].fields.get(at).copied().and_then(find))
        };
        let mut fields = Vec::new();
        // For varbits the lengths, too.
        for find in [Some, Field::of_length] {
            let pairs = (0..count(&a)).filter_map(|at| Some((field(&a, at, find)?, field(&b, at, find)?)));
            fields.extend(pairs.map(|(a, b)| equal(a, b)));
        }
        fields.push(valid(&a));
        fields.push(valid(&b));
        let neither = equal(any(vec![valid(&a), valid(&b)]), constant(0));
        conditions.push(any(vec![neither, all(fields)]));
    }
    let same = all(conditions);
    Ok(if when { same } else { equal(same, constant(0)) })
}

/// Compares two fields; of varbits also the lengths.
fn same_field(a: Field, b: Field) -> Vec<Expr> {
    let mut conditions = vec![equal(Expr::Field(a), Expr::Field(b))];
    if let (Some(x), Some(y)) = (a.of_length(), b.of_length()) {
        conditions.push(equal(Expr::Field(x), Expr::Field(y)));
    }
    conditions
}

// SPDX-License-Identifier: Apache-2.0
//! Primitives of actions and parser states to instructions.

use super::asm::{Assembler, Label};
use super::expr::{self, Expr, Range, constant};
use super::json::{Primitive, Typed};
use super::operands::{self, HeaderRef};
use super::phv::{Field, StackInfo};
use super::{LoadError, Objects, place_of};
use crate::state::code::Message;
use crate::state::headers::{self, HeaderOp};
use crate::state::op::{Compare, Effect, Op, Reg};
use crate::state::wide::{Binary, low_word};

/// Times that actions may go back to an earlier primitive for one packet; those that go back once more end.
const MAX_JUMPS_BACK: u64 = 4096;

/// Compiles the body of an action. [`Assembler::params`] tells what its parameters are.
pub fn body(
    primitives: &[Primitive],
    action: &str,
    asm: &mut Assembler,
    objects: &Objects,
    messages: &mut Vec<Message>,
) -> Result<(), LoadError> {
    // Jump targets are indices of primitives; one past the last is the end.
    let labels: Vec<Label> = (0..=primitives.len()).map(|_| asm.new_label()).collect();
    for (index, primitive) in primitives.iter().enumerate() {
        asm.bind(labels[index]);
        asm.next_statement();
        asm.place = place_of(&format!("action `{action}`, primitive"), &primitive.op, &primitive.source_info);
        let mut step = Step { asm: &mut *asm, objects, primitive };
        step.compile(&Labels { all: &labels, behind: index + 1 }, messages)?;
    }
    asm.bind(labels[primitives.len()]);
    Ok(())
}

/// Compiles one primitive outside an action, where nothing can be jumped to.
pub fn single(
    primitive: &Primitive,
    context: &str,
    asm: &mut Assembler,
    objects: &Objects,
    messages: &mut Vec<Message>,
) -> Result<(), LoadError> {
    asm.next_statement();
    asm.place = place_of(&format!("{context}, primitive"), &primitive.op, &primitive.source_info);
    Step { asm, objects, primitive }.compile(&Labels { all: &[], behind: 0 }, messages)
}

/// Labels that a primitive may jump to.
struct Labels<'l> {
    all: &'l [Label],
    behind: usize,
}

/// Destination of a primitive's result.
struct Target {
    field: Field,
    /// Operation that takes it to the element that it belongs to.
    store: Option<HeaderOp>,
}

struct Step<'s, 'a> {
    asm: &'s mut Assembler<'a>,
    objects: &'s Objects,
    primitive: &'s Primitive,
}

impl Step<'_, '_> {
    fn compile(&mut self, labels: &Labels, messages: &mut Vec<Message>) -> Result<(), LoadError> {
        self.asm.check_length()?;
        match self.primitive.op.as_str() {
            "assign" | "set" => {
                let value = self.expr(1)?;
                match self.lvalue(0)? {
                    Expr::Field(dst) => self.asm.assign(dst, &value)?,
                    element => {
                        let target = self.element_target(element)?;
                        self.asm.assign(target.field, &value)?;
                        self.store(target);
                    }
                }
            }
            "assign_VL" => {
                let ((dst, to), (src, from)) = (self.varbit(0)?, self.varbit(1)?);
                if to != from {
                    return self.asm.refuse(format!("the two are of different lengths: at most {to} and {from} bits"));
                }
                self.asm.header_op(HeaderOp::CopyVarbit { dst, src });
            }
            "assign_header" => {
                let (dst, src) = (self.header(0)?, self.header(1)?);
                self.copy_header(&dst, &src)?;
            }
            "assign_union" => {
                let members = |index| operands::union_members(self.param(index)?, self.asm.phv, &self.asm.place);
                self.copy_headers(members(0)?, members(1)?)?;
            }
            "assign_header_stack" | "assign_union_stack" => {
                let ((_, to), (_, from)) = (self.stack(0)?, self.stack(1)?);
                if to.elements.len() != from.elements.len() {
                    return self.asm.refuse("the two are of different types");
                }
                let fixed = |info: &StackInfo| info.elements.concat().into_iter().map(HeaderRef::Fixed).collect();
                let (dst, src) = (fixed(to), fixed(from));
                self.push(Op::Move { dst: to.next.reg, a: from.next.reg });
                self.copy_headers(dst, src)?;
            }
            "push" | "pop" => {
                let stack = self.stack(0)?.0;
                let count = self.value(1)?;
                let push = self.primitive.op == "push";
                self.asm.header_op(if push { HeaderOp::Push { stack, count } } else { HeaderOp::Pop { stack, count } });
            }
            "add_header" => match self.header(0)? {
                HeaderRef::Fixed(header) if self.asm.phv.headers[header as usize].is_plain() => {
                    self.effect(Effect::AddHeader { header });
                }
                header => {
                    let header = self.asm.header_ref(&header)?;
                    self.asm.header_op(HeaderOp::Add(header));
                }
            },
            "remove_header" => match self.header(0)? {
                HeaderRef::Fixed(header) if self.asm.phv.headers[header as usize].is_plain() => {
                    self.effect(Effect::RemoveHeader { header });
                }
                header => {
                    let header = self.asm.header_ref(&header)?;
                    self.asm.header_op(HeaderOp::Remove(header));
                }
            },
            "mark_to_drop" | "drop" => self.push(Op::MarkToDrop),
            "exit" => self.push(Op::Exit),
            "no_op" => {}
            "count" => {
                let counter = self.object(0, "counter_array", |o, name| o.counters.get(name).copied())?;
                let index = self.value(1)?;
                self.push(Op::Count { counter, index });
            }
            "execute_meter" => {
                let (meter, size) = self.object(0, "meter_array", |o, name| o.meters.get(name).copied())?;
                let (index, target) = (self.value(1)?, self.target(2)?);
                let end = self.asm.constant(size as u64)?;
                let exists = self.condition(target.field, index, Compare::Less, end)?;
                self.effect(Effect::ExecuteMeter { meter, index, dst: target.field.reg });
                self.fit(target.field, 2, exists)?;
                self.store(target);
            }
            "register_read" => {
                let target = self.target(0)?;
                let (register, width, size) =
                    self.object(1, "register_array", |o, name| o.registers.get(name).copied())?;
                let index = self.value(2)?;
                let end = self.asm.constant(size as u64)?;
                if width > 64 {
                    let skip = self.asm.new_label();
                    self.asm.branch_if(Compare::LessOrEqual, end, index, skip);
                    let cell = self.asm.temporary_field(width)?;
                    self.effect(Effect::ReadCell { dst: cell.reg, words: cell.words(), register, index });
                    self.asm.assign(target.field, &Expr::Field(cell))?;
                    self.store(target);
                    self.asm.bind(skip);
                    return Ok(());
                }
                let exists = self.condition(target.field, index, Compare::Less, end)?;
                self.push(Op::ReadRegister { dst: target.field.reg, register, index });
                self.fit(target.field, width, exists)?;
                self.store(target);
            }
            "register_write" => {
                let (register, width, _) =
                    self.object(0, "register_array", |o, name| o.registers.get(name).copied())?;
                let index = self.value(1)?;
                if width > 64 {
                    let cell = self.asm.temporary_field(width)?;
                    self.asm.assign(cell, &self.expr(2)?)?;
                    self.effect(Effect::WriteCell { register, index, a: cell.reg, words: cell.words() });
                    return Ok(());
                }
                // The cell keeps its own width.
                let mask = constant(u64::MAX >> (64 - width));
                let a = self.asm.value(&Expr::Binary(Binary::And, Box::new(self.expr(2)?), Box::new(mask)))?;
                self.push(Op::WriteRegister { register, index, a });
            }
            "generate_digest" => {
                let id = self.number(1)?;
                match self.objects.digests.get(&id) {
                    Some(&list) => self.effect(Effect::Digest { list }),
                    None => return self.asm.refuse(format!("unknown learn list {id}")),
                }
            }
            "modify_field_rng_uniform" => {
                let target = self.target(0)?;
                let (low, high) = (self.value(1)?, self.value(2)?);
                let some = self.condition(target.field, low, Compare::LessOrEqual, high)?;
                self.effect(Effect::Random { dst: target.field.reg, low, high });
                self.fit(target.field, 64, some)?;
                self.store(target);
            }
            "modify_field_with_hash_based_offset" => {
                let target = self.target(0)?;
                let (low, size) = (self.value(1)?, self.value(3)?);
                let (calculation, payload) =
                    self.object(2, "calculation", |o, name| o.calculations.get(name).copied())?;
                if payload {
                    return self.asm.refuse("a hash over the payload is not supported");
                }
                self.effect(Effect::Hash { dst: target.field.reg, calculation, low, size });
                self.fit(target.field, 64, None)?;
                self.store(target);
            }
            "clone_ingress_pkt_to_egress" | "clone_egress_pkt_to_egress" => {
                let session = self.value(0)?;
                let fields = self.field_list(1)?;
                self.effect(Effect::Clone { session, fields });
            }
            "resubmit" => {
                let fields = self.field_list(0)?;
                self.effect(Effect::Resubmit { fields });
            }
            "recirculate" => {
                let fields = self.field_list(0)?;
                self.effect(Effect::Recirculate { fields });
            }
            "truncate" => {
                let length = self.value(0)?;
                self.effect(Effect::Truncate { length });
            }
            "_jump" => {
                let to = self.label(0, labels)?;
                self.asm.jump(to);
            }
            "_jump_if_zero" => {
                let to = self.label(1, labels)?;
                let condition = self.expr(0)?;
                self.asm.branch(&condition, false, to)?;
            }
            "assert" | "assume" => {
                let holds = self.asm.new_label();
                let condition = self.expr(0)?;
                self.asm.branch(&condition, true, holds)?;
                let place = self.asm.place.clone();
                messages.push(Message { place, format: String::new(), values: Vec::new() });
                self.effect(Effect::AssertionFailed { message: messages.len() as u32 - 1 });
                self.push(Op::MarkToDrop);
                self.push(Op::Exit);
                self.asm.bind(holds);
            }
            "log_msg" => {
                let format = self.param(0)?.value.as_str().unwrap_or_default().to_string();
                let values = match self.primitive.parameters.get(1) {
                    None => Vec::new(),
                    Some(vector) => {
                        let items: Vec<Typed> = serde_json::from_value(vector.value.clone()).unwrap_or_default();
                        let wide = |item| self.asm.to_wide(&expr::parse(item, self.asm.phv, &self.asm.place)?);
                        items.iter().map(wide).collect::<Result<_, _>>()?
                    }
                };
                messages.push(Message { place: self.asm.place.clone(), format, values });
                self.effect(Effect::Log { message: messages.len() as u32 - 1 });
            }
            _ => return self.asm.refuse("not supported"),
        }
        Ok(())
    }

    fn effect(&mut self, effect: Effect) {
        self.push(Op::Effect(effect));
    }

    fn push(&mut self, op: Op) {
        self.asm.code.push(op);
    }

    /// Guards an instruction that writes to a wide field, which cannot do so itself.
    fn condition(&mut self, dst: Field, a: Reg, compare: Compare, b: Reg) -> Result<Option<Reg>, LoadError> {
        if !dst.is_wide() {
            return Ok(None);
        }
        let condition = self.asm.temporaries(1)?;
        self.push(Op::Compare { dst: condition, a, b, compare });
        Ok(Some(condition))
    }

    /// Cuts what an instruction has just written into `dst` (`width` bits) to the field. `written`: where it is 0, the
    /// instruction has not written.
    fn fit(&mut self, dst: Field, width: u16, written: Option<Reg>) -> Result<(), LoadError> {
        if dst.is_wide() {
            let zero = self.asm.constant(0)?;
            for high in dst.reg + 1..dst.reg + dst.words() {
                self.push(match written {
                    Some(condition) => Op::Select { dst: high, condition, a: zero, b: high },
                    None => Op::Move { dst: high, a: zero },
                });
            }
        } else if !Range::Unsigned(width as u32).within(Range::of_field(dst)) {
            let written = Field { width: 64, signed: false, ..dst };
            self.asm.assign(dst, &Expr::Field(written))?;
        }
        Ok(())
    }

    fn param(&self, index: usize) -> Result<&Typed, LoadError> {
        match self.primitive.parameters.get(index) {
            Some(param) => Ok(param),
            None => self.asm.refuse(format!("lacks parameter {index}")),
        }
    }

    /// Returns the destination of a primitive: [`Expr::Field`] or [`Expr::Element`].
    fn lvalue(&self, index: usize) -> Result<Expr, LoadError> {
        let param = self.param(index)?;
        match operands::field(param, self.asm.phv, &self.asm.place)? {
            Some(field) => Ok(field),
            None => self.asm.refuse(format!("writing to `{}` is not supported", param.kind)),
        }
    }

    fn target(&mut self, index: usize) -> Result<Target, LoadError> {
        match self.lvalue(index)? {
            Expr::Field(field) => Ok(Target { field, store: None }),
            element => self.element_target(element),
        }
    }

    /// A copy of the element's field, that goes back with [`Step::store`].
    fn element_target(&mut self, element: Expr) -> Result<Target, LoadError> {
        let Expr::Element(fields, index) = &element else {
            return self.asm.refuse("writing to an expression is not supported");
        };
        let words = fields[0].words();
        let field = Field { reg: self.asm.temporaries(words)?, ..fields[0] };
        self.asm.assign(field, &element)?;
        let index = self.asm.value(index)?;
        let fields = fields.iter().map(|f| (f.reg, self.asm.phv.offset(f.header))).collect();
        Ok(Target { field, store: Some(HeaderOp::Store { fields, words, index, value: field.reg }) })
    }

    fn store(&mut self, target: Target) {
        if let Some(op) = target.store {
            self.asm.header_op(op);
        }
    }

    fn header(&self, index: usize) -> Result<HeaderRef, LoadError> {
        operands::header(self.param(index)?, self.asm.phv, &self.asm.place)
    }

    fn stack(&self, index: usize) -> Result<(u16, &StackInfo), LoadError> {
        operands::stack(self.param(index)?, self.asm.phv, &self.asm.place)
    }

    /// The header of a varbit, and the bits that it has at most.
    fn varbit(&mut self, index: usize) -> Result<(headers::HeaderRef, u16), LoadError> {
        match self.lvalue(index)? {
            Expr::Field(field) if field.length.is_some() => Ok((headers::HeaderRef::Fixed(field.header), field.width)),
            Expr::Element(fields, index) if fields[0].length.is_some() => {
                let headers = fields.iter().map(|field| field.header).collect();
                Ok((self.asm.header_ref(&HeaderRef::Indexed { headers, index })?, fields[0].width))
            }
            _ => self.asm.refuse("a varbit is needed"),
        }
    }

    fn copy_headers(&mut self, dst: Vec<HeaderRef>, src: Vec<HeaderRef>) -> Result<(), LoadError> {
        if dst.len() != src.len() {
            return self.asm.refuse("the two are of different types");
        }
        for (dst, src) in dst.into_iter().zip(src) {
            self.copy_header(&dst, &src)?;
        }
        Ok(())
    }

    fn copy_header(&mut self, dst: &HeaderRef, src: &HeaderRef) -> Result<(), LoadError> {
        let info = |header: &HeaderRef| &self.asm.phv.headers[header.sample() as usize];
        if !info(dst).shape().eq(info(src).shape()) {
            return self.asm.refuse("the two are of different types");
        }
        match (dst, src) {
            (&HeaderRef::Fixed(dst), &HeaderRef::Fixed(src)) if self.asm.phv.headers[dst as usize].is_plain() => {
                self.effect(Effect::CopyHeader { dst, src });
            }
            (dst, src) => {
                let (dst, src) = (self.asm.header_ref(dst)?, self.asm.header_ref(src)?);
                self.asm.header_op(HeaderOp::Copy { dst, src });
            }
        }
        Ok(())
    }

    fn expr(&self, index: usize) -> Result<Expr, LoadError> {
        expr::parse(self.param(index)?, self.asm.phv, &self.asm.place)
    }

    fn value(&mut self, index: usize) -> Result<Reg, LoadError> {
        let param = self.param(index)?.clone();
        self.value_of(&param)
    }

    fn value_of(&mut self, param: &Typed) -> Result<Reg, LoadError> {
        let expr = expr::parse(param, self.asm.phv, &self.asm.place)?;
        self.asm.value(&expr)
    }

    fn number(&self, index: usize) -> Result<u64, LoadError> {
        match self.expr(index)? {
            Expr::Constant(value) => Ok(low_word(&value)),
            _ => self.asm.refuse(format!("parameter {index} is not a constant")),
        }
    }

    fn field_list(&self, index: usize) -> Result<u16, LoadError> {
        let id = self.number(index)?;
        match self.objects.field_lists.get(&id) {
            Some(&list) => Ok(list),
            None => self.asm.refuse(format!("unknown field list {id}")),
        }
    }

    fn object<T>(&self, index: usize, kind: &str, find: impl Fn(&Objects, &str) -> Option<T>) -> Result<T, LoadError> {
        let param = self.param(index)?;
        let name = param.value.as_str().unwrap_or_default();
        match find(self.objects, name) {
            Some(object) if param.kind == kind => Ok(object),
            _ => self.asm.refuse(format!("unknown {kind} {}", param.value)),
        }
    }

    /// The label that a parameter names. If it is not behind this primitive (P4's for loops go back), what is emitted
    /// next is counted, and the action ends with more than [`MAX_JUMPS_BACK`].
    fn label(&mut self, index: usize, labels: &Labels) -> Result<Label, LoadError> {
        let target = self.number(index)? as usize;
        let (Some(&label), Some(&end)) = (labels.all.get(target), labels.all.last()) else {
            return self.asm.refuse(format!("there is no primitive {target} to jump to"));
        };
        if let Some(rounds) = self.asm.phv.jumps_back.filter(|_| target < labels.behind) {
            let (one, most) = (self.asm.constant(1)?, self.asm.constant(MAX_JUMPS_BACK)?);
            self.push(Op::Add { dst: rounds, a: rounds, b: one });
            self.asm.branch_if(Compare::Less, most, rounds, end);
        }
        Ok(label)
    }
}

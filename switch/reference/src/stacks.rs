// SPDX-License-Identifier: Apache-2.0
//! Headers, unions and stacks of them as a whole: copied, pushed, popped.

use super::phv::{Packet, Phv};
use super::program::*;

pub fn copy_header(program: &Program, packet: &mut Packet, to: usize, from: usize) {
    let value = packet.phv.headers[from].clone();
    packet.phv.set_valid(program, to, value.valid);
    if value.valid {
        packet.phv.headers[to] = value;
    }
}

pub fn copy_union(program: &Program, packet: &mut Packet, to: usize, from: usize) {
    // The invalid ones first, so that they do not end the validity of the valid one.
    let mut pairs: Vec<_> = program.unions[to].members.iter().zip(&program.unions[from].members).collect();
    pairs.sort_by_key(|(_, from)| packet.phv.headers[**from].valid);
    pairs.into_iter().for_each(|(&to, &from)| copy_header(program, packet, to, from));
}

pub fn copy_stack(program: &Program, packet: &mut Packet, to: AnyStack, from: AnyStack) {
    match (to, from) {
        (AnyStack::Headers(to), AnyStack::Headers(from)) => {
            packet.phv.filled[to] = packet.phv.filled[from];
            let pairs = program.stacks[to].elements.iter().zip(&program.stacks[from].elements);
            pairs.for_each(|(&to, &from)| copy_header(program, packet, to, from));
        }
        (AnyStack::Unions(to), AnyStack::Unions(from)) => {
            packet.phv.filled_unions[to] = packet.phv.filled_unions[from];
            let pairs = program.union_stacks[to].elements.iter().zip(&program.union_stacks[from].elements);
            pairs.for_each(|(&to, &from)| copy_union(program, packet, to, from));
        }
        _ => {}
    }
}

/// The headers of each element of a stack.
fn elements(program: &Program, stack: AnyStack) -> Vec<Vec<usize>> {
    match stack {
        AnyStack::Headers(stack) => program.stacks[stack].elements.iter().map(|&header| vec![header]).collect(),
        AnyStack::Unions(stack) => {
            program.union_stacks[stack].elements.iter().map(|&union| program.unions[union].members.clone()).collect()
        }
    }
}

fn filled(phv: &mut Phv, stack: AnyStack) -> &mut usize {
    match stack {
        AnyStack::Headers(stack) => &mut phv.filled[stack],
        AnyStack::Unions(stack) => &mut phv.filled_unions[stack],
    }
}

fn swap(phv: &mut Phv, a: &[usize], b: &[usize]) {
    a.iter().zip(b).for_each(|(&a, &b)| phv.headers.swap(a, b));
}

/// Elements move up; those that are new are invalid.
pub fn push(program: &Program, phv: &mut Phv, stack: AnyStack, count: usize) {
    let elements = elements(program, stack);
    let count = count.min(elements.len());
    for index in (count..elements.len()).rev() {
        swap(phv, &elements[index], &elements[index - count]);
    }
    elements[..count].iter().flatten().for_each(|&header| phv.headers[header].valid = false);
    let filled = filled(phv, stack);
    *filled = (*filled + count).min(elements.len());
}

pub fn pop(program: &Program, phv: &mut Phv, stack: AnyStack, count: usize) {
    let elements = elements(program, stack);
    let count = count.min(elements.len());
    let kept = elements.len() - count;
    for index in 0..kept {
        swap(phv, &elements[index], &elements[index + count]);
    }
    elements[kept..].iter().flatten().for_each(|&header| phv.headers[header].valid = false);
    let filled = filled(phv, stack);
    *filled = filled.saturating_sub(count);
}

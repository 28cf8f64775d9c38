// SPDX-License-Identifier: Apache-2.0
//! Native code: a program's parser, controls and deparser, translated by Cranelift when the program is loaded.
//!
//! An instruction means what is said of it here, in `emit` (arithmetic and jumps) and `parser`, or, if it does more, in
//! the method of [`State`] that the native code calls for it (`helpers`); nothing is said twice. A new kind of
//! [`Effect`](crate::state::op::Effect), parser operation or transition needs no more than an arm in that method.
//!
//! The registers stay where they are, in memory: Cranelift knows that no two of them overlap, keeps what is read and
//! written again in the processor, and leaves out what is overwritten before a call can see it.
#![allow(unsafe_code)]

mod checks;
mod emit;
mod helpers;
mod parser;
mod site;

use std::fmt;
use std::sync::{Arc, Mutex};

use cranelift_codegen::CodegenError;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{AbiParam, InstBuilder};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{FuncId, Linkage, Module, ModuleError, default_libcall_names};

pub use self::checks::check_native_code;
use self::checks::{Checks, checked};
use self::emit::Emitter;
pub use self::site::Site;
use crate::state::State;
use crate::state::code::Code;
use crate::state::frame::Frame;

/// Arguments: state, its registers, time in ns, frame and its buffer (null in the controls).
type Entry = unsafe extern "C" fn(*mut State, *mut u64, u64, *mut Frame, *mut u8) -> u64;

/// A frame of more than a page is touched page by page, so that one that is too large meets the guard page.
const SETTINGS: [(&str, &str); 5] = [
    ("opt_level", "speed"),
    ("is_pic", "false"),
    ("unwind_info", "false"),
    ("enable_probestack", "true"),
    ("probestack_strategy", "inline"),
];

/// Bytes of stack that native code takes at most; the packet thread has 2 MiB.
const MAX_STACK_BYTES: u32 = 256 << 10;

/// The native code of one program.
pub struct Native {
    parse: Entry,
    ingress: Entry,
    egress: Entry,
    deparse: Entry,
    /// The memory of the code; taken out only to be freed.
    module: Mutex<Option<JITModule>>,
    /// The native code holds pointers into it.
    _code: Arc<Code>,
    /// As well, if it checks what it accesses.
    checks: Option<Vec<Box<Site>>>,
}

impl Native {
    /// Fails if this machine's processor is none that Cranelift knows, or the program is too large for it.
    pub fn compile(code: &Arc<Code>) -> Result<Native, String> {
        let mut flags = settings::builder();
        for (name, value) in SETTINGS {
            flags.set(name, value).map_err(|e| e.to_string())?;
        }
        let isa = cranelift_native::builder()?;
        let isa = isa.finish(settings::Flags::new(flags)).map_err(|e| e.to_string())?;
        let mut module = JITModule::new(JITBuilder::with_isa(isa, default_libcall_names()));
        let mut checks = checked().then(Vec::new);
        let mut function = |name, emit: &dyn Fn(&mut Emitter)| define(&mut module, code, name, &mut checks, emit);
        let parse = function("parser", &parser::parse)?;
        let ingress = function("ingress", &|emitter| control(emitter, code.ingress))?;
        let egress = function("egress", &|emitter| control(emitter, code.egress))?;
        let deparse = function("deparser", &parser::deparse)?;
        module.finalize_definitions().map_err(|e| e.to_string())?;
        let entry = |id: FuncId| {
            // SAFETY: the function was built with the signature of `Entry`, and its memory stays until `self` is dropped.
            unsafe { std::mem::transmute::<*const u8, Entry>(module.get_finalized_function(id)) }
        };
        let (parse, ingress, egress, deparse) = (entry(parse), entry(ingress), entry(egress), entry(deparse));
        Ok(Native { parse, ingress, egress, deparse, module: Mutex::new(Some(module)), _code: code.clone(), checks })
    }

    pub fn parse(&self, state: &mut State, frame: &Frame, now: u64) {
        let bytes = frame.buffer().as_ptr().cast_mut();
        // The parser only reads the frame.
        self.call(self.parse, state, now, std::ptr::from_ref(frame).cast_mut(), bytes);
    }

    pub fn ingress(&self, state: &mut State, now: u64) {
        self.call(self.ingress, state, now, std::ptr::null_mut(), std::ptr::null_mut());
    }

    pub fn egress(&self, state: &mut State, now: u64) {
        self.call(self.egress, state, now, std::ptr::null_mut(), std::ptr::null_mut());
    }

    pub fn deparse(&self, state: &mut State, frame: &mut Frame, now: u64) -> bool {
        let bytes = frame.buffer_mut().as_mut_ptr();
        self.call(self.deparse, state, now, frame, bytes) != 0
    }

    #[inline]
    fn call(&self, entry: Entry, state: &mut State, now: u64, frame: *mut Frame, bytes: *mut u8) -> u64 {
        let state: *mut State = state;
        // SAFETY: the state belongs to this program (a `Machine` keeps both), so every register, table and array that
        // the code names is there; state and frame are borrowed for the whole call, and nobody else touches them.
        // Registers are indexed below their number, and the frame's bytes between its start and end, with the tailroom
        // behind it.
        let result = unsafe {
            let regs = (&raw mut *(*state).regs).cast::<u64>();
            entry(state, regs, now, frame, bytes)
        };
        if self.checks.is_some() {
            // SAFETY: as before; the call is over.
            let violation = unsafe { (*state).violation.take() };
            assert!(violation.is_none(), "native code: {}", violation.unwrap_or_default());
        }
        result
    }
}

impl fmt::Debug for Native {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Native").finish_non_exhaustive()
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        if let Some(module) = self.module.get_mut().ok().and_then(Option::take) {
            // SAFETY: whoever runs the code borrows `self`, so nobody does any more.
            unsafe { module.free_memory() }
        }
    }
}

/// Ingress or egress.
fn control(emitter: &mut Emitter, start: u32) {
    let end = emitter.builder.create_block();
    emitter.run(start, end);
    emitter.builder.switch_to_block(end);
    let done = emitter.constant(0);
    emitter.builder.ins().return_(&[done]);
}

/// `checks`: what the code asks about, if it checks what it accesses.
fn define(
    module: &mut JITModule,
    code: &Code,
    name: &'static str,
    checks: &mut Option<Vec<Box<Site>>>,
    emit: &dyn Fn(&mut Emitter),
) -> Result<FuncId, String> {
    let mut signature = module.make_signature();
    signature.params = vec![AbiParam::new(I64); 5];
    signature.returns = vec![AbiParam::new(I64)];
    let mut context = module.make_context();
    context.func.signature = signature.clone();
    let mut builder_context = FunctionBuilderContext::new();
    let builder = FunctionBuilder::new(&mut context.func, &mut builder_context);
    let mut emitter = Emitter::new(builder, code, signature.call_conv, Checks::new(name, checks.take()));
    emit(&mut emitter);
    *checks = emitter.finish()?;
    emitter.builder.seal_all_blocks();
    emitter.builder.finalize(module.target_config());
    let id = module.declare_function(name, Linkage::Local, &signature).map_err(|e| e.to_string())?;
    module.define_function(id, &mut context).map_err(|e| refusal(name, &e))?;
    let frame = context.compiled_code().and_then(|compiled| compiled.buffer.frame_layout());
    match frame.map_or(0, |frame| frame.frame_to_fp_offset) {
        ..=MAX_STACK_BYTES => Ok(id),
        bytes => Err(format!("the {name} takes {bytes} bytes of stack, more than {MAX_STACK_BYTES}: it is too long")),
    }
}

/// Says why Cranelift refuses a function.
fn refusal(name: &str, error: &ModuleError) -> String {
    use CodegenError::{CodeTooLarge, ImplLimitExceeded, Verifier};
    match error {
        ModuleError::Compilation(CodeTooLarge | ImplLimitExceeded) => format!("the {name} is too long for Cranelift"),
        ModuleError::Compilation(Verifier(errors)) => {
            format!("the {name} became code that Cranelift refuses, a bug of this switch:\n{errors}")
        }
        other => format!("the {name} cannot be compiled: {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_function_and_the_reason() {
        let refused = |error| refusal("parser", &ModuleError::Compilation(error));
        assert_eq!(refused(CodegenError::CodeTooLarge), "the parser is too long for Cranelift");
        let unsupported = refused(CodegenError::Unsupported("a vector".into()));
        assert_eq!(unsupported, "the parser cannot be compiled: Compilation error: Unsupported feature: a vector");
    }
}

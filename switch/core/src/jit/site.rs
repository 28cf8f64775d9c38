// SPDX-License-Identifier: Apache-2.0
//! Names for the places in native code that access memory.

use crate::state::bounds::Memory;

/// A place in native code that accesses memory.
#[derive(Debug)]
pub struct Site {
    pub memory: Memory,
    /// Such as `ingress, instruction 17`.
    pub place: String,
}

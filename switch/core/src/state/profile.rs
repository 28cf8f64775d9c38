// SPDX-License-Identifier: Apache-2.0
//! Action profiles: actions that entries share, alone or in groups from which a hash chooses.

use super::bounds::within;
use super::code::is_whole;

/// Mark of a group in the reference that an entry of an indirect table holds in place of an action; without it: a
/// member's slot. group.
pub const GROUP: u64 = 1 << 32;

#[derive(Default)]
pub struct Profile {
    /// By slot: index among the table's actions, and parameters.
    members: Vec<Box<[u64]>>,
    /// By slot: slots of members.
    groups: Vec<Box<[u32]>>,
    /// Words of each action's parameters.
    params: Box<[usize]>,
}

impl Profile {
    pub fn new(params: Box<[usize]>) -> Profile {
        Profile { params, ..Profile::default() }
    }

    /// An empty action: there was no member in the slot before.
    pub fn swap_member(&mut self, slot: u32, action: &mut Box<[u64]>) {
        assert!(action.is_empty() || is_whole(action, &self.params), "the action of a member lacks parameters");
        if self.members.len() <= slot as usize {
            self.members.resize(slot as usize + 1, Box::default());
        }
        std::mem::swap(&mut self.members[slot as usize], action);
    }

    pub fn swap_group(&mut self, slot: u32, members: &mut Box<[u32]>) {
        if self.groups.len() <= slot as usize {
            self.groups.resize(slot as usize + 1, Box::default());
        }
        std::mem::swap(&mut self.groups[slot as usize], members);
    }

    /// The action that an entry refers to; `None`: an empty group.
    pub fn action(&self, reference: u64, hash: u64) -> Option<&[u64]> {
        let slot = reference as u32;
        let member = if reference & GROUP == 0 {
            slot
        } else {
            let members = self.groups.get(slot as usize)?;
            members[hash.checked_rem(members.len() as u64)? as usize]
        };
        // A slot that no member was put into has none.
        self.members.get(member as usize).map(|action| &**action).filter(|action| !action.is_empty())
    }

    /// All these bytes are of the action of one member.
    pub fn holds(&self, address: usize, bytes: usize) -> bool {
        self.members.iter().any(|action| within(&**action, address, bytes))
    }
}

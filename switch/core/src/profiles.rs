// SPDX-License-Identifier: Apache-2.0
//! Members and groups of an action profile, as written. Members and groups have ids of the client's and slots that are
//! given out here; one-shot groups have slots only.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::dataplane_ops::Change;
use crate::port::PortNumber;
use crate::program::{ActionCall, ProfileInfo};
use crate::state::profile::GROUP;
use crate::write_api::{ProfileGroup, UpdateError, WeightedCall};

/// Weight of a member of a group whose size counts members, at most.
const MAX_WEIGHT: u32 = 4096;

type Result<T> = std::result::Result<T, UpdateError>;

#[derive(Clone)]
struct Member {
    slot: u32,
    action: ActionCall,
    /// Groups and entries that name it.
    uses: usize,
}

#[derive(Clone)]
struct Group {
    slot: u32,
    value: ProfileGroup,
    /// Entries that name it.
    uses: usize,
}

/// A member of a group by its slot.
#[derive(Clone)]
struct Choice {
    slot: u32,
    weight: u32,
    watch: Option<PortNumber>,
}

/// The slots of a one-shot group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OneShot {
    group: u32,
    members: Vec<u32>,
}

/// Slots that are free again, and the first that never was used.
#[derive(Clone, Default)]
struct Slots {
    free: Vec<u32>,
    next: u32,
}

impl Slots {
    fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }
}

#[derive(Clone)]
pub struct ProfileStore {
    /// Index of the profile.
    index: usize,
    name: String,
    size: usize,
    has_selector: bool,
    counts_members: bool,
    members: BTreeMap<u32, Member>,
    groups: BTreeMap<u32, Group>,
    member_slots: Slots,
    group_slots: Slots,
    /// Members of every group, by slot.
    choices: HashMap<u32, Vec<Choice>>,
    /// Part of the profile's size that they take.
    taken: usize,
    /// One-shot groups, which may be empty, and their members.
    shots: usize,
    shot_members: usize,
    down: HashSet<PortNumber>,
}

fn invalid<T>(reason: String) -> Result<T> {
    Err(UpdateError::InvalidArgument(reason))
}

impl ProfileStore {
    pub fn new(index: usize, info: &ProfileInfo) -> ProfileStore {
        ProfileStore {
            index,
            name: info.name.clone(),
            size: info.size,
            has_selector: info.has_selector,
            counts_members: info.counts_members,
            members: BTreeMap::new(),
            groups: BTreeMap::new(),
            member_slots: Slots::default(),
            group_slots: Slots::default(),
            choices: HashMap::new(),
            taken: 0,
            shots: 0,
            shot_members: 0,
            down: HashSet::new(),
        }
    }

    pub fn members(&self) -> impl Iterator<Item = (u32, &ActionCall)> {
        self.members.iter().map(|(&id, member)| (id, &member.action))
    }

    pub fn groups(&self) -> impl Iterator<Item = (u32, &ProfileGroup)> {
        self.groups.iter().map(|(&id, group)| (id, &group.value))
    }

    /// Members, and members of groups.
    pub fn number(&self) -> usize {
        self.members.len() + self.groups.values().map(|group| 1 + group.value.members.len()).sum::<usize>()
    }

    pub fn member(&self, id: u32) -> Result<&ActionCall> {
        self.members.get(&id).map(|member| &member.action).ok_or_else(|| self.no_member(id))
    }

    pub fn group(&self, id: u32) -> Result<&ProfileGroup> {
        self.groups.get(&id).map(|group| &group.value).ok_or_else(|| self.no_group(id))
    }

    fn no_member(&self, id: u32) -> UpdateError {
        UpdateError::NotFound(format!("member {id} of action profile `{}`", self.name))
    }

    fn no_group(&self, id: u32) -> UpdateError {
        UpdateError::NotFound(format!("group {id} of action profile `{}`", self.name))
    }

    fn full(&self) -> UpdateError {
        UpdateError::ResourceExhausted(format!("action profile `{}` is full ({})", self.name, self.size))
    }

    /// `packed`: index among the profile's actions and parameters.
    pub fn insert_member(
        &mut self,
        id: u32,
        action: ActionCall,
        packed: Vec<u64>,
        changes: &mut Vec<Change>,
    ) -> Result<()> {
        if id == 0 {
            return invalid(format!("action profile `{}`: member ids start at 1", self.name));
        }
        if self.members.contains_key(&id) {
            return Err(UpdateError::AlreadyExists(format!("member {id} of action profile `{}`", self.name)));
        }
        self.check_no_shots()?;
        if self.members.len() + self.shot_members >= self.size {
            return Err(self.full());
        }
        let slot = self.member_slots.take();
        changes.push(Change::SetMember { profile: self.index, slot, action: packed.into() });
        self.members.insert(id, Member { slot, action, uses: 0 });
        Ok(())
    }

    pub fn modify_member(
        &mut self,
        id: u32,
        action: ActionCall,
        packed: Vec<u64>,
        changes: &mut Vec<Change>,
    ) -> Result<()> {
        let missing = self.no_member(id);
        let member = self.members.get_mut(&id).ok_or(missing)?;
        changes.push(Change::SetMember { profile: self.index, slot: member.slot, action: packed.into() });
        member.action = action;
        Ok(())
    }

    pub fn delete_member(&mut self, id: u32) -> Result<()> {
        match self.members.get(&id) {
            None => Err(self.no_member(id)),
            Some(member) if member.uses > 0 => {
                let reason = format!("member {id} of action profile `{}` is in use", self.name);
                Err(UpdateError::FailedPrecondition(reason))
            }
            Some(member) => {
                self.member_slots.free.push(member.slot);
                self.members.remove(&id);
                Ok(())
            }
        }
    }

    /// Checks the group's members and resolves them.
    fn choose(&self, value: &ProfileGroup) -> Result<Vec<Choice>> {
        if !self.has_selector {
            return invalid(format!("action profile `{}` has no selector and so no groups", self.name));
        }
        let mut choices: Vec<Choice> = Vec::new();
        let mut chosen = HashSet::new();
        for member in &value.members {
            let slot = self.members.get(&member.member).ok_or_else(|| self.no_member(member.member))?.slot;
            if member.weight == 0 {
                return invalid(format!("member {} has no weight", member.member));
            }
            self.check_weight(member.weight)?;
            if !chosen.insert(slot) {
                return invalid(format!("member {} is given twice", member.member));
            }
            choices.push(Choice { slot, weight: member.weight, watch: member.watch });
        }
        Ok(choices)
    }

    /// Returns the size that all groups but one take.
    fn taken_beside(&self, slot: Option<u32>) -> usize {
        self.taken - slot.and_then(|slot| self.choices.get(&slot)).map_or(0, |choices| self.size_of(choices))
    }

    /// Weights that no size bounds take memory all the same.
    fn check_weight(&self, weight: u32) -> Result<()> {
        match self.counts_members && weight > MAX_WEIGHT {
            true => Err(UpdateError::ResourceExhausted(format!("a weight of {weight}: {MAX_WEIGHT} is the most"))),
            false => Ok(()),
        }
    }

    /// Returns the part of its size and of the profile's that a group takes.
    fn size_of(&self, choices: &[Choice]) -> usize {
        match self.counts_members {
            true => choices.len(),
            false => choices.iter().map(|choice| choice.weight as usize).sum(),
        }
    }

    fn check_weights(&self, choices: &[Choice], max_size: u32, slot: Option<u32>) -> Result<()> {
        if max_size > 0 && self.size_of(choices) > max_size as usize {
            return Err(UpdateError::ResourceExhausted(format!("the group can hold {max_size} members")));
        }
        if self.taken_beside(slot) + self.size_of(choices) > self.size {
            return Err(self.full());
        }
        Ok(())
    }

    pub fn insert_group(&mut self, id: u32, value: ProfileGroup, changes: &mut Vec<Change>) -> Result<()> {
        if id == 0 {
            return invalid(format!("action profile `{}`: group ids start at 1", self.name));
        }
        if self.groups.contains_key(&id) {
            return Err(UpdateError::AlreadyExists(format!("group {id} of action profile `{}`", self.name)));
        }
        self.check_no_shots()?;
        // A group without members takes room, too.
        if self.groups.len() >= self.size || value.max_size as usize > self.size {
            return Err(self.full());
        }
        let choices = self.choose(&value)?;
        self.check_weights(&choices, value.max_size, None)?;
        let slot = self.group_slots.take();
        self.use_members(&value, true);
        self.groups.insert(id, Group { slot, value, uses: 0 });
        self.set_choices(slot, choices, changes);
        Ok(())
    }

    pub fn modify_group(&mut self, id: u32, value: ProfileGroup, changes: &mut Vec<Change>) -> Result<()> {
        let group = self.groups.get(&id).ok_or_else(|| self.no_group(id))?;
        if value.max_size != group.value.max_size {
            return invalid(format!("the size of group {id} cannot be changed"));
        }
        let slot = group.slot;
        let choices = self.choose(&value)?;
        self.check_weights(&choices, value.max_size, Some(slot))?;
        self.use_members(&value, true);
        if let Some(group) = self.groups.get_mut(&id) {
            let old = std::mem::replace(&mut group.value, value);
            self.use_members(&old, false);
        }
        self.set_choices(slot, choices, changes);
        Ok(())
    }

    pub fn delete_group(&mut self, id: u32) -> Result<()> {
        match self.groups.get(&id) {
            None => Err(self.no_group(id)),
            Some(group) if group.uses > 0 => {
                let reason = format!("group {id} of action profile `{}` is in use", self.name);
                Err(UpdateError::FailedPrecondition(reason))
            }
            Some(group) => {
                let slot = group.slot;
                self.remove_choices(slot);
                self.group_slots.free.push(slot);
                if let Some(group) = self.groups.remove(&id) {
                    self.use_members(&group.value, false);
                }
                Ok(())
            }
        }
    }

    fn use_members(&mut self, group: &ProfileGroup, more: bool) {
        for member in &group.members {
            if let Some(member) = self.members.get_mut(&member.member) {
                if more { member.uses += 1 } else { member.uses -= 1 }
            }
        }
    }

    fn set_choices(&mut self, slot: u32, choices: Vec<Choice>, changes: &mut Vec<Change>) {
        self.remove_choices(slot);
        self.taken += self.size_of(&choices);
        self.choices.insert(slot, choices);
        changes.push(self.group_change(slot));
    }

    fn remove_choices(&mut self, slot: u32) {
        if let Some(choices) = self.choices.remove(&slot) {
            self.taken -= self.size_of(&choices);
        }
    }

    /// The group with those of its members whose port is up.
    fn group_change(&self, slot: u32) -> Change {
        let is_up = |choice: &&Choice| choice.watch.is_none_or(|port| !self.down.contains(&port));
        let choices = self.choices.get(&slot).into_iter().flatten().filter(is_up);
        let members = choices.flat_map(|choice| std::iter::repeat_n(choice.slot, choice.weight as usize)).collect();
        Change::SetGroup { profile: self.index, slot, members }
    }

    /// Members that watch the port come or go.
    pub fn set_port(&mut self, port: PortNumber, up: bool, changes: &mut Vec<Change>) {
        let changed = if up { self.down.remove(&port) } else { self.down.insert(port) };
        if changed {
            let watching = self.choices.iter().filter(|(_, choices)| choices.iter().any(|c| c.watch == Some(port)));
            changes.extend(watching.map(|(&slot, _)| self.group_change(slot)).collect::<Vec<_>>());
        }
    }

    /// Returns the reference of an entry to the member, and counts the use.
    pub fn use_member(&mut self, id: u32) -> Result<u64> {
        let missing = self.no_member(id);
        let member = self.members.get_mut(&id).ok_or(missing)?;
        member.uses += 1;
        Ok(member.slot.into())
    }

    pub fn use_group(&mut self, id: u32) -> Result<u64> {
        let missing = self.no_group(id);
        let group = self.groups.get_mut(&id).ok_or(missing)?;
        group.uses += 1;
        Ok(GROUP | u64::from(group.slot))
    }

    pub fn release_member(&mut self, id: u32) {
        if let Some(member) = self.members.get_mut(&id) {
            member.uses -= 1;
        }
    }

    pub fn release_group(&mut self, id: u32) {
        if let Some(group) = self.groups.get_mut(&id) {
            group.uses -= 1;
        }
    }

    /// Makes the group of an entry; `replaced` is the one that it takes the place of.
    pub fn shoot(
        &mut self,
        calls: &[WeightedCall],
        packed: Vec<Vec<u64>>,
        replaced: Option<&OneShot>,
        changes: &mut Vec<Change>,
    ) -> Result<(u64, OneShot)> {
        if !self.has_selector {
            return invalid(format!("action profile `{}` has no selector and so no one-shot groups", self.name));
        }
        if calls.iter().any(|call| call.weight == 0) {
            return invalid("an action of the group has no weight".to_string());
        }
        calls.iter().try_for_each(|call| self.check_weight(call.weight))?;
        let weights = calls.iter().map(|call| call.weight as usize);
        let taken: usize = if self.counts_members { calls.len() } else { weights.sum() };
        let before = replaced.map_or(0, |shot| shot.members.len());
        let members = self.members.len() + self.shot_members - before + calls.len();
        if members > self.size || self.taken_beside(replaced.map(|shot| shot.group)) + taken > self.size {
            return Err(self.full());
        }
        let mut choices = Vec::new();
        for (call, action) in calls.iter().zip(packed) {
            let slot = self.member_slots.take();
            changes.push(Change::SetMember { profile: self.index, slot, action: action.into() });
            choices.push(Choice { slot, weight: call.weight, watch: call.watch });
        }
        self.shots += 1;
        self.shot_members += choices.len();
        let shot = OneShot { group: self.group_slots.take(), members: choices.iter().map(|c| c.slot).collect() };
        self.set_choices(shot.group, choices, changes);
        Ok((GROUP | u64::from(shot.group), shot))
    }

    pub fn release_shot(&mut self, shot: &OneShot) {
        self.remove_choices(shot.group);
        self.group_slots.free.push(shot.group);
        self.shots -= 1;
        self.shot_members -= shot.members.len();
        // So that the next group of this size gets the slots in the same order: what is undone is as it was.
        self.member_slots.free.extend(shot.members.iter().rev());
    }

    /// All entries of the profile's tables are one-shot, and then there is nothing else in it, or none is (P4Runtime
    /// 1.4, 9.2.3): whether it has members or groups of the clients.
    pub fn has_members(&self) -> bool {
        !self.members.is_empty() || !self.groups.is_empty()
    }

    pub fn has_shots(&self) -> bool {
        self.shots > 0
    }

    fn check_no_shots(&self) -> Result<()> {
        match self.has_shots() {
            true => invalid(format!("action profile `{}` is programmed in one shot", self.name)),
            false => Ok(()),
        }
    }
}

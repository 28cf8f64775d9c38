// SPDX-License-Identifier: Apache-2.0
//! Methods about action profiles: their members and groups.

use std::sync::Arc;

use apswitch_dataplane::control::{ActionCall, GroupMember, ProfileGroup, ProfileId, Program, Update};
use thrift::protocol::TType;

use crate::Handler;
use crate::call::{Answered, Call, Codes, Refusal, declared};
use crate::code;
use crate::keys::{self, handle, id};
use crate::message::{Fields, Value};
use crate::tables::MAX_ENTRIES;

const MEMBER: Codes = Codes {
    not_found: code::INVALID_MBR_HANDLE,
    full: code::TABLE_FULL,
    in_use: code::MBR_STILL_USED,
    ..Codes::all(code::ERROR)
};
const GROUP: Codes = Codes { not_found: code::INVALID_GRP_HANDLE, in_use: code::GRP_STILL_USED, ..MEMBER };

impl Handler<'_> {
    pub fn profiles(&self, method: &str, call: &Call) -> Option<Answered> {
        Some(match method {
            "bm_mt_act_prof_add_member" => self.add_member(call),
            "bm_mt_act_prof_modify_member" => self.modify_member(call),
            "bm_mt_act_prof_delete_member" => self.profile(call).and_then(|(_, profile)| {
                self.write(Update::DeleteMember { profile, member: id(call.i32(3)?) }, MEMBER).map(|()| None)
            }),
            "bm_mt_act_prof_create_group" => self.create_group(call),
            "bm_mt_act_prof_delete_group" => self.selector(call).and_then(|profile| {
                self.write(Update::DeleteGroup { profile, group: id(call.i32(3)?) }, GROUP).map(|()| None)
            }),
            "bm_mt_act_prof_add_member_to_group" => self.change_group(call, true),
            "bm_mt_act_prof_remove_member_from_group" => self.change_group(call, false),
            "bm_mt_act_prof_get_members" => self.members(call),
            "bm_mt_act_prof_get_member" => self.one_member(call),
            "bm_mt_act_prof_get_groups" => self.groups(call),
            "bm_mt_act_prof_get_group" => self.one_group(call),
            _ => return None,
        })
    }

    /// The profile that argument 2 names, and the program.
    fn profile(&self, call: &Call) -> Result<(Arc<Program>, ProfileId), Refusal> {
        let (name, program) = (call.text(2)?, self.program()?);
        let place = program.profiles.iter().position(|own| own.name == name);
        let unknown = || declared(code::INVALID_ACTION_PROFILE_NAME, format!("there is no action profile {name:.80?}"));
        let profile = ProfileId(place.ok_or_else(unknown)?);
        Ok((program, profile))
    }

    /// The profile, which has to have groups.
    fn selector(&self, call: &Call) -> Result<ProfileId, Refusal> {
        let (program, profile) = self.profile(call)?;
        match program.profiles[profile.0].has_selector {
            true => Ok(profile),
            false => Err(declared(code::NO_ACTION_PROFILE_SELECTION, "the action profile has no selector")),
        }
    }

    fn profile_action(program: &Program, profile: ProfileId, call: &Call, at: i16) -> Result<ActionCall, Refusal> {
        let actions = &program.profiles[profile.0].actions;
        let find = |name: &str| actions.iter().copied().find(|action| program.actions[action.0].name == name);
        keys::action(call, program, find, at, at + 1)
    }

    fn add_member(&self, call: &Call) -> Answered {
        let (program, profile) = self.profile(call)?;
        let action = Self::profile_action(&program, profile, call, 3)?;
        let members = MEMBER.check(self.dataplane.profile_members(profile))?;
        let member = free(members.iter().map(|(id, _)| *id));
        self.write(Update::InsertMember { profile, member, action }, MEMBER)?;
        Ok(Some(Value::I32(handle(member))))
    }

    fn modify_member(&self, call: &Call) -> Answered {
        let (program, profile) = self.profile(call)?;
        let action = Self::profile_action(&program, profile, call, 4)?;
        self.write(Update::ModifyMember { profile, member: id(call.i32(3)?), action }, MEMBER).map(|()| None)
    }

    fn create_group(&self, call: &Call) -> Answered {
        let profile = self.selector(call)?;
        let groups = GROUP.check(self.dataplane.profile_groups(profile))?;
        let group = free(groups.iter().map(|(id, _)| *id));
        let value = ProfileGroup { members: Vec::new(), max_size: 0 };
        self.write(Update::InsertGroup { profile, group, value }, GROUP)?;
        Ok(Some(Value::I32(handle(group))))
    }

    fn change_group(&self, call: &Call, is_added: bool) -> Answered {
        let profile = self.selector(call)?;
        let (member, group) = (id(call.i32(3)?), id(call.i32(4)?));
        let mut value = GROUP.check(self.dataplane.profile_group(profile, group))?;
        let place = value.members.iter().position(|own| own.member == member);
        match (is_added, place) {
            (true, None) => value.members.push(GroupMember { member, weight: 1, watch: None }),
            (true, Some(_)) => return Err(declared(code::MBR_ALREADY_IN_GRP, "the member is in the group already")),
            (false, Some(place)) => drop(value.members.remove(place)),
            (false, None) => return Err(declared(code::MBR_NOT_IN_GRP, "the member is not in the group")),
        }
        self.write(Update::ModifyGroup { profile, group, value }, MEMBER).map(|()| None)
    }

    /// Checks that all members and groups go into an answer.
    fn check_size(&self, profile: ProfileId) -> Result<(), Refusal> {
        match MEMBER.check(self.dataplane.profile_size(profile))? {
            ..=MAX_ENTRIES => Ok(()),
            number => {
                let text = format!("{number} members: {MAX_ENTRIES} go into an answer; read them over P4Runtime");
                Err(declared(code::ERROR, text))
            }
        }
    }

    fn members(&self, call: &Call) -> Answered {
        let (program, profile) = self.profile(call)?;
        self.check_size(profile)?;
        let members = MEMBER.check(self.dataplane.profile_members(profile))?;
        Ok(Some(Value::structs(members.iter().map(|(id, action)| member(&program, *id, action)))))
    }

    fn one_member(&self, call: &Call) -> Answered {
        let (program, profile) = self.profile(call)?;
        let id = id(call.i32(3)?);
        let action = MEMBER.check(self.dataplane.profile_member(profile, id))?;
        Ok(Some(Value::Struct(member(&program, id, &action))))
    }

    fn groups(&self, call: &Call) -> Answered {
        let profile = self.selector(call)?;
        self.check_size(profile)?;
        let groups = GROUP.check(self.dataplane.profile_groups(profile))?;
        Ok(Some(Value::structs(groups.iter().map(|(id, value)| group(*id, value)))))
    }

    fn one_group(&self, call: &Call) -> Answered {
        let profile = self.selector(call)?;
        let id = id(call.i32(3)?);
        let value = GROUP.check(self.dataplane.profile_group(profile, id))?;
        Ok(Some(Value::Struct(group(id, &value))))
    }
}

/// Returns the first id that is not taken, as BMv2 gives out its handles; `taken` ascends.
fn free(taken: impl Iterator<Item = u32>) -> u32 {
    taken.fold(1, |free, id| if id == free { free + 1 } else { free })
}

/// Returns a member as `BmMtActProfMember`.
fn member(program: &Program, id: u32, action: &ActionCall) -> Fields {
    let (name, data) = keys::written_action(program, action);
    vec![(1, Value::I32(handle(id))), (2, name), (3, data)]
}

/// Returns a group as `BmMtActProfGroup`.
fn group(id: u32, value: &ProfileGroup) -> Fields {
    let members = value.members.iter().map(|member| Value::I32(handle(member.member)));
    vec![(1, Value::I32(handle(id))), (2, Value::List(TType::I32, members.collect()))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_begin_at_zero_and_gaps_are_filled() {
        assert_eq!(handle(free([].into_iter())), 0);
        assert_eq!(handle(free([1, 2, 4].into_iter())), 2);
        assert_eq!(free([2, 3].into_iter()), 1);
        assert_eq!((id(0), id(handle(u32::MAX))), (1, u32::MAX));
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Action profiles (P4Runtime 1.4, "ActionProfileMember & ActionProfileGroup") and value sets between messages and the
//! control API.

use apswitch_dataplane::control::{
    ActionCall, EntryAction, GroupMember, KeyField, PortNumber, ProfileGroup, WeightedCall,
};

use super::entry::{self, EntryKind, weight_message};
use super::error::{Checked, Refusal, refuse};
use super::matching;
use super::names::Naming;
use super::proto::p4::v1 as p4;
use super::schema::{Profile, Schema, Table, ValueSet};
use super::value;

/// Decodes the action of an entry; `ports`: those that can be watched.
pub fn entry_action(
    schema: &Schema,
    table: &Table,
    ports: &[PortNumber],
    message: &p4::TableAction,
) -> Checked<EntryAction> {
    use p4::table_action::Type;
    let Some(profile) = table.profile.and_then(|id| schema.profiles.get(&id)) else {
        return entry::action(schema, table, EntryKind::Entry, message).map(EntryAction::Call);
    };
    match &message.r#type {
        Some(Type::ActionProfileMemberId(id)) => Ok(EntryAction::Member(*id)),
        Some(Type::ActionProfileGroupId(id)) if profile.has_selector => Ok(EntryAction::Group(*id)),
        Some(Type::ActionProfileActionSet(set)) if profile.has_selector => {
            if set.action_selection_mode != 0 || set.size_semantics != 0 {
                return refuse!(Unimplemented, "{}: selection and sizes are those of the selector", profile.name);
            }
            let weights = set.action_profile_actions.iter().map(|action| i64::from(action.weight));
            let total = if profile.counts_members { weights.count() as i64 } else { weights.sum() };
            if profile.max_group_size > 0 && total > profile.max_group_size.into() {
                let most = profile.max_group_size;
                return refuse!(InvalidArgument, "{}: {total} exceeds the size of a group, {most}", profile.name);
            }
            let calls = set.action_profile_actions.iter().map(|action| {
                let Some(call) = &action.action else {
                    return refuse!(InvalidArgument, "{}: an action of the set is empty", table.name);
                };
                use p4::action_profile_action::WatchKind;
                let watched = match &action.watch_kind {
                    Some(WatchKind::WatchPort(port)) => watch(port, ports)?,
                    #[allow(deprecated)]
                    Some(WatchKind::Watch(_)) => return refuse!(Unimplemented, "name watched ports by watch_port"),
                    None => None,
                };
                let call = entry::call(schema, &table.name, &table.actions, EntryKind::Entry, call)?;
                Ok(WeightedCall { call, weight: weight(profile, action.weight)?, watch: watched })
            });
            Ok(EntryAction::OneShot(calls.collect::<Checked<_>>()?))
        }
        Some(Type::Action(_)) => {
            refuse!(InvalidArgument, "table {}: its actions are members of {}", table.name, profile.name)
        }
        Some(_) => refuse!(InvalidArgument, "{} has no selector and so no groups", profile.name),
        None => refuse!(InvalidArgument, "table {}: the action is empty", table.name),
    }
}

/// The action of a member.
pub fn member_action(schema: &Schema, profile: &Profile, message: &p4::ActionProfileMember) -> Checked<ActionCall> {
    match &message.action {
        Some(action) => entry::call(schema, &profile.name, &profile.actions, EntryKind::Entry, action),
        None => refuse!(InvalidArgument, "{}: member {} has no action", profile.name, message.member_id),
    }
}

pub fn group(profile: &Profile, ports: &[PortNumber], message: &p4::ActionProfileGroup) -> Checked<ProfileGroup> {
    let Ok(max_size) = u32::try_from(message.max_size) else {
        return refuse!(InvalidArgument, "{}: the size of a group cannot be negative", profile.name);
    };
    match (profile.max_group_size, max_size) {
        (0, _) => {}
        (most, 0) => return refuse!(InvalidArgument, "{}: the group needs a size, of {most} at most", profile.name),
        (most, size) if size > most => {
            return refuse!(InvalidArgument, "{}: the size of the group exceeds {most}", profile.name);
        }
        _ => {}
    }
    let members = message.members.iter().map(|member| {
        use p4::action_profile_group::member::WatchKind;
        let watched = match &member.watch_kind {
            Some(WatchKind::WatchPort(port)) => watch(port, ports)?,
            #[allow(deprecated)]
            Some(WatchKind::Watch(_)) => return refuse!(Unimplemented, "name watched ports by watch_port"),
            None => None,
        };
        Ok(GroupMember { member: member.member_id, weight: weight(profile, member.weight)?, watch: watched })
    });
    let members = members.collect::<Checked<_>>().map_err(|e: Refusal| e.at(&profile.name))?;
    Ok(ProfileGroup { members, max_size })
}

pub fn group_message(profile_id: u32, profile: &Profile, id: u32, group: &ProfileGroup) -> p4::ActionProfileGroup {
    let member = |member: &GroupMember| p4::action_profile_group::Member {
        member_id: member.member,
        weight: weight_message(profile, member.weight),
        watch_kind: member
            .watch
            .map(|port| p4::action_profile_group::member::WatchKind::WatchPort(value::from_value(&port.into()))),
    };
    p4::ActionProfileGroup {
        action_profile_id: profile_id,
        group_id: id,
        members: group.members.iter().map(member).collect(),
        max_size: group.max_size as i32,
    }
}

fn weight(profile: &Profile, weight: i32) -> Checked<u32> {
    match (profile.no_weights, u32::try_from(weight)) {
        (true, Ok(0)) => Ok(1),
        (true, _) => refuse!(InvalidArgument, "{} takes no weights", profile.name),
        (false, Ok(weight @ 1..)) if profile.max_weight == 0 || weight <= profile.max_weight => Ok(weight),
        (false, Ok(1..)) => refuse!(InvalidArgument, "the weight {weight} is above {}", profile.max_weight),
        (false, _) => refuse!(InvalidArgument, "the weight {weight} is not positive"),
    }
}

/// A port that a member depends on; an empty one is none.
fn watch(port: &[u8], ports: &[PortNumber]) -> Checked<Option<PortNumber>> {
    if port.is_empty() {
        return Ok(None);
    }
    let number = value::to_u32(port)?;
    match ports.iter().find(|known| u32::from(**known) == number) {
        Some(&port) => Ok(Some(port)),
        None => refuse!(InvalidArgument, "there is no port {number} to watch"),
    }
}

pub fn set_members(set: &ValueSet, message: &p4::ValueSetEntry) -> Checked<Vec<Vec<KeyField>>> {
    message
        .members
        .iter()
        .map(|member| matching::match_fields(&set.name, &set.fields, &member.r#match, Naming::Give))
        .collect()
}

pub fn set_message(id: u32, set: &ValueSet, members: &[Vec<KeyField>]) -> p4::ValueSetEntry {
    let member = |fields: &Vec<KeyField>| p4::ValueSetMember { r#match: matching::match_messages(&set.fields, fields) };
    p4::ValueSetEntry { value_set_id: id, members: members.iter().map(member).collect() }
}

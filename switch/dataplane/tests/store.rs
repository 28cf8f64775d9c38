// SPDX-License-Identifier: Apache-2.0
//! The copy of what was written: updates are taken back without a trace, backups take the place of replicas whose port
//! is down, and sizes count what the selector says.

use std::sync::Arc;

use crate::common::guess::{Seen, copies, profiles};
use crate::common::program;
use apswitch_core::dataplane_ops::Change;
use apswitch_core::state::Shared;
use apswitch_core::store::Store;
use apswitch_dataplane::control::*;
use fastrand::Rng;

fn store(program: Program) -> Store {
    let program = Arc::new(program);
    let shared = Arc::new(Shared::new(&program));
    Store::new(program, shared).unwrap().0
}

/// Returns all that can be read.
fn contents(store: &Store) -> String {
    let program = &store.program;
    let tables = (0..program.tables.len()).map(|table| {
        let mut entries: Vec<String> =
            store.entries(TableId(table), 0).unwrap().iter().map(|view| format!("{view:?}")).collect();
        entries.sort();
        (entries, store.default_action(TableId(table)))
    });
    let profiles = (0..program.profiles.len()).map(|profile| {
        let profile = store.profile(ProfileId(profile)).unwrap();
        let members: Vec<_> = profile.members().collect();
        format!("{members:?} {:?}", profile.groups().collect::<Vec<_>>())
    });
    let sets = (0..program.value_sets.len()).map(|set| store.value_set(ValueSetId(set)));
    format!(
        "{:?} {:?} {:?} {:?} {:?} {:?}",
        tables.collect::<Vec<_>>(),
        profiles.collect::<Vec<_>>(),
        sets.collect::<Vec<_>>(),
        store.groups(),
        store.sessions(),
        store.backups()
    )
}

fn one_of(updates: Vec<Update>, rng: &mut Rng) -> Option<Update> {
    rng.choice(updates)
}

/// Something that may be written, and something that may have been.
fn update(program: &Program, rng: &mut Rng) -> Option<Update> {
    let table = TableId(rng.usize(..program.tables.len()));
    Some(match rng.u8(..8) {
        0..4 => match Seen::default().entry(program, table, rng)? {
            // Of few keys, so that most are met again.
            Update::InsertEntry(mut entry) => {
                for field in &mut entry.key.fields {
                    if let KeyField::Exact(value) = field {
                        *value = u64::from(rng.u8(..2)).into();
                    }
                }
                entry.key.priority = entry.key.priority.min(2);
                match rng.u8(..3) {
                    0 => Update::ModifyEntry(entry),
                    1 => Update::DeleteEntry { table, key: entry.key },
                    _ => Update::InsertEntry(entry),
                }
            }
            other => other,
        },
        4 | 5 => one_of(profiles(program, rng), rng).map(|update| match (rng.u8(..3), update) {
            (0, Update::InsertMember { profile, member, .. }) => Update::DeleteMember { profile, member },
            (1, Update::InsertMember { profile, member, action }) => Update::ModifyMember { profile, member, action },
            (0, Update::InsertGroup { profile, group, .. }) => Update::DeleteGroup { profile, group },
            (1, Update::InsertGroup { profile, group, value }) => Update::ModifyGroup { profile, group, value },
            (_, update) => update,
        })?,
        _ => one_of(copies(rng), rng).map(|update| match (rng.u8(..4), update) {
            (0, Update::InsertMulticastGroup { group, .. }) => Update::DeleteMulticastGroup { group },
            (1, Update::InsertMulticastGroup { group, replicas }) => Update::ModifyMulticastGroup { group, replicas },
            (2, Update::InsertMulticastGroup { group, replicas }) => {
                Update::SetBackups { of: Replicated::Group(group), backups: vec![replicas.clone(); replicas.len()] }
            }
            (0, Update::InsertCloneSession { session, .. }) => Update::DeleteCloneSession { session },
            (1, Update::InsertCloneSession { session, config }) => Update::ModifyCloneSession { session, config },
            (_, update) => update,
        })?,
    })
}

#[test]
fn random_updates_are_taken_back_without_a_trace() {
    let mut rng = Rng::with_seed(7);
    for name in ["features", "profiles", "wide"] {
        let mut store = store(program(name));
        let program = store.program.clone();
        let mut taken = 0;
        for _ in 0..200 {
            let before = contents(&store);
            let mut undo = Vec::new();
            for _ in 0..rng.usize(..20) {
                let Some(update) = update(&program, &mut rng) else { continue };
                let inverse = store.inverse(&update, 0);
                if store.update(update.clone(), 0, &mut Vec::new()).is_ok() {
                    undo.extend(inverse.unwrap_or_else(|e| panic!("{update:?}: {e}")));
                    taken += 1;
                }
            }
            if rng.bool() {
                for update in undo.into_iter().rev() {
                    store.update(update.clone(), 0, &mut Vec::new()).unwrap_or_else(|e| panic!("{update:?}: {e}"));
                }
                assert_eq!(contents(&store), before);
            }
        }
        assert!(taken > 200, "{name}: {taken} updates were taken");
    }
}

#[test]
fn backups_take_the_place_of_replicas_whose_port_is_down() {
    let mut store = store(program("features"));
    let replica = |port, rid| Replica { port, rid };
    let mut changes = Vec::new();
    let group = Update::InsertMulticastGroup { group: 5, replicas: vec![replica(1, 0), replica(2, 0)] };
    let config = CloneSession { replicas: vec![replica(1, 9)], packet_length_bytes: 60, ..Default::default() };
    let backups = |of, backups| Update::SetBackups { of, backups };
    for update in [
        group,
        backups(Replicated::Group(5), vec![vec![replica(3, 7), replica(2, 8)], vec![]]),
        Update::InsertCloneSession { session: 6, config: config.clone() },
        backups(Replicated::Session(6), vec![vec![replica(2, 1)]]),
    ] {
        store.update(update, 0, &mut changes).unwrap();
    }
    let mut now = |port: u16, up: bool| {
        changes.clear();
        store.set_port(port, up, &mut changes);
        let find = |change: &Change| match change {
            Change::SetMulticastGroup { group: 5, replicas: Some(replicas) } => Some(replicas.clone()),
            _ => None,
        };
        let session = |change: &Change| match change {
            Change::SetCloneSession { session: 6, config: Some(config) } => Some(config.clone()),
            _ => None,
        };
        (changes.iter().find_map(find), changes.iter().find_map(session))
    };
    let (group, session) = now(1, false);
    assert_eq!(group, Some(vec![replica(3, 7), replica(2, 0)]));
    assert_eq!(session, Some(CloneSession { replicas: vec![replica(2, 1)], ..config.clone() }));
    assert_eq!(now(3, false).0, Some(vec![replica(2, 8), replica(2, 0)]), "the next one");
    assert_eq!(now(2, false).0, Some(vec![replica(1, 0), replica(2, 0)]), "none is left");
    assert_eq!(now(2, false), (None, None), "nothing is new");
    now(2, true);
    assert_eq!(now(1, true).1, Some(config));
    let of_nothing = store.update(backups(Replicated::Group(9), vec![]), 0, &mut changes);
    assert!(matches!(of_nothing, Err(UpdateError::NotFound(_))));
    let too_few = store.update(backups(Replicated::Group(5), vec![]), 0, &mut changes);
    assert!(matches!(too_few, Err(UpdateError::InvalidArgument(_))));
}

#[test]
fn sizes_count_members_where_the_selector_says_so() {
    for counts_members in [false, true] {
        let mut loaded = program("profiles");
        let (at, info) = loaded.profiles.iter_mut().enumerate().find(|(_, info)| info.has_selector).unwrap();
        info.counts_members = counts_members;
        let (profile, size) = (ProfileId(at), info.size as u32);
        let action = loaded.profiles[at].actions[0];
        let params = vec![Value::ZERO; loaded.actions[action.0].params.len()];
        let mut store = store(loaded);
        let mut changes = Vec::new();
        let member = Update::InsertMember { profile, member: 1, action: ActionCall { action, params } };
        store.update(member, 0, &mut changes).unwrap();
        let mut group = |weight| {
            let value = ProfileGroup { members: vec![GroupMember { member: 1, weight, watch: None }], max_size: 0 };
            store.update(Update::InsertGroup { profile, group: weight, value }, 0, &mut changes).is_ok()
        };
        assert_eq!(group(size + 1), counts_members);
        assert!(!group(1 << 20), "a weight takes memory");
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Action profiles and selectors.

use std::collections::{BTreeSet, HashMap};

use super::json::{self, Document};
use super::phv::Phv;
use super::{LoadError, Objects, calculation, place_of, refuse};
use crate::program::{ActionId, ProfileId, ProfileInfo, Program};
use crate::state::code::Calculation;

/// The calculation of each profile's selector, which joins `calculations`; `None`: it has no selector.
pub fn compile(
    doc: &Document,
    phv: &Phv,
    calculations: &mut Vec<Calculation>,
    objects: &mut Objects,
    program: &mut Program,
) -> Result<Vec<Option<u16>>, LoadError> {
    let mut selectors = Vec::new();
    for profile in doc.pipelines.iter().flat_map(|pipeline| &pipeline.action_profiles) {
        let selector = match &profile.selector {
            None => None,
            Some(selector) => {
                let named = json::Calculation {
                    name: profile.name.clone(),
                    source_info: profile.source_info.clone(),
                    algo: selector.algo.clone(),
                    input: selector.input.clone(),
                };
                calculations.push(calculation(&named, phv)?);
                Some(calculations.len() as u16 - 1)
            }
        };
        objects.profiles.insert(profile.name.clone(), program.profiles.len());
        program.profiles.push(ProfileInfo {
            name: profile.name.clone(),
            size: profile.max_size,
            has_selector: selector.is_some(),
            counts_members: false,
            actions: Vec::new(),
        });
        selectors.push(selector);
    }
    Ok(selectors)
}

/// The profile of a table, whose actions are brought into the order of the profile's.
pub fn of_table(
    table: &json::Table,
    actions: &mut [ActionId],
    objects: &Objects,
    program: &mut Program,
) -> Result<Option<ProfileId>, LoadError> {
    let where_ = place_of("table", &table.name, &table.source_info);
    match table.kind.as_str() {
        "simple" => return Ok(None),
        "indirect" | "indirect_ws" => {}
        other => return refuse(where_, format!("tables of type `{other}` are not supported")),
    }
    let name = table.action_profile.as_deref().unwrap_or_default();
    let Some(&profile) = objects.profiles.get(name) else {
        return refuse(where_, format!("unknown action profile `{name}`"));
    };
    let info = &mut program.profiles[profile];
    if info.actions.is_empty() {
        info.actions = actions.to_vec();
        return Ok(Some(ProfileId(profile)));
    }
    // A member is written once, for all tables: number and widths of its parameters have to be the same everywhere.
    let shape = |action: &ActionId| {
        let action = &program.actions[action.0];
        (action.name.as_str(), action.params.iter().map(|param| param.width).collect::<Vec<_>>())
    };
    let known: HashMap<_, usize> = info.actions.iter().map(shape).zip(0..).collect();
    let place = |action: &ActionId| known.get(&shape(action)).copied();
    let places: Option<BTreeSet<usize>> = actions.iter().map(place).collect();
    let all = info.actions.len();
    if actions.len() != all || places.is_none_or(|places| places.len() != all) {
        let reason = format!(
            "its actions or their parameters are others than those of the other tables of action profile `{name}`"
        );
        return refuse(where_, reason);
    }
    actions.sort_by_cached_key(place);
    Ok(Some(ProfileId(profile)))
}

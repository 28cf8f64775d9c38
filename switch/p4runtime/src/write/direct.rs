// SPDX-License-Identifier: Apache-2.0
//! Default entries, and the counters and meters of entries (P4Runtime 1.5, "Default Entry" and "Direct resources").

use apswitch_dataplane::control::EntryKey;

use super::*;
use crate::entry::{EntryKind, default_has_no_key};

impl Writer<'_> {
    pub(super) fn default_entry(&mut self, operation: Type, message: &p4::TableEntry) -> Checked<()> {
        let table = table(self.schema, message.table_id)?;
        let name = &table.name;
        if operation != Type::Modify {
            return refuse!(InvalidArgument, "the default entry of table {name} can only be modified");
        }
        default_has_no_key(table, message)?;
        if message.is_const || message.idle_timeout_ns != 0 || message.time_since_last_hit.is_some() {
            return refuse!(InvalidArgument, "the default entry of table {name} has no idle timeout and no is_const");
        }
        if table.const_default {
            return refuse!(PermissionDenied, "the default action of table {name} is constant");
        }
        let (counter, config) = (entry::direct_counter(table, message)?, entry::direct_meter(table, message)?);
        let cleared = entry::clears_colours(table, message)?;
        let action = message
            .action
            .as_ref()
            .map(|action| entry::action(self.schema, table, EntryKind::Default, action))
            .transpose()?;
        #[allow(deprecated)]
        let cookie = match action {
            Some(_) => entry::cookie(message.controller_metadata, &message.metadata),
            None => Vec::new(),
        };
        if cookie.len() > MAX_METADATA_LEN {
            return refuse!(ResourceExhausted, "table {name}: {MAX_METADATA_LEN} bytes of metadata are the most");
        }
        self.push(Update::SetDefault { table: table.target, action });
        if table.meter.is_some() {
            self.push(Update::SetDirectMeter { table: table.target, key: None, config });
        }
        if cleared {
            self.push(Update::SetDirectColours { table: table.target, key: None, value: NOTHING });
        }
        if let Some(value) = counter {
            self.push(Update::SetDirectCounter { table: table.target, key: None, value });
        }
        self.note(Note::Default(table.target, cookie));
        Ok(())
    }

    pub(super) fn direct_counter(&mut self, operation: Type, message: &p4::DirectCounterEntry) -> Checked<()> {
        only_modify(operation, "a direct counter")?;
        let (table, key) = direct_entry(self.schema, message.table_entry.as_ref())?;
        if !table.has_counter {
            return refuse!(InvalidArgument, "table {} has no direct counter", table.name);
        }
        match (&message.data, key) {
            (Some(data), key) => {
                let value = entry::counter_value(data)?;
                self.push(Update::SetDirectCounter { table: table.target, key, value });
            }
            (None, Some(key)) => self.push(Update::FindEntry { table: table.target, key }),
            (None, None) => {}
        }
        Ok(())
    }

    pub(super) fn direct_meter(&mut self, operation: Type, message: &p4::DirectMeterEntry) -> Checked<()> {
        only_modify(operation, "a direct meter")?;
        let cleared = entry::clears(message.counter_data.as_ref())?;
        let (table, key) = direct_entry(self.schema, message.table_entry.as_ref())?;
        let Some(kind) = table.meter else {
            return refuse!(InvalidArgument, "table {} has no direct meter", table.name);
        };
        let config = message.config.as_ref().map(|config| entry::meter_config(kind, config)).transpose()?;
        self.push(Update::SetDirectMeter { table: table.target, key: key.clone(), config });
        if cleared {
            self.push(Update::SetDirectColours { table: table.target, key, value: NOTHING });
        }
        Ok(())
    }
}

/// The entry that a direct counter or meter message names; without a key: the default entry.
fn direct_entry<'s>(schema: &'s Schema, message: Option<&p4::TableEntry>) -> Checked<(&'s Table, Option<EntryKey>)> {
    let Some(message) = message else { return refuse!(InvalidArgument, "there is no table entry") };
    let table = table(schema, message.table_id)?;
    if message.is_default_action {
        default_has_no_key(table, message)?;
        return Ok((table, None));
    }
    Ok((table, Some(entry::key(table, message, Naming::Find)?)))
}

// SPDX-License-Identifier: Apache-2.0
//! Methods about indirect counters and meters, registers and parser value sets.

use std::ops::Range;
use std::sync::Arc;

use apswitch_dataplane::control::{
    CounterId, CounterValue, KeyField, MeterConfig, MeterId, Program, RegisterId, Update, Value, ValueSetId,
};
use num_bigint::BigUint;
use thrift::protocol::TType;

use crate::Handler;
use crate::call::{Answered, Call, Codes, Refusal, declared, field, i32_field, i64_field};
use crate::message::{Fields, Value as Wire};

/// Codes of `CounterOperationErrorCode`, `MeterOperationErrorCode` and `RegisterOperationErrorCode`.
const INVALID_NAME: i32 = 1;
const INVALID_INDEX: i32 = 2;
/// Codes of `MeterOperationErrorCode` alone.
const BAD_RATES_LIST: i32 = 3;
const INVALID_INFO_RATE_VALUE: i32 = 4;
const INVALID_BURST_SIZE_VALUE: i32 = 5;
/// Codes with the `ERROR` of counters and registers, of meters, and of value sets.
const CELL: Codes = Codes { not_found: INVALID_INDEX, ..Codes::all(3) };
const METER: Codes = Codes { not_found: INVALID_INDEX, ..Codes::all(6) };
const VALUE_SET: Codes = Codes::all(2);
/// Cells in one answer.
const MAX_CELLS: usize = 1 << 20;

/// An array that a call names.
struct Array {
    program: Arc<Program>,
    place: usize,
    size: usize,
}

impl Array {
    /// The cell of the argument.
    fn index(&self, call: &Call, argument: i16) -> Result<usize, Refusal> {
        let index = call.i32(argument)?;
        let out = || declared(INVALID_INDEX, format!("there is no cell {index}: the array has {}", self.size));
        usize::try_from(index).ok().filter(|index| *index < self.size).ok_or_else(out)
    }
}

impl Handler<'_> {
    pub fn arrays(&self, method: &str, call: &Call) -> Option<Answered> {
        Some(match method {
            "bm_counter_read" => self.read_counter(call),
            "bm_counter_write" => self.write_counter(call),
            "bm_counter_reset_all" => self.reset_counter(call),
            "bm_meter_set_rates" => self.set_rates(call, false),
            "bm_meter_array_set_rates" => self.set_rates(call, true),
            "bm_meter_get_rates" => self.get_rates(call),
            "bm_register_read" => self.read_register(call),
            "bm_register_read_all" => self.read_registers(call),
            "bm_register_write" => self.register(call).and_then(|array| {
                let index = array.index(call, 3)?;
                self.fill_register(&array, index..index + 1, call.i64(4)?)
            }),
            "bm_register_write_range" => self.register(call).and_then(|array| {
                let start = array.index(call, 3)?;
                // Behind the last one.
                let end = usize::try_from(call.i32(4)?).unwrap_or(0);
                if end > array.size || end < start {
                    return Err(declared(INVALID_INDEX, format!("the cells {start} to {end} of {}", array.size)));
                }
                self.fill_register(&array, start..end, call.i64(5)?)
            }),
            "bm_register_reset" => self.register(call).and_then(|array| self.fill_register(&array, 0..array.size, 0)),
            "bm_parse_vset_add" => self.change_value_set(call, |members, member| {
                if !members.contains(&member) {
                    members.push(member);
                }
            }),
            "bm_parse_vset_remove" => self.change_value_set(call, |members, member| {
                members.retain(|own| *own != member);
            }),
            "bm_parse_vset_clear" => self.value_set(call).and_then(|array| {
                let update = Update::SetValueSet { set: ValueSetId(array.place), members: Vec::new() };
                self.write(update, VALUE_SET).map(|()| None)
            }),
            "bm_parse_vset_get" => self.read_value_set(call),
            _ => return None,
        })
    }

    /// The array that argument 2 names among those of the program.
    fn array<T>(
        &self,
        call: &Call,
        what: &str,
        of: impl Fn(&Program) -> &[T],
        info: impl Fn(&T) -> (&str, usize),
    ) -> Result<Array, Refusal> {
        let (name, program) = (call.text(2)?, self.program()?);
        let unknown = || declared(INVALID_NAME, format!("there is no {what} {name:.80?}"));
        let place = of(&program).iter().position(|own| info(own).0 == name).ok_or_else(unknown)?;
        let size = info(&of(&program)[place]).1;
        Ok(Array { program, place, size })
    }

    fn counter(&self, call: &Call) -> Result<Array, Refusal> {
        self.array(call, "counter", |program| &program.counters, |own| (&own.name, own.size))
    }

    fn meter(&self, call: &Call) -> Result<Array, Refusal> {
        self.array(call, "meter", |program| &program.meters, |own| (&own.name, own.size))
    }

    fn register(&self, call: &Call) -> Result<Array, Refusal> {
        self.array(call, "register", |program| &program.registers, |own| (&own.name, own.size))
    }

    fn value_set(&self, call: &Call) -> Result<Array, Refusal> {
        self.array(call, "value set", |program| &program.value_sets, |own| (&own.name, own.max_size))
    }

    fn read_counter(&self, call: &Call) -> Answered {
        let array = self.counter(call)?;
        let value = self.dataplane.counter(CounterId(array.place), array.index(call, 3)?);
        Ok(Some(written_counter(CELL.check(value)?)))
    }

    fn write_counter(&self, call: &Call) -> Answered {
        let array = self.counter(call)?;
        let (index, value) = (array.index(call, 3)?, counter_value(call.fields(4)?));
        self.write(Update::SetCounter { counter: CounterId(array.place), index, value }, CELL).map(|()| None)
    }

    fn reset_counter(&self, call: &Call) -> Answered {
        let array = self.counter(call)?;
        let (counter, value) = (CounterId(array.place), CounterValue::default());
        self.write_each((0..array.size).map(|index| Update::SetCounter { counter, index, value }), CELL).map(|()| None)
    }

    fn set_rates(&self, call: &Call, all: bool) -> Answered {
        let array = self.meter(call)?;
        let (cells, list) = if all {
            (0..array.size, call.list(3)?)
        } else {
            let index = array.index(call, 3)?;
            (index..index + 1, call.list(4)?)
        };
        let config = Some(rates(list).map_err(|(code, text)| declared(code, text))?);
        let meter = MeterId(array.place);
        self.write_each(cells.map(|index| Update::SetMeter { meter, index, config }), METER).map(|()| None)
    }

    fn get_rates(&self, call: &Call) -> Answered {
        let array = self.meter(call)?;
        let index = array.index(call, 3)?;
        let configs = self.dataplane.meters(MeterId(array.place), index..index + 1);
        let configs = METER.check(configs)?;
        Ok(Some(written_rates(configs.first().copied().flatten())))
    }

    fn read_register(&self, call: &Call) -> Answered {
        let array = self.register(call)?;
        let index = array.index(call, 3)?;
        let values = self.dataplane.registers(RegisterId(array.place), index..index + 1);
        let values = CELL.check(values)?;
        Ok(values.first().map(low))
    }

    fn read_registers(&self, call: &Call) -> Answered {
        let array = self.register(call)?;
        if array.size > MAX_CELLS {
            let text = format!("{} cells: {MAX_CELLS} go into an answer; read one after the other", array.size);
            return Err(declared(CELL.other, text));
        }
        let cells = CELL.check(self.dataplane.register_cells(RegisterId(array.place)))?;
        let values = (0..array.size).map(|index| low(&cells.read(index)));
        Ok(Some(Wire::List(TType::I64, values.collect())))
    }

    /// Writes one value, of which the register's bits are kept, to some cells.
    fn fill_register(&self, array: &Array, cells: Range<usize>, value: i64) -> Answered {
        let width = array.program.registers[array.place].width;
        let value = &Value::from(value as u64) & &Value::ones(width.into());
        let register = RegisterId(array.place);
        let cells = cells.map(|index| Update::SetRegister { register, index, value: value.clone() });
        self.write_each(cells, CELL).map(|()| None)
    }

    fn change_value_set(&self, call: &Call, change: impl Fn(&mut Vec<Vec<KeyField>>, Vec<KeyField>)) -> Answered {
        let array = self.value_set(call)?;
        let set = ValueSetId(array.place);
        let member = split(call.bytes(3)?, &array.program.value_sets[array.place].widths);
        let member =
            member.ok_or_else(|| declared(VALUE_SET.other, "the value has more bits than the set's members"))?;
        let mut members = VALUE_SET.check(self.dataplane.value_set(set))?;
        change(&mut members, member);
        self.write(Update::SetValueSet { set, members }, VALUE_SET).map(|()| None)
    }

    fn read_value_set(&self, call: &Call) -> Answered {
        let array = self.value_set(call)?;
        let members = VALUE_SET.check(self.dataplane.value_set(ValueSetId(array.place)))?;
        let widths = &array.program.value_sets[array.place].widths;
        let values = members.iter().map(|member| Wire::Bytes(join(member, widths)));
        Ok(Some(Wire::List(TType::String, values.collect())))
    }
}

/// The low 64 bits of a register: BMv2 returns no more.
fn low(value: &Value) -> Wire {
    Wire::I64(value.word(0) as i64)
}

/// Splits the bits of a value among the fields of a member, the first of which has the highest; `None`: there are more.
fn split(bytes: &[u8], widths: &[u16]) -> Option<Vec<KeyField>> {
    let mut rest = BigUint::from_bytes_be(bytes);
    let mut fields = Vec::with_capacity(widths.len());
    for &width in widths.iter().rev() {
        let field = &rest & &((BigUint::from(1u8) << width) - 1u8);
        rest >>= width;
        fields.push(KeyField::Exact((&field).into()));
    }
    fields.reverse();
    (rest == BigUint::ZERO).then_some(fields)
}

/// Joins the fields of a member to one value.
fn join(member: &[KeyField], widths: &[u16]) -> Vec<u8> {
    let value = member.iter().zip(widths).fold(BigUint::ZERO, |value, (field, &width)| {
        let own = match field {
            KeyField::Exact(own) | KeyField::Lpm { value: own, .. } | KeyField::Ternary { value: own, .. } => own,
            KeyField::Optional(Some(own)) | KeyField::Range { low: own, .. } => own,
            KeyField::Optional(None) => &Value::ZERO,
        };
        (value << width) | BigUint::from(own)
    });
    let bits: usize = widths.iter().map(|&width| usize::from(width)).sum();
    Value::from(&value).to_bytes(bits.div_ceil(8))
}

/// Returns the value of a `BmCounterValue`.
pub fn counter_value(fields: &Fields) -> CounterValue {
    let number = |id| i64_field(fields, id).unwrap_or(0) as u64;
    CounterValue { bytes: number(1), packets: number(2) }
}

pub fn written_counter(value: CounterValue) -> Wire {
    Wire::Struct(vec![(1, Wire::I64(value.bytes as i64)), (2, Wire::I64(value.packets as i64))])
}

/// Returns the configuration of two `BmMeterRateConfig`, the lower rate first; else a code and a text. BMv2 counts in
/// units for each µs.
pub fn rates(list: &[Wire]) -> Result<MeterConfig, (i32, String)> {
    let rate = |at: usize| {
        let Some(Wire::Struct(fields)) = list.get(at) else {
            return Err((BAD_RATES_LIST, "a meter has two rates, each with a burst".to_owned()));
        };
        let rate = match field(fields, 1) {
            Some(Wire::Double(rate)) if rate.is_finite() && *rate >= 0.0 => (rate * 1e6).round() as u64,
            _ => return Err((INVALID_INFO_RATE_VALUE, "a rate is a number of units for each µs".to_owned())),
        };
        match i32_field(fields, 2).and_then(|burst| u64::try_from(burst).ok()) {
            Some(burst) => Ok((rate, burst)),
            None => Err((INVALID_BURST_SIZE_VALUE, "a burst is a number of units".to_owned())),
        }
    };
    let ((cir, cburst), (pir, pburst)) = (rate(0)?, rate(1)?);
    if list.len() > 2 {
        return Err((BAD_RATES_LIST, format!("a meter has two rates, not {}", list.len())));
    }
    if cir > pir {
        return Err((INVALID_INFO_RATE_VALUE, format!("the first rate, {cir}/s, is above the second, {pir}/s")));
    }
    Ok(MeterConfig { cir, cburst, pir, pburst })
}

/// Returns the rates of a meter; none of one that is not configured.
pub fn written_rates(config: Option<MeterConfig>) -> Wire {
    let rate = |rate: u64, burst: u64| {
        vec![(1, Wire::Double(rate as f64 / 1e6)), (2, Wire::I32(i32::try_from(burst).unwrap_or(i32::MAX)))]
    };
    Wire::structs(config.into_iter().flat_map(|own| [rate(own.cir, own.cburst), rate(own.pir, own.pburst)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(units: f64, burst: i32) -> Wire {
        Wire::Struct(vec![(1, Wire::Double(units)), (2, Wire::I32(burst))])
    }

    #[test]
    fn rates_are_per_second_here_and_per_microsecond_there() {
        let config = MeterConfig { cir: 1_250_000, cburst: 1500, pir: 2_500_000, pburst: 3000 };
        assert_eq!(rates(&[rate(1.25, 1500), rate(2.5, 3000)]), Ok(config));
        assert_eq!(written_rates(Some(config)), Wire::List(TType::Struct, vec![rate(1.25, 1500), rate(2.5, 3000)]));
        assert_eq!(written_rates(None), Wire::List(TType::Struct, Vec::new()));
        for (list, code) in [
            (vec![rate(1.0, 1)], BAD_RATES_LIST),
            (vec![rate(1.0, 1), rate(1.0, 1), rate(1.0, 1)], BAD_RATES_LIST),
            (vec![rate(2.0, 1), rate(1.0, 1)], INVALID_INFO_RATE_VALUE),
            (vec![rate(f64::NAN, 1), rate(1.0, 1)], INVALID_INFO_RATE_VALUE),
            (vec![rate(1.0, -1), rate(1.0, 1)], INVALID_BURST_SIZE_VALUE),
        ] {
            assert_eq!(rates(&list).unwrap_err().0, code, "{list:?}");
        }
    }

    #[test]
    fn members_of_value_sets_are_split_and_joined() {
        let member = split(&[0x81, 0x00], &[1, 15]).unwrap();
        assert_eq!(member, [KeyField::Exact(1u8.into()), KeyField::Exact(0x100u16.into())]);
        assert_eq!(join(&member, &[1, 15]), [0x81, 0x00]);
        assert_eq!(split(&[1, 0], &[8]), None);
    }
}

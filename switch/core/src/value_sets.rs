// SPDX-License-Identifier: Apache-2.0
//! Members of parser value sets as the parser compares them.

use crate::program::{KeyField, Value, ValueSetInfo};
use crate::state::select::{KeyRange, SetMember};
use crate::write_api::UpdateError;

/// The members, of which there are neither too many nor two alike.
pub fn pack(info: &ValueSetInfo, members: &[Vec<KeyField>]) -> Result<Vec<SetMember>, UpdateError> {
    if members.len() > info.max_size {
        let reason = format!("value set `{}` holds {} members at most", info.name, info.max_size);
        return Err(UpdateError::ResourceExhausted(reason));
    }
    let packed = members.iter().map(|member| pack_member(info, member)).collect::<Result<Vec<_>, _>>()?;
    if packed.iter().enumerate().any(|(at, member)| packed[..at].contains(member)) {
        return Err(UpdateError::AlreadyExists(format!("a member of value set `{}`", info.name)));
    }
    Ok(packed)
}

/// The member as bytes of a select's key: each field padded to whole bytes.
fn pack_member(info: &ValueSetInfo, member: &[KeyField]) -> Result<SetMember, UpdateError> {
    if member.len() != info.widths.len() {
        let (needs, has) = (info.widths.len(), member.len());
        return Err(invalid(format!("a member of value set `{}` has {needs} fields, not {has}", info.name)));
    }
    let (mut value, mut mask) = (Vec::new(), Vec::new());
    let mut ranges = Vec::new();
    for (field, &width) in member.iter().zip(&info.widths) {
        let all = Value::ones(width.into());
        let fits = |v: &Value| {
            let error = || UpdateError::OutOfRange(format!("value set `{}`: {v:#x} exceeds {width} bits", info.name));
            if *v <= all { Ok(v.clone()) } else { Err(error()) }
        };
        let (v, m) = match field {
            KeyField::Exact(v) | KeyField::Optional(Some(v)) => (fits(v)?, all.clone()),
            KeyField::Optional(None) => (Value::ZERO, Value::ZERO),
            KeyField::Ternary { value, mask } => (fits(value)?, fits(mask)?),
            KeyField::Lpm { value, prefix_len } => (fits(value)?, Value::prefix((*prefix_len).into(), width.into())),
            KeyField::Range { low, high } => {
                let at = value.len()..value.len() + width.div_ceil(8) as usize;
                let (low, high) = (bytes(&fits(low)?, width), bytes(&fits(high)?, width));
                ranges.push(KeyRange { at, low, high });
                (Value::ZERO, Value::ZERO)
            }
        };
        if !v.is_within(&m) {
            return Err(invalid(format!("value set `{}`: bits outside the mask are set", info.name)));
        }
        value.extend_from_slice(&bytes(&v, width));
        mask.extend_from_slice(&bytes(&m, width));
    }
    Ok(SetMember { value: value.into(), mask: mask.into(), ranges })
}

fn invalid(reason: String) -> UpdateError {
    UpdateError::InvalidArgument(reason)
}

/// `width` bits in network order, padded to whole bytes in front.
fn bytes(value: &Value, width: u16) -> Box<[u8]> {
    value.to_bytes(width.div_ceil(8).into()).into()
}

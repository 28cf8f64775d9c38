// SPDX-License-Identifier: Apache-2.0
//! `P4Data`: values of registers and digests (P4Runtime 1.4, "Representation of Arbitrary P4 Types").
//!
//! A type is a scalar, or a flat struct or tuple of scalars; nothing deeper is supported.

use apswitch_dataplane::control::Value;

use super::error::{Checked, refuse};
use super::names::Naming;
use super::proto::p4::config::v1 as info;
use super::proto::p4::v1::{P4Data, P4StructLike, p4_data};
use super::translation::{SdnType, Types};
use super::value;

#[derive(Debug, Clone)]
pub enum Scalar {
    Bit(u32),
    Int(u32),
    Bool,
    /// Serializable enum.
    Enum(u32),
    /// Value of a translated type, and the data plane's width.
    Translated(SdnType, u32),
}

#[derive(Debug, Clone)]
pub enum DataType {
    Scalar(Scalar),
    Struct(Vec<Scalar>),
    Tuple(Vec<Scalar>),
}

/// Widths as errors name them.
pub fn listed<T: ToString>(widths: &[T]) -> String {
    widths.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

impl DataType {
    /// `widths`: of the data plane's values.
    pub fn new(spec: Option<&info::P4DataTypeSpec>, types: &Types<'_>, widths: &[u32]) -> Checked<DataType> {
        use info::p4_data_type_spec::TypeSpec;
        let Some(inner) = spec.and_then(|spec| spec.type_spec.as_ref()) else {
            return refuse!(InvalidArgument, "the P4Info gives no type");
        };
        // Too few of them are found out below.
        let mut width = widths.iter().copied();
        let mut member = |spec| scalar(spec, types, width.next().unwrap_or_default());
        let found = match inner {
            TypeSpec::Struct(name) => {
                let Some(found) = types.info.and_then(|types| types.structs.get(&name.name)) else {
                    return refuse!(InvalidArgument, "struct {} is not in the P4Info", name.name);
                };
                let members = found.members.iter().map(|of| member(of.type_spec.as_ref()));
                DataType::Struct(members.collect::<Checked<_>>()?)
            }
            TypeSpec::Tuple(tuple) => {
                let members = tuple.members.iter().map(|of| member(Some(of)));
                DataType::Tuple(members.collect::<Checked<_>>()?)
            }
            _ => DataType::Scalar(member(spec)?),
        };
        found.check_widths(widths).map(|()| found)
    }

    fn scalars(&self) -> &[Scalar] {
        match self {
            DataType::Scalar(scalar) => std::slice::from_ref(scalar),
            DataType::Struct(members) | DataType::Tuple(members) => members,
        }
    }

    /// Checks that the program's fields have the widths of this type.
    pub fn check_widths(&self, loaded: &[u32]) -> Checked<()> {
        let widths: Vec<u32> = self.scalars().iter().map(|scalar| scalar.width()).collect();
        match widths == loaded {
            true => Ok(()),
            false => refuse!(
                InvalidArgument,
                "{} bits in the P4Info, {} in the device config",
                listed(&widths),
                listed(loaded)
            ),
        }
    }

    /// The message for `values`, or `None` when there are not as many as the type has.
    pub fn encode(&self, values: &[Value]) -> Option<P4Data> {
        let scalars = self.scalars();
        if scalars.len() != values.len() {
            return None;
        }
        let mut members = scalars.iter().zip(values).map(|(scalar, value)| scalar.encode(value));
        let data = match self {
            DataType::Scalar(_) => return members.next(),
            DataType::Struct(_) => p4_data::Data::Struct(P4StructLike { members: members.collect() }),
            DataType::Tuple(_) => p4_data::Data::Tuple(P4StructLike { members: members.collect() }),
        };
        Some(P4Data { data: Some(data) })
    }

    /// The values of a message, which has to have this type.
    pub fn decode(&self, message: Option<&P4Data>) -> Checked<Vec<Value>> {
        use p4_data::Data;
        let data = message.and_then(|message| message.data.as_ref());
        match (self, data) {
            (DataType::Scalar(scalar), Some(_)) => Ok(vec![scalar.decode(data)?]),
            (DataType::Struct(scalars), Some(Data::Struct(like)))
            | (DataType::Tuple(scalars), Some(Data::Tuple(like)))
                if scalars.len() == like.members.len() =>
            {
                scalars.iter().zip(&like.members).map(|(scalar, member)| scalar.decode(member.data.as_ref())).collect()
            }
            (_, Some(_)) => refuse!(InvalidArgument, "the data does not have the type of the P4Info"),
            (_, None) => refuse!(InvalidArgument, "there is no data"),
        }
    }
}

impl Scalar {
    fn width(&self) -> u32 {
        match *self {
            Scalar::Bit(width) | Scalar::Int(width) | Scalar::Enum(width) | Scalar::Translated(_, width) => width,
            Scalar::Bool => 1,
        }
    }

    fn encode(&self, value: &Value) -> P4Data {
        use p4_data::Data;
        let data = match self {
            Scalar::Bit(_) => Data::Bitstring(value::from_value(value)),
            Scalar::Int(width) => Data::Bitstring(value::from_signed(value, *width)),
            Scalar::Enum(_) => Data::EnumValue(value::from_value(value)),
            Scalar::Bool => Data::Bool(!value.is_zero()),
            Scalar::Translated(sdn_type, _) => Data::Bitstring(sdn_type.encode(value)),
        };
        P4Data { data: Some(data) }
    }

    fn decode(&self, data: Option<&p4_data::Data>) -> Checked<Value> {
        use p4_data::Data;
        match (self, data) {
            (Scalar::Bit(width), Some(Data::Bitstring(bytes))) => Ok(value::to_value(bytes, *width)?),
            (Scalar::Int(width), Some(Data::Bitstring(bytes))) => Ok(value::signed_to_value(bytes, *width)?),
            (Scalar::Enum(width), Some(Data::EnumValue(bytes))) => Ok(value::to_value(bytes, *width)?),
            (Scalar::Bool, Some(&Data::Bool(value))) => Ok(value.into()),
            (Scalar::Translated(sdn_type, width), Some(Data::Bitstring(bytes))) => {
                sdn_type.decode(bytes, *width, Naming::Give)
            }
            (_, Some(_)) => refuse!(InvalidArgument, "the data does not have the type of the P4Info"),
            (_, None) => refuse!(InvalidArgument, "there is no data"),
        }
    }
}

/// `loaded`: bits of the data plane's value.
fn scalar(spec: Option<&info::P4DataTypeSpec>, types: &Types<'_>, loaded: u32) -> Checked<Scalar> {
    use info::p4_bitstring_like_type_spec::TypeSpec as Bits;
    use info::p4_data_type_spec::TypeSpec;
    let checked = |width: i32| match u32::try_from(width) {
        Ok(width @ 1..) => Ok(width),
        _ => refuse!(InvalidArgument, "a value of {width} bits"),
    };
    match original_type(spec, types.info)? {
        TypeSpec::NewType(name) => match types.translation(&name.name) {
            Some(found) => Ok(Scalar::Translated(SdnType::of_translation(&name.name, found, types, loaded)?, loaded)),
            None => refuse!(InvalidArgument, "type {} is not in the P4Info", name.name),
        },
        TypeSpec::Bitstring(bits) => match &bits.type_spec {
            Some(Bits::Bit(bit)) => Ok(Scalar::Bit(checked(bit.bitwidth)?)),
            Some(Bits::Int(int)) => Ok(Scalar::Int(checked(int.bitwidth)?)),
            _ => refuse!(Unimplemented, "varbit is not supported"),
        },
        TypeSpec::Bool(_) => Ok(Scalar::Bool),
        TypeSpec::SerializableEnum(name) => {
            match types
                .info
                .and_then(|types| types.serializable_enums.get(&name.name))
                .and_then(|e| e.underlying_type.as_ref())
            {
                Some(bit) => Ok(Scalar::Enum(checked(bit.bitwidth)?)),
                None => refuse!(InvalidArgument, "enum {} is not in the P4Info", name.name),
            }
        }
        _ => refuse!(Unimplemented, "only bit, int, bool and serializable enum values are supported"),
    }
}

/// The type that a chain of `type` declarations stands for: one of P4's own, or a translated one.
fn original_type<'a>(
    mut spec: Option<&'a info::P4DataTypeSpec>,
    types: Option<&'a info::P4TypeInfo>,
) -> Checked<&'a info::p4_data_type_spec::TypeSpec> {
    use info::p4_data_type_spec::TypeSpec;
    use info::p4_new_type_spec::Representation;
    // A chain of more links than there are types is a circle.
    for _ in 0..=types.map_or(0, |types| types.new_types.len()) {
        let Some(found) = spec.and_then(|spec| spec.type_spec.as_ref()) else {
            return refuse!(InvalidArgument, "the P4Info gives no type");
        };
        let TypeSpec::NewType(info::P4NamedType { name }) = found else { return Ok(found) };
        match types.and_then(|types| types.new_types.get(name)).and_then(|t| t.representation.as_ref()) {
            Some(Representation::OriginalType(original)) => spec = Some(original),
            Some(Representation::TranslatedType(_)) => return Ok(found),
            None => return refuse!(InvalidArgument, "type {name} is not in the P4Info"),
        }
    }
    refuse!(InvalidArgument, "a type of the P4Info stands for itself")
}

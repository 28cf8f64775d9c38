// SPDX-License-Identifier: Apache-2.0
//! Loader from JSON to the tree: refuses what the format does not define, by name and place.

use std::collections::HashMap;
use std::fmt;

use num_bigint::{BigInt, Sign};
use serde_json::{Value, json};

use super::hash::Algorithm;
use super::program::*;
use apswitch_core::program::LoadError;

type Result<T> = std::result::Result<T, LoadError>;

/// Parsed names and where the loader is.
pub struct Loader {
    pub headers: Vec<Header>,
    pub stacks: Vec<Stack>,
    pub unions: Vec<Union>,
    pub union_stacks: Vec<Stack>,
    pub names: HashMap<(Kind, String), usize>,
    /// Construct that is being read, for messages.
    pub place: String,
}

/// Kinds of objects that are named in the JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Header,
    Stack,
    Union,
    UnionStack,
    Counter,
    Meter,
    Register,
    Calculation,
    ValueSet,
    FieldList,
    Digest,
    Action,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Header => "header",
            Kind::Stack => "header stack",
            Kind::Union => "header union",
            Kind::UnionStack => "stack of header unions",
            Kind::Counter => "counter",
            Kind::Meter => "meter",
            Kind::Register => "register",
            Kind::Calculation => "calculation",
            Kind::ValueSet => "value set",
            Kind::FieldList => "field list",
            Kind::Digest => "digest",
            Kind::Action => "action",
        })
    }
}

pub fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

pub fn source(value: &Value) -> Source {
    let info = &value["source_info"];
    let file = text(&info["filename"]);
    let place = if file.is_empty() { String::new() } else { format!("{file}:{}", info["line"]) };
    Source { place, text: text(&info["source_fragment"]).to_string() }
}

impl Loader {
    pub fn refuse<T>(&self, reason: impl Into<String>) -> Result<T> {
        Err(LoadError { place: self.place.clone(), reason: reason.into() })
    }

    /// Says what is being read: ``kind `name` ``.
    pub fn enter(&mut self, kind: &str, value: &Value) {
        let source = source(value);
        self.place = format!("{kind} `{}`", text(&value["name"]));
        if !source.place.is_empty() {
            self.place += &format!(" ({})", source.place);
        }
    }

    pub fn find(&self, kind: Kind, name: &str) -> Result<usize> {
        match self.names.get(&(kind, name.to_string())) {
            Some(index) => Ok(*index),
            None => self.refuse(format!("unknown {kind} `{name}`")),
        }
    }

    pub fn number(&self, value: &Value) -> Result<usize> {
        match value.as_u64() {
            Some(number) => Ok(number as usize),
            None => self.refuse(format!("{value} is not a number")),
        }
    }

    /// `0x1f`, `-0x1f`.
    pub fn hex(&self, value: &Value) -> Result<BigInt> {
        let digits = text(value);
        let (sign, digits) = match digits.strip_prefix('-') {
            Some(digits) => (Sign::Minus, digits),
            None => (Sign::Plus, digits),
        };
        let magnitude = num_bigint::BigUint::parse_bytes(digits.trim_start_matches("0x").as_bytes(), 16);
        match magnitude {
            Some(magnitude) => Ok(BigInt::from_biguint(sign, magnitude)),
            None => self.refuse(format!("{value} is not a hexadecimal number")),
        }
    }

    /// A hexadecimal number or nothing.
    pub fn mask(&self, value: &Value) -> Result<Option<BigInt>> {
        if value.is_null() { Ok(None) } else { self.hex(value).map(Some) }
    }

    pub fn field_index(&self, header: usize, name: &str) -> Result<Part> {
        if name == "$valid$" {
            return Ok(Part::Valid);
        }
        let header = &self.headers[header];
        match header.fields.iter().position(|field| field.name == name) {
            Some(index) => Ok(Part::Field(index)),
            None => self.refuse(format!("unknown field `{}.{name}`", header.name)),
        }
    }

    /// `[header, field]`.
    pub fn plain_field(&self, value: &Value) -> Result<(usize, Part)> {
        let header = self.find(Kind::Header, text(&value[0]))?;
        Ok((header, self.field_index(header, text(&value[1]))?))
    }

    /// The value of `{"type": "expression", "value": ...}` as often as it is wrapped.
    fn unwrap<'v>(&self, mut value: &'v Value) -> &'v Value {
        while value["type"] == "expression" && value["value"].get("type").is_some() {
            value = &value["value"];
        }
        value
    }

    /// Any header of the stack stands for the type of all.
    fn sample(&self, header: &HeaderRef) -> Result<usize> {
        let sample = match header {
            HeaderRef::Header(header) => Some(*header),
            HeaderRef::Element { stack, .. } | HeaderRef::Last { stack } => {
                self.stacks[*stack].elements.first().copied()
            }
            HeaderRef::Member { union, member } => {
                let union = match union {
                    UnionRef::Union(union) => Some(*union),
                    UnionRef::Element { stack, .. } | UnionRef::Last { stack } => {
                        self.union_stacks[*stack].elements.first().copied()
                    }
                };
                union.and_then(|union| self.unions[union].members.get(*member).copied())
            }
        };
        sample.map_or_else(|| self.refuse("a header that does not exist"), Ok)
    }

    pub fn header_ref(&self, value: &Value) -> Result<HeaderRef> {
        let value = self.unwrap(value);
        let inner = &value["value"];
        match (text(&value["type"]), text(&inner["op"])) {
            ("header", _) => Ok(HeaderRef::Header(self.find(Kind::Header, text(inner))?)),
            ("expression", "dereference_header_stack" | "dereference_stack") => {
                let stack = self.find(Kind::Stack, text(&inner["left"]["value"]))?;
                Ok(HeaderRef::Element { stack, index: Box::new(self.expr(&inner["right"])?) })
            }
            ("expression", "access_union_header") => {
                let (union, member) = (self.union_ref(&inner["left"])?, self.number(&inner["right"])?);
                Ok(HeaderRef::Member { union, member })
            }
            _ => self.refuse(format!("{value} is not a header")),
        }
    }

    pub fn union_ref(&self, value: &Value) -> Result<UnionRef> {
        let value = self.unwrap(value);
        let inner = &value["value"];
        match (text(&value["type"]), text(&inner["op"])) {
            ("header_union", _) => Ok(UnionRef::Union(self.find(Kind::Union, text(inner))?)),
            ("expression", "dereference_union_stack") => {
                let stack = self.find(Kind::UnionStack, text(&inner["left"]["value"]))?;
                Ok(UnionRef::Element { stack, index: Box::new(self.expr(&inner["right"])?) })
            }
            _ => self.refuse(format!("{value} is not a header union")),
        }
    }

    pub fn stack_ref(&self, value: &Value) -> Result<AnyStack> {
        let name = text(&value["value"]);
        match text(&value["type"]) {
            "header_stack" => Ok(AnyStack::Headers(self.find(Kind::Stack, name)?)),
            "header_union_stack" => Ok(AnyStack::Unions(self.find(Kind::UnionStack, name)?)),
            _ => self.refuse(format!("{value} is not a stack")),
        }
    }

    pub fn field_ref(&self, value: &Value) -> Result<FieldRef> {
        let value = self.unwrap(value);
        let inner = &value["value"];
        let (header, name) = match text(&value["type"]) {
            // The validity of an element that an index chooses is a field of an expression.
            "field" if inner[0].is_object() => {
                (self.header_ref(&json!({"type": "expression", "value": inner[0]}))?, &inner[1])
            }
            "field" => (HeaderRef::Header(self.find(Kind::Header, text(&inner[0]))?), &inner[1]),
            "stack_field" => (HeaderRef::Last { stack: self.find(Kind::Stack, text(&inner[0]))? }, &inner[1]),
            "union_stack_field" => {
                let stack = self.find(Kind::UnionStack, text(&inner[0]))?;
                let member = self.union_member(stack, text(&inner[1]))?;
                (HeaderRef::Member { union: UnionRef::Last { stack }, member }, &inner[2])
            }
            "expression" if inner["op"] == "access_field" => {
                let header = self.header_ref(&inner["left"])?;
                let field = self.number(&inner["right"])?;
                let fields = self.headers[self.sample(&header)?].fields.len();
                return match field {
                    // The bit of validity stands behind the fields.
                    _ if field < fields => Ok(FieldRef { header, part: Part::Field(field) }),
                    _ if field == fields => Ok(FieldRef { header, part: Part::Valid }),
                    _ => self.refuse(format!("there is no field {field}")),
                };
            }
            _ => return self.refuse(format!("{value} is not a field")),
        };
        let part = self.field_index(self.sample(&header)?, text(name))?;
        Ok(FieldRef { header, part })
    }

    /// Width and sign of a part of a select's key.
    pub fn shape(&self, key: &SelectKey) -> Result<(u32, bool)> {
        match key {
            SelectKey::Lookahead(ahead) => Ok((ahead.width as u32, false)),
            SelectKey::Field(FieldRef { part: Part::Valid, .. }) => Ok((1, false)),
            SelectKey::Field(FieldRef { header, part: Part::Field(field) }) => {
                let field = &self.headers[self.sample(header)?].fields[*field];
                Ok((field.width, field.signed))
            }
        }
    }

    /// The place of a member in the unions of a stack.
    pub fn union_member(&self, stack: usize, member: &str) -> Result<usize> {
        let union = self.union_stacks[stack].elements.first();
        match union.and_then(|union| self.unions[*union].member_names.iter().position(|name| name == member)) {
            Some(index) => Ok(index),
            None => self.refuse(format!("`{}` has no member `{member}`", self.union_stacks[stack].name)),
        }
    }

    pub fn expr(&self, value: &Value) -> Result<Expr> {
        let value = self.unwrap(value);
        let inner = &value["value"];
        match text(&value["type"]) {
            "expression" if inner["op"] == "access_field" => self.field_ref(value).map(Expr::Field),
            "expression" => self.operation(inner),
            "field" | "stack_field" | "union_stack_field" => self.field_ref(value).map(Expr::Field),
            "hexstr" => self.hex(inner).map(Expr::Constant),
            "bool" => Ok(Expr::Constant(BigInt::from(u8::from(inner == &Value::Bool(true))))),
            "local" | "runtime_data" => self.number(inner).map(Expr::Param),
            other => self.refuse(format!("`{other}` in an expression")),
        }
    }

    fn operation(&self, value: &Value) -> Result<Expr> {
        let (left, right) = (&value["left"], &value["right"]);
        let unary = |op| Ok(Expr::Unary(op, Box::new(self.expr(right)?)));
        let binary = |op| Ok(Expr::Binary(op, Box::new(self.expr(left)?), Box::new(self.expr(right)?)));
        match text(&value["op"]) {
            "+" if left.is_null() => unary(Unary::Same),
            "-" if left.is_null() => unary(Unary::Negative),
            "+" => binary(Binary::Add),
            "-" => binary(Binary::Subtract),
            "*" => binary(Binary::Multiply),
            "/" => binary(Binary::Divide),
            "%" => binary(Binary::Modulo),
            "&" | "and" => binary(Binary::And),
            "|" | "or" => binary(Binary::Or),
            "^" => binary(Binary::Xor),
            "<<" => binary(Binary::ShiftLeft),
            ">>" => binary(Binary::ShiftRight),
            "==" | "==h" | "==u" | "==b" => self.equality(left, right),
            "!=" | "!=h" | "!=u" | "!=b" => Ok(Expr::Unary(Unary::Not, Box::new(self.equality(left, right)?))),
            "<" => binary(Binary::Less),
            "<=" => binary(Binary::LessOrEqual),
            ">" => binary(Binary::Greater),
            ">=" => binary(Binary::GreaterOrEqual),
            "~" => unary(Unary::Complement),
            "not" => unary(Unary::Not),
            "d2b" => unary(Unary::ToBool),
            "b2d" => unary(Unary::Same),
            "two_comp_mod" => binary(Binary::TwosComplement),
            "sat_cast" => binary(Binary::SaturateSigned),
            "usat_cast" => binary(Binary::SaturateUnsigned),
            "?" => {
                let condition = Box::new(self.expr(&value["cond"])?);
                Ok(Expr::Choose(condition, Box::new(self.expr(left)?), Box::new(self.expr(right)?)))
            }
            "valid" => self.header_ref(right).map(Expr::Valid),
            "valid_union" => self.union_ref(right).map(Expr::ValidUnion),
            "size_stack" | "last_stack_index" => {
                let stack = self.find(Kind::Stack, text(&right["value"]))?;
                let size = Expr::Size { stack };
                if value["op"] == "size_stack" {
                    return Ok(size);
                }
                Ok(Expr::Binary(Binary::Subtract, Box::new(size), Box::new(Expr::Constant(BigInt::from(1)))))
            }
            other => self.refuse(format!("unknown operation `{other}`")),
        }
    }

    /// Compiles an equality of numbers, headers or unions.
    fn equality(&self, left: &Value, right: &Value) -> Result<Expr> {
        let inner = self.unwrap(left);
        match (text(&inner["type"]), text(&inner["value"]["op"])) {
            ("header", _) | ("expression", "dereference_header_stack" | "access_union_header") => {
                Ok(Expr::SameHeader(self.header_ref(left)?, self.header_ref(right)?))
            }
            ("header_union", _) | ("expression", "dereference_union_stack") => {
                Ok(Expr::SameUnion(self.union_ref(left)?, self.union_ref(right)?))
            }
            _ => match (self.expr(left)?, self.expr(right)?) {
                (Expr::Field(a), Expr::Field(b)) => Ok(Expr::SameField(a, b)),
                (a, b) => Ok(Expr::Binary(Binary::Equal, Box::new(a), Box::new(b))),
            },
        }
    }

    /// A primitive of an action, a parser state or the deparser.
    pub fn statement(&mut self, value: &Value) -> Result<Statement> {
        let source = source(value);
        let params = list(&value["parameters"]);
        let param = |index: usize| params.get(index).unwrap_or(&Value::Null);
        let object = |kind, index: usize| self.find(kind, text(&param(index)["value"]));
        // Lists are named by their ids.
        let listed = |kind, index: usize| {
            let id = self.hex(&param(index)["value"])?;
            self.find(kind, &id.to_string())
        };
        let target = |index: usize| match self.hex(&param(index)["value"]).map(|target| usize::try_from(&target)) {
            Ok(Ok(target)) => Ok(target),
            _ => self.refuse(format!("{} is nothing to jump to", param(index)["value"])),
        };
        let primitive = match text(&value["op"]) {
            "assign" | "modify_field" => Primitive::Assign(self.field_ref(param(0))?, self.expr(param(1))?),
            "assign_VL" => Primitive::AssignVarbit(self.field_ref(param(0))?, self.field_ref(param(1))?),
            "assign_header" => Primitive::AssignHeader(self.header_ref(param(0))?, self.header_ref(param(1))?),
            "assign_union" => Primitive::AssignUnion(self.union_ref(param(0))?, self.union_ref(param(1))?),
            "assign_header_stack" | "assign_union_stack" => {
                Primitive::AssignStack { to: self.stack_ref(param(0))?, from: self.stack_ref(param(1))? }
            }
            "add_header" => Primitive::AddHeader(self.header_ref(param(0))?),
            "remove_header" => Primitive::RemoveHeader(self.header_ref(param(0))?),
            "push" => Primitive::Push(self.stack_ref(param(0))?, self.expr(param(1))?),
            "pop" => Primitive::Pop(self.stack_ref(param(0))?, self.expr(param(1))?),
            "_jump" => Primitive::Jump(target(0)?),
            "_jump_if_zero" => Primitive::JumpIfZero(self.expr(param(0))?, target(1)?),
            "exit" => Primitive::Exit,
            "mark_to_drop" | "drop" => Primitive::MarkToDrop,
            "count" => Primitive::Count { counter: object(Kind::Counter, 0)?, index: self.expr(param(1))? },
            "execute_meter" => {
                let (meter, index) = (object(Kind::Meter, 0)?, self.expr(param(1))?);
                Primitive::ExecuteMeter { meter, index, to: self.field_ref(param(2))? }
            }
            "register_read" => {
                let (register, index) = (object(Kind::Register, 1)?, self.expr(param(2))?);
                Primitive::ReadRegister { register, index, to: self.field_ref(param(0))? }
            }
            "register_write" => {
                let (register, index) = (object(Kind::Register, 0)?, self.expr(param(1))?);
                Primitive::WriteRegister { register, index, value: self.expr(param(2))? }
            }
            "generate_digest" => Primitive::Digest(listed(Kind::Digest, 1)?),
            "modify_field_rng_uniform" => {
                let (low, high) = (self.expr(param(1))?, self.expr(param(2))?);
                Primitive::Random { to: self.field_ref(param(0))?, low, high }
            }
            "modify_field_with_hash_based_offset" => {
                let (low, size) = (self.expr(param(1))?, self.expr(param(3))?);
                let calculation = object(Kind::Calculation, 2)?;
                Primitive::Hash { to: self.field_ref(param(0))?, calculation, low, size }
            }
            "clone_ingress_pkt_to_egress" | "clone_egress_pkt_to_egress" => {
                Primitive::Clone { session: self.expr(param(0))?, fields: listed(Kind::FieldList, 1)? }
            }
            "resubmit" => Primitive::Resubmit { fields: listed(Kind::FieldList, 0)? },
            "recirculate" => Primitive::Recirculate { fields: listed(Kind::FieldList, 0)? },
            "truncate" => Primitive::Truncate(self.expr(param(0))?),
            "log_msg" => {
                let values = list(&param(1)["value"]).iter().map(|value| self.expr(value));
                Primitive::Log { format: text(&param(0)["value"]).into(), values: values.collect::<Result<_>>()? }
            }
            "assert" | "assume" => Primitive::Assert(self.expr(param(0))?),
            "no_op" => Primitive::Nothing,
            other => return self.refuse(format!("unknown primitive `{other}`")),
        };
        Ok(Statement { primitive, source })
    }

    pub fn calculation(&self, value: &Value) -> Result<Calculation> {
        let algorithm = match Algorithm::named(text(&value["algo"])) {
            Some(algorithm) => algorithm,
            None => return self.refuse(format!("unknown algorithm {}", value["algo"])),
        };
        let input = list(&value["input"]).iter().map(|item| match text(&item["type"]) {
            "field" => match self.plain_field(&item["value"])? {
                (header, Part::Field(field)) => Ok(HashInput::Field { header, field }),
                _ => self.refuse("a hash over a header's validity"),
            },
            "hexstr" => Ok(HashInput::Constant {
                value: self.hex(&item["value"])?,
                width: self.number(&item["bitwidth"])? as u32,
            }),
            "header" => Ok(HashInput::Header(self.find(Kind::Header, text(&item["value"]))?)),
            "payload" => Ok(HashInput::Payload),
            other => self.refuse(format!("`{other}` as the input of a hash")),
        });
        Ok(Calculation { algorithm, input: input.collect::<Result<_>>()? })
    }
}

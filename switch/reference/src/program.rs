// SPDX-License-Identifier: Apache-2.0
//! A program as a tree: what the JSON says, with names resolved to indices.

use std::collections::HashMap;

use num_bigint::BigInt;

/// Position of a construct in the P4 source, as `file:line`, and its text; empty if the compiler did not tell.
#[derive(Clone, Debug, Default)]
pub struct Source {
    pub place: String,
    pub text: String,
}

#[derive(Clone, Debug)]
pub struct Field {
    pub name: String,
    /// Bits; of a varbit as many as the packet has: 0 here.
    pub width: u32,
    pub signed: bool,
    pub varbit: bool,
}

#[derive(Clone, Debug)]
pub struct Header {
    pub name: String,
    pub metadata: bool,
    pub fields: Vec<Field>,
    /// Bytes of the longest header with a varbit.
    pub max_bytes: Option<usize>,
    /// The union that the header is a member of.
    pub union: Option<usize>,
}

/// Headers or unions under one name with an index.
#[derive(Clone, Debug)]
pub struct Stack {
    pub name: String,
    pub elements: Vec<usize>,
}

/// Members are headers, at most one of them valid.
#[derive(Clone, Debug)]
pub struct Union {
    pub members: Vec<usize>,
    pub member_names: Vec<String>,
}

#[derive(Clone, Debug)]
pub enum HeaderRef {
    Header(usize),
    Element {
        stack: usize,
        index: Box<Expr>,
    },
    /// The last one that the parser has filled.
    Last {
        stack: usize,
    },
    Member {
        union: UnionRef,
        member: usize,
    },
}

#[derive(Clone, Debug)]
pub enum UnionRef {
    Union(usize),
    Element { stack: usize, index: Box<Expr> },
    Last { stack: usize },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The bit that tells whether the header is valid.
    Valid,
    Field(usize),
}

#[derive(Clone, Debug)]
pub struct FieldRef {
    pub header: HeaderRef,
    pub part: Part,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unary {
    Negative,
    /// Complement of every bit.
    Complement,
    Not,
    /// Between number and boolean; both are numbers here, true is 1.
    ToBool,
    Same,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    And,
    Or,
    Xor,
    ShiftLeft,
    ShiftRight,
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    /// Modulo 2^right, as a signed number.
    TwosComplement,
    /// The nearest number of `right` bits.
    SaturateSigned,
    SaturateUnsigned,
}

#[derive(Clone, Debug)]
pub enum Expr {
    Constant(BigInt),
    Field(FieldRef),
    /// Parameter of the enclosing action.
    Param(usize),
    Unary(Unary, Box<Expr>),
    Binary(Binary, Box<Expr>, Box<Expr>),
    Choose(Box<Expr>, Box<Expr>, Box<Expr>),
    Valid(HeaderRef),
    ValidUnion(UnionRef),
    /// Varbits have also the same length.
    SameField(FieldRef, FieldRef),
    SameHeader(HeaderRef, HeaderRef),
    SameUnion(UnionRef, UnionRef),
    /// Filled elements of a stack; less one, the index of the last.
    Size {
        stack: usize,
    },
}

/// Stack that can be pushed to and popped from.
#[derive(Clone, Copy, Debug)]
pub enum AnyStack {
    Headers(usize),
    Unions(usize),
}

#[derive(Clone, Debug)]
pub enum Primitive {
    Assign(FieldRef, Expr),
    AssignVarbit(FieldRef, FieldRef),
    AssignHeader(HeaderRef, HeaderRef),
    AssignUnion(UnionRef, UnionRef),
    AssignStack {
        to: AnyStack,
        from: AnyStack,
    },
    AddHeader(HeaderRef),
    RemoveHeader(HeaderRef),
    Push(AnyStack, Expr),
    Pop(AnyStack, Expr),
    Jump(usize),
    JumpIfZero(Expr, usize),
    Exit,
    MarkToDrop,
    Count {
        counter: usize,
        index: Expr,
    },
    ExecuteMeter {
        meter: usize,
        index: Expr,
        to: FieldRef,
    },
    ReadRegister {
        register: usize,
        index: Expr,
        to: FieldRef,
    },
    WriteRegister {
        register: usize,
        index: Expr,
        value: Expr,
    },
    Digest(usize),
    Random {
        to: FieldRef,
        low: Expr,
        high: Expr,
    },
    /// `low + hash % size`.
    Hash {
        to: FieldRef,
        calculation: usize,
        low: Expr,
        size: Expr,
    },
    Clone {
        session: Expr,
        fields: usize,
    },
    Resubmit {
        fields: usize,
    },
    Recirculate {
        fields: usize,
    },
    Truncate(Expr),
    Log {
        format: String,
        values: Vec<Expr>,
    },
    /// `assert` or `assume`.
    Assert(Expr),
    Nothing,
}

#[derive(Clone, Debug)]
pub struct Statement {
    pub primitive: Primitive,
    pub source: Source,
}

#[derive(Clone, Debug)]
pub struct Action {
    pub name: String,
    /// Names and widths.
    pub params: Vec<(String, u32)>,
    pub body: Vec<Statement>,
}

/// Destination of an extracted header.
#[derive(Clone, Debug)]
pub enum Extract {
    Header(usize),
    /// The next free element.
    Stack(usize),
    UnionStack {
        stack: usize,
        member: usize,
    },
}

/// Bits behind the cursor.
#[derive(Clone, Copy, Debug)]
pub struct Lookahead {
    pub offset: usize,
    pub width: usize,
}

#[derive(Clone, Debug)]
pub enum ParserOp {
    /// With the bits of the varbit.
    Extract(Extract, Option<Expr>),
    Set(FieldRef, Expr),
    SetAhead(FieldRef, Lookahead),
    /// Bits.
    Advance(Expr),
    Verify(Expr, Expr),
    Run(Statement),
}

impl ParserOp {
    /// Returns the expressions that it reads.
    pub fn expressions(&self) -> impl Iterator<Item = &Expr> {
        let (first, second) = match self {
            ParserOp::Extract(_, length) => (length.as_ref(), None),
            ParserOp::Set(_, value) | ParserOp::Advance(value) => (Some(value), None),
            ParserOp::Verify(condition, error) => (Some(condition), Some(error)),
            ParserOp::SetAhead(..) | ParserOp::Run(_) => (None, None),
        };
        first.into_iter().chain(second)
    }
}

#[derive(Clone, Debug)]
pub enum SelectKey {
    Field(FieldRef),
    Lookahead(Lookahead),
}

#[derive(Clone, Debug)]
pub enum Case {
    /// A key whose bits under the mask are these.
    Value { value: BigInt, mask: Option<BigInt> },
    /// A key that is in the value set.
    Set(usize),
}

#[derive(Clone, Debug)]
pub struct State {
    pub name: String,
    pub ops: Vec<ParserOp>,
    /// Keys of the select; each padded to whole bytes.
    pub select: Vec<SelectKey>,
    /// `None` accepts.
    pub cases: Vec<(Case, Option<usize>)>,
    /// `None`: a packet that matches no case is an error.
    pub default: Option<Option<usize>>,
}

#[derive(Clone, Debug)]
pub enum HashInput {
    Field {
        header: usize,
        field: usize,
    },
    Constant {
        value: BigInt,
        width: u32,
    },
    Header(usize),
    /// Payload behind the parsed headers.
    Payload,
}

#[derive(Clone, Debug)]
pub struct Calculation {
    pub algorithm: super::hash::Algorithm,
    pub input: Vec<HashInput>,
}

#[derive(Clone, Debug)]
pub struct Checksum {
    pub header: usize,
    pub field: usize,
    pub calculation: usize,
    pub verify: bool,
    pub update: bool,
    pub condition: Option<Expr>,
}

#[derive(Clone, Debug)]
pub struct Key {
    pub name: String,
    pub header: usize,
    pub part: Part,
    pub mask: Option<BigInt>,
}

#[derive(Clone, Debug)]
pub struct Table {
    pub name: String,
    pub source: Source,
    pub key: Vec<Key>,
    /// By action name, `__HIT__` and `__MISS__`.
    pub next: HashMap<String, Option<usize>>,
    pub default_next: Option<usize>,
    pub has_counter: bool,
    /// Direct meter: where the colour goes, and whether it counts bytes.
    pub meter: Option<(FieldRef, bool)>,
    /// Hash that chooses one of several actions.
    pub selector: Option<Calculation>,
}

#[derive(Clone, Debug)]
pub struct Condition {
    pub expr: Expr,
    pub source: Source,
    pub then: Option<usize>,
    pub otherwise: Option<usize>,
}

/// A node of a control's graph.
#[derive(Clone, Debug)]
pub enum Node {
    Table(Table),
    Condition(Condition),
    /// An action without parameters and what follows it.
    Call(usize, Option<usize>),
}

#[derive(Clone, Debug)]
pub struct Control {
    pub name: &'static str,
    pub start: Option<usize>,
    pub nodes: Vec<Node>,
}

#[derive(Clone, Debug)]
pub struct Named {
    pub name: String,
    pub size: usize,
    /// Bits of a register's cells.
    pub width: u32,
    /// A meter counts bytes, not packets.
    pub bytes: bool,
}

#[derive(Clone, Debug)]
pub struct FieldList {
    pub name: String,
    pub fields: Vec<FieldRef>,
}

#[derive(Debug)]
pub struct Program {
    pub headers: Vec<Header>,
    pub stacks: Vec<Stack>,
    pub unions: Vec<Union>,
    pub union_stacks: Vec<Stack>,
    /// Fields that the architecture names, such as `standard_metadata.egress_spec`.
    pub standard: HashMap<String, (usize, usize)>,
    pub errors: HashMap<String, u64>,
    pub states: Vec<State>,
    pub start: Option<usize>,
    /// Names of value sets.
    pub value_sets: Vec<String>,
    pub actions: Vec<Action>,
    pub ingress: Control,
    pub egress: Control,
    pub counters: Vec<Named>,
    pub meters: Vec<Named>,
    pub registers: Vec<Named>,
    pub calculations: Vec<Calculation>,
    pub checksums: Vec<Checksum>,
    pub digests: Vec<FieldList>,
    pub field_lists: Vec<FieldList>,
    /// Headers in the order of the wire.
    pub deparser: Vec<usize>,
    /// Statements that run before the headers are written.
    pub deparser_statements: Vec<Statement>,
}

impl Program {
    pub fn error(&self, name: &str) -> u64 {
        self.errors.get(name).copied().unwrap_or(0)
    }

    pub fn error_name(&self, value: u64) -> String {
        let known = self.errors.iter().find(|(_, number)| **number == value);
        known.map_or_else(|| value.to_string(), |(name, _)| name.clone())
    }

    /// `header.field`.
    pub fn field_name(&self, header: usize, part: Part) -> String {
        let header = &self.headers[header];
        match part {
            Part::Valid => format!("{}.isValid()", header.name),
            Part::Field(field) => format!("{}.{}", header.name, header.fields[field].name),
        }
    }
}

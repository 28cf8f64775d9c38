// SPDX-License-Identifier: Apache-2.0
//! A compiled program: what the machine executes, immutable and shared.

use super::headers::{HeaderOp, Stack};
use super::op::{Address, Op, Reg};
use super::select::Select;
use super::wide::Wide;
use super::wire::HeaderLayout;
use crate::value::words;

/// A field as instructions outside expressions see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FieldRef {
    pub reg: Reg,
    pub width: u16,
    pub signed: bool,
}

impl FieldRef {
    pub fn mask(self) -> u64 {
        if self.width >= 64 { u64::MAX } else { (1 << self.width) - 1 }
    }

    /// Registers that the field takes.
    pub fn words(self) -> usize {
        words(self.width)
    }
}

/// Code that ends with [`Op::Exit`] and leaves its result in a register.
#[derive(Clone, Copy, Debug)]
pub struct Snippet {
    pub start: Address,
    pub result: Reg,
}

#[derive(Debug)]
pub enum ParserOp {
    Extract {
        target: ExtractTarget,
    },
    Move {
        dst: Reg,
        a: Reg,
    },
    /// Code that ends with [`Op::Exit`].
    Run {
        start: Address,
    },
    /// `dst = ` the `width` bits that start `offset` bits behind the cursor.
    Lookahead {
        dst: FieldRef,
        offset: u32,
        width: u16,
    },
    /// Result in bits; has to be whole bytes.
    Advance {
        bits: Snippet,
    },
    Verify {
        condition: Snippet,
        error: Snippet,
    },
    Other(OtherParserOp),
}

/// Rare operations of parsers; run by [`State::parse_other`](super::State).
#[derive(Debug)]
pub enum OtherParserOp {
    /// As [`ParserOp::Extract`], of a header of variable length.
    Extract {
        target: ExtractTarget,
        /// The register with the bits of the varbit.
        length: Reg,
        /// Bytes of the header at most.
        most: u32,
    },
    /// Reading the last element of an empty stack is an error.
    HasLast { next: Reg },
    /// As [`ParserOp::Lookahead`], to a field of any width or sign.
    Lookahead {
        dst: FieldRef,
        signed: bool,
        /// The register with the place of the field's header in the frame.
        place: Reg,
        offset: u32,
        width: u16,
    },
}

#[derive(Debug)]
pub enum ExtractTarget {
    Header(u16),
    /// The member of the union, or 0, of the next element.
    Next {
        stack: u16,
        member: usize,
    },
}

#[derive(Debug)]
pub enum SelectKey {
    Field(FieldRef),
    Lookahead { offset: u32, width: u16 },
}

impl SelectKey {
    pub fn width(&self) -> u16 {
        match self {
            SelectKey::Field(place) => place.width,
            SelectKey::Lookahead { width, .. } => *width,
        }
    }
}

/// State index; `None` accepts.
pub type NextState = Option<u16>;

#[derive(Debug)]
pub struct ParserState {
    pub ops: Vec<ParserOp>,
    /// Each padded to whole bytes, concatenated.
    pub keys: Vec<SelectKey>,
    /// (value, mask, next): the first whose masked value is the masked key. Values are masked already.
    pub cases: Vec<(u128, u128, NextState)>,
    /// `None`: no match is an error.
    pub default: Option<NextState>,
    /// In the place of `keys` and `cases` where these do not do: longer keys, value sets, stacks.
    pub select: Option<Box<Select>>,
}

#[derive(Debug, Default)]
pub struct ParserErrors {
    pub none: u64,
    pub packet_too_short: u64,
    pub no_match: u64,
    pub timeout: u64,
    pub invalid_argument: u64,
    pub stack_out_of_bounds: u64,
    pub header_too_short: u64,
}

#[derive(Debug, Default)]
pub struct ParserCode {
    pub states: Vec<ParserState>,
    pub start: NextState,
    pub errors: ParserErrors,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    Csum16,
    Xor16,
    Crc16,
    Crc32,
    CrcCcitt,
    Identity,
    /// Another number every time.
    Random,
}

#[derive(Debug)]
pub enum HashInput {
    /// Skipped while `valid` is 0.
    Field {
        place: FieldRef,
        valid: Reg,
    },
    /// Bits, as many as `length` says.
    Varbit {
        place: FieldRef,
        valid: Reg,
        length: Reg,
    },
    /// Low word first.
    Constant {
        words: Box<[u64]>,
        width: u16,
    },
    Header(u16),
    /// Payload behind the parsed headers.
    Payload,
}

#[derive(Debug)]
pub struct Calculation {
    pub algorithm: Algorithm,
    pub input: Vec<HashInput>,
}

#[derive(Debug)]
pub struct ChecksumCode {
    pub target: FieldRef,
    pub target_valid: Reg,
    pub calculation: u16,
    /// `None`: always.
    pub condition: Option<Snippet>,
}

/// Up to 64 bits of a key field: where they are read and where they go in the packed key.
#[derive(Clone, Copy, Debug)]
pub struct KeyChunk {
    pub reg: Reg,
    pub mask: u64,
    /// The register that tells whether the field's header is valid: if not, the key holds 0, as in BMv2.
    pub valid: Reg,
    pub word: u16,
    pub shift: u8,
}

/// Way in which a table finds its entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Matching {
    /// Never: the table has no key.
    #[default]
    None,
    /// Exact, with a key so short that it is an index.
    Direct,
    Exact,
    /// A hash table for each mask: lpm and larger ternary tables.
    Masked,
    /// Every entry in the order of priority: small tables and those with ranges.
    Scan,
}

/// The place of one key field in the packed key.
#[derive(Clone, Debug)]
pub enum KeyPlace {
    /// Low word first: (word, shift, bits).
    Packed(Vec<(u16, u8, u8)>),
    /// Index of its first word among those of the range fields, and the number of its words.
    Range(usize, usize),
}

/// Gives each word of a field of this width the first word of the key with room for it: [`KeyPlace::Packed`].
/// `used`: bits taken of each word of the key.
pub fn key_places(width: u16, used: &mut Vec<u32>) -> Vec<(u16, u8, u8)> {
    let place = |index| {
        let bits = u32::from(width - 64 * index).min(64);
        let word = used.iter().position(|u| u + bits <= 64).unwrap_or_else(|| {
            used.push(0);
            used.len() - 1
        });
        used[word] += bits;
        (word as u16, (used[word] - bits) as u8, bits as u8)
    };
    (0..words(width) as u16).map(place).collect()
}

/// A key field that is matched by range.
#[derive(Clone, Debug)]
pub struct RangeField {
    /// High word first, so that words are compared one after the other.
    pub words: Vec<(Reg, u64)>,
    /// As in [`KeyChunk`].
    pub valid: Reg,
}

#[derive(Clone, Debug, Default)]
pub struct TableAction {
    /// `None`: nothing to do.
    pub body: Option<Address>,
    pub next_hit: Address,
    pub next_miss: Address,
    /// Registers that the parameters take.
    pub param_words: usize,
}

#[derive(Clone, Debug, Default)]
pub struct TableCode {
    pub matching: Matching,
    pub key_words: usize,
    pub key_bits: u32,
    pub chunks: Vec<KeyChunk>,
    pub ranges: Vec<RangeField>,
    /// For each key field.
    pub places: Vec<KeyPlace>,
    pub actions: Vec<TableAction>,
    pub param_words: usize,
    pub max_size: usize,
    /// Counts hits (direct counter).
    pub counter: bool,
    /// Remembers the time of the last hit (idle timeout).
    pub timeout: bool,
    /// Direct meter: where the colour goes, and whether it counts bytes.
    pub meter: Option<(FieldRef, bool)>,
    /// Entries refer to members and groups of this action profile.
    pub profile: Option<usize>,
    /// Continuation if there is no action: no default, or an empty group.
    pub no_action: TableAction,
}

impl TableCode {
    /// Returns for each action the words that its parameters take.
    pub fn params(&self) -> Box<[usize]> {
        self.actions.iter().map(|action| action.param_words).collect()
    }
}

/// Returns true if the action (its number and parameters) is as long as native code takes it for, which runs the last
/// one for any number that is none.
pub fn is_whole(action: &[u64], params: &[usize]) -> bool {
    // Nothing is read of a table that was laid out in place.
    let Some(last) = params.len().checked_sub(1) else { return true };
    let Some((&number, given)) = action.split_first() else { return false };
    given.len() >= params[usize::try_from(number).unwrap_or(last).min(last)]
}

#[derive(Debug)]
pub struct Message {
    pub place: String,
    /// `{}` stands for the next value.
    pub format: String,
    pub values: Vec<Wide>,
}

/// The fields of v1model's standard metadata. What a program does not have is a register that nothing else uses.
#[derive(Clone, Debug, Default)]
pub struct Standard {
    pub ingress_port: FieldRef,
    pub egress_spec: FieldRef,
    pub egress_port: FieldRef,
    pub instance_type: FieldRef,
    pub packet_length: FieldRef,
    pub parser_error: FieldRef,
    pub checksum_error: FieldRef,
    pub enq_timestamp: FieldRef,
    pub enq_qdepth: FieldRef,
    pub deq_timedelta: FieldRef,
    pub deq_qdepth: FieldRef,
    pub qid: FieldRef,
    pub ingress_global_timestamp: FieldRef,
    pub egress_global_timestamp: FieldRef,
    pub mcast_grp: FieldRef,
    pub egress_rid: FieldRef,
    pub priority: FieldRef,
    /// Beyond v1model: a lane of queue 0, its weight and its rate ([`Lane`](crate::scheduler::Lane)), and a flow within it.
    pub lane: FieldRef,
    pub lane_weight: FieldRef,
    pub lane_rate: FieldRef,
    pub lane_flow: FieldRef,
}

#[derive(Debug, Default)]
pub struct Code {
    pub ops: Vec<Op>,
    pub wide: Vec<Wide>,
    pub constants: Vec<(Reg, u64)>,
    /// The PHV of a new packet.
    pub phv: Vec<u64>,
    /// First register of the action parameters.
    pub params: usize,
    pub headers: Vec<HeaderLayout>,
    pub stacks: Vec<Stack>,
    /// Operations that [`Effect::Headers`](super::op::Effect::Headers) refers to.
    pub header_ops: Vec<HeaderOp>,
    pub parser: ParserCode,
    pub verify: Vec<ChecksumCode>,
    pub ingress: Address,
    pub egress: Address,
    pub update: Vec<ChecksumCode>,
    /// Runs before the headers are written.
    pub before_deparser: Option<Address>,
    /// Headers in the order of the wire.
    pub deparser: Vec<u16>,
    pub tables: Vec<TableCode>,
    pub calculations: Vec<Calculation>,
    /// For each action profile, the calculation that chooses among a group's members.
    pub selectors: Vec<Option<u16>>,
    pub digests: Vec<Vec<FieldRef>>,
    pub field_lists: Vec<Vec<FieldRef>>,
    pub messages: Vec<Message>,
    pub standard: Standard,
    /// Number of counter arrays, and of meter arrays.
    pub counters: usize,
    pub meters: usize,
    /// Bits of a cell of each register array.
    pub registers: Vec<u16>,
}

impl Code {
    /// Returns for each action of an action profile the words that its parameters take; its tables agree on them.
    pub fn profile_params(&self, profile: usize) -> Box<[usize]> {
        let table = self.tables.iter().find(|table| table.profile == Some(profile));
        table.map(TableCode::params).unwrap_or_default()
    }
}

// SPDX-License-Identifier: Apache-2.0
//! `TableOperationErrorCode` of BMv2's runtime interface.

pub const TABLE_FULL: i32 = 1;
pub const INVALID_HANDLE: i32 = 2;
pub const COUNTERS_DISABLED: i32 = 4;
pub const METERS_DISABLED: i32 = 5;
pub const AGEING_DISABLED: i32 = 6;
pub const INVALID_TABLE_NAME: i32 = 7;
pub const INVALID_ACTION_NAME: i32 = 8;
pub const WRONG_TABLE_TYPE: i32 = 9;
pub const INVALID_MBR_HANDLE: i32 = 10;
pub const MBR_STILL_USED: i32 = 11;
pub const MBR_ALREADY_IN_GRP: i32 = 12;
pub const MBR_NOT_IN_GRP: i32 = 13;
pub const INVALID_GRP_HANDLE: i32 = 14;
pub const GRP_STILL_USED: i32 = 15;
pub const DUPLICATE_ENTRY: i32 = 17;
pub const BAD_MATCH_KEY: i32 = 18;
pub const DEFAULT_ENTRY_IS_CONST: i32 = 21;
pub const INVALID_ACTION_PROFILE_NAME: i32 = 23;
pub const NO_ACTION_PROFILE_SELECTION: i32 = 24;
pub const IMMUTABLE_TABLE_ENTRIES: i32 = 25;
pub const BAD_ACTION_DATA: i32 = 26;
pub const NO_TABLE_KEY: i32 = 27;
pub const ERROR: i32 = 100;

// SPDX-License-Identifier: Apache-2.0
//! The methods of BMv2's runtime interface, asked over a connection as a client asks them.

mod client;
mod device;
mod tables;

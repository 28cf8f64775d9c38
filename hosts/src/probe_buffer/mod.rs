// SPDX-License-Identifier: Apache-2.0

use clap::Args;

use crate::Error;

#[derive(Args)]
pub struct Options {}

pub fn run(_options: Options) -> Result<(), Error> {
    Err(Error::new("not built yet"))
}

// SPDX-License-Identifier: Apache-2.0

use clap::Subcommand;

use crate::Error;

#[derive(Subcommand)]
pub enum Command {
    /// Not built yet
    Nothing,
}

pub fn run(_command: Command) -> Result<(), Error> {
    Err(Error::new("not built yet"))
}

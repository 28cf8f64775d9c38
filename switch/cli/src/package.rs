// SPDX-License-Identifier: Apache-2.0
//! Files that are installed with the program: shell completions and manual pages, made from its options.

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use clap::CommandFactory;
use clap::builder::Resettable;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::options::Options;

pub fn completions(shell: Shell) -> Result<(), String> {
    let mut command = Options::command();
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, "apswitch", &mut text);
    print(&text)
}

/// The page of the program, or of one of its subcommands.
pub fn man(subcommand: Option<&str>) -> Result<(), String> {
    let mut command = Options::command().disable_help_subcommand(true);
    command.build();
    let command = match subcommand {
        None => command,
        Some(name) => command.find_subcommand(name).cloned().ok_or_else(|| {
            let names: Vec<_> = command.get_subcommands().map(|one| one.get_name()).collect();
            format!("there is no subcommand `{name}`: name one of {}", names.join(", "))
        })?,
    };
    let notes = command.get_after_help().map(ToString::to_string);
    let mut text = Vec::new();
    Man::new(command.after_help(Resettable::Reset)).render(&mut text).map_err(|e| e.to_string())?;
    if let Some(notes) = notes {
        text.extend(verbatim("NOTES", &notes).into_bytes());
    }
    print(&text)
}

/// A section whose lines stay as they are, since they are aligned.
fn verbatim(title: &str, text: &str) -> String {
    let line = |line: &str| format!("\\&{}\n", line.replace('\\', "\\e").replace('-', "\\-"));
    format!(".SH {title}\n.nf\n{}.fi\n", text.lines().map(line).collect::<String>())
}

/// Prints a line, as a whole program.
pub fn print_line(text: &str) -> ExitCode {
    match print(format!("{}\n", text.trim_end()).as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(2),
    }
}

/// A reader that has seen enough, as `head` has, is no error.
fn print(text: &[u8]) -> Result<(), String> {
    match io::stdout().write_all(text) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(format!("standard output: {e}")),
        _ => Ok(()),
    }
}

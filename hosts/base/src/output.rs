// SPDX-License-Identifier: Apache-2.0
//! Output of subcommands: a table for people, JSON for programs.

use clap::Args;
use comfy_table::{Cell, LineStyle, Table, TableStyle};
use serde::Serialize;

const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('═').junction('═'));

/// Option `--json` of every subcommand that prints a status.
#[derive(Args, Clone, Copy, Debug)]
pub struct Format {
    /// Print JSON, one object a line, instead of a table
    #[arg(long)]
    json: bool,
}

impl Format {
    pub fn is_json(self) -> bool {
        self.json
    }

    /// Print `rows`: as JSON lines, or as a table with `columns`, one string a cell by `cells`.
    pub fn print<R: Serialize>(self, rows: &[R], columns: &[&str], cells: impl Fn(&R) -> Vec<String>) {
        if self.json {
            for row in rows {
                println!("{}", serde_json::to_string(row).expect("rows are plain data"));
            }
            return;
        }
        let mut table = Table::new();
        table.load_style(STYLE).set_header(columns.iter().map(Cell::new));
        for row in rows {
            table.add_row(cells(row));
        }
        println!("{table}");
    }
}

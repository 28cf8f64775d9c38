// SPDX-License-Identifier: Apache-2.0
//! Arrays of register cells: written by the packet thread alone, read by everybody.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::value::Value;
use crate::value::words;

#[derive(Debug)]
pub struct RegisterArray {
    /// Low word first, cell by cell.
    words: Box<[AtomicU64]>,
    /// Words of a cell.
    cell: usize,
    /// Odd while a cell of several words is being written, so that nobody takes a half of it.
    version: AtomicU64,
}

impl RegisterArray {
    pub fn new(size: usize, width: u16) -> RegisterArray {
        let cell = words(width);
        RegisterArray { words: (0..size * cell).map(|_| AtomicU64::new(0)).collect(), cell, version: AtomicU64::new(0) }
    }

    /// Number of cells.
    pub fn cells(&self) -> usize {
        self.words.len() / self.cell
    }

    /// Words of each cell.
    pub fn cell_words(&self) -> usize {
        self.cell
    }

    /// Returns the words of all cells, one after the other.
    pub fn words(&self) -> &[AtomicU64] {
        &self.words
    }

    fn cell(&self, index: usize) -> &[AtomicU64] {
        &self.words[self.cell * index..self.cell * (index + 1)]
    }

    /// A cell below [`RegisterArray::cells`].
    pub fn read(&self, index: usize) -> Value {
        let load = || self.cell(index).iter().map(|word| word.load(Ordering::Relaxed));
        if self.cell == 1 {
            return load().sum::<u64>().into();
        }
        loop {
            let before = self.version.load(Ordering::Acquire);
            let value = Value::from_words(&load().collect::<Vec<_>>());
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == before {
                return value;
            }
            spin_loop();
        }
    }

    /// Copies a cell, low word first; false: there is none.
    pub fn load(&self, index: usize, value: &mut [u64]) -> bool {
        if index >= self.cells() {
            return false;
        }
        value.iter_mut().zip(self.cell(index)).for_each(|(word, cell)| *word = cell.load(Ordering::Relaxed));
        true
    }

    /// Writes a cell, if there is one; low word first, 0 behind the last one.
    pub fn write(&self, index: usize, value: &[u64]) {
        if index >= self.cells() {
            return;
        }
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        for (at, word) in self.cell(index).iter().enumerate() {
            word.store(value.get(at).copied().unwrap_or(0), Ordering::Relaxed);
        }
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }
}

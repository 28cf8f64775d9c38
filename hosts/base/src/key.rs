// SPDX-License-Identifier: Apache-2.0
//! Keys that two ends share, from files for their owner's eyes only.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::{About, Error};

/// Bounds of a key, in bytes.
const MIN_BYTES: usize = 16;
const MAX_BYTES: u64 = 4096;

/// Return the file's bytes without the final newline that editors leave. Errors: unreadable, readable by others,
/// shorter than 16 bytes, or longer than 4096.
pub fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let name = path.display();
    let mut key = secret(path)?;
    key.truncate(key.trim_ascii_end().len());
    if key.len() < MIN_BYTES {
        return Err(Error::new(format!(
            "key file {name} holds {} bytes, at least {MIN_BYTES} are needed: `head -c32 /dev/urandom | base64 > {name}`",
            key.len()
        )));
    }
    Ok(key)
}

/// Read a file that only its owner may read. Errors: unreadable, readable by others, or longer than 4096 bytes.
pub fn secret(path: &Path) -> Result<Vec<u8>, Error> {
    let name = path.display();
    let about = || format!("key file {name}");
    let file = File::open(path).about(about())?;
    // Check the open file: the name may lead elsewhere by now.
    if file.metadata().about(about())?.permissions().mode() & 0o077 != 0 {
        return Err(Error::new(format!("key file {name} is open to others: `chmod 600 {name}`")));
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).about(about())?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(Error::new(format!("key file {name} holds more than {MAX_BYTES} bytes: this is no key")));
    }
    Ok(bytes)
}

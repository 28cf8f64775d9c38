// SPDX-License-Identifier: Apache-2.0
//! Quota of an interface: bytes that it may carry, as the interface itself counts them, those of other programs too. The count is
//! kept in a file, so it survives restarts of this program and of the host.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use hosts_base::units::bytes;
use hosts_base::{About, Error};

/// Pause between two readings of an interface's counters.
const READ: Duration = Duration::from_secs(1);
const DAY: u64 = 86_400;

/// Count of an interface's bytes, as its file keeps it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Count {
    /// Begin of the period, in seconds since 1970.
    since: u64,
    used: u64,
    /// The interface's own counter at the last reading.
    counter: u64,
}

impl Count {
    /// Return the count after a reading of the interface's counter at `now`, which starts at zero with the host and with
    /// the interface. A period of `days` begins anew when it is over.
    fn read(self, counter: u64, now: u64, days: Option<u64>) -> Self {
        let passed = if counter >= self.counter { counter - self.counter } else { counter };
        let periods = days.map_or(0, |days| now.saturating_sub(self.since) / (days * DAY));
        let used = if periods > 0 { passed } else { self.used + passed };
        Self { since: self.since + periods * days.unwrap_or(0) * DAY, used, counter }
    }
}

/// Quota as the command line gives it: `wwan0=20GB/30`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaOption {
    pub interface: String,
    bytes: u64,
    days: Option<u64>,
}

impl FromStr for QuotaOption {
    type Err = Error;

    /// Parse `DEVICE=BYTES[/DAYS]`. Errors: another form, or days that no period has.
    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong =
            |what: &str| Error::new(format!("quota '{text}': {what}; write DEVICE=BYTES[/DAYS], as wwan0=20GB/30"));
        let (interface, rest) = text.split_once('=').ok_or_else(|| wrong("it names no device"))?;
        if interface.is_empty() || interface.contains(['/', ' ', ':']) || interface.parse::<std::net::IpAddr>().is_ok()
        {
            return Err(wrong("this is no name of a device"));
        }
        let (amount, days) = rest.split_once('/').map_or((rest, None), |(amount, days)| (amount, Some(days)));
        let days =
            days.map(str::parse).transpose().ok().filter(|days| days.is_none_or(|days| (1..=3660).contains(&days)));
        Ok(Self {
            interface: interface.to_owned(),
            bytes: bytes(amount).map_err(|error| wrong(&error))?,
            days: days.ok_or_else(|| wrong("a period has 1 to 3660 days"))?,
        })
    }
}

/// Quota of an interface. A thread of its own reads the counters, since connections ask for it under their lock, and a
/// file may be slow.
#[derive(Debug)]
pub struct Quota {
    bytes: u64,
    counted: Arc<Counted>,
}

#[derive(Debug)]
struct Counted {
    option: QuotaOption,
    file: PathBuf,
    used: AtomicU64,
}

impl Quota {
    /// Continue the count of `folder`, or begin one. Errors: it cannot be kept there.
    pub fn new(option: QuotaOption, folder: &Path) -> Result<Self, Error> {
        let bytes = option.bytes;
        let counted = Arc::new(Counted::begin(option, folder)?);
        let reader = Arc::downgrade(&counted);
        let read = move || {
            loop {
                thread::sleep(READ);
                let Some(counted) = reader.upgrade() else { return };
                // Without a place for the count, what is known stays.
                let _ = counted.count();
            }
        };
        thread::Builder::new().name("quota".into()).spawn(read).about("start a thread")?;
        Ok(Self { bytes, counted })
    }

    /// Return the bytes used in this period, as of a second ago, and the bytes of the quota.
    pub fn used(&self) -> (u64, u64) {
        (self.counted.used.load(Ordering::Relaxed), self.bytes)
    }

    /// True if the quota is used up, as of a second ago.
    pub fn is_used_up(&self) -> bool {
        let (used, bytes) = self.used();
        used >= bytes
    }
}

impl Counted {
    fn begin(option: QuotaOption, folder: &Path) -> Result<Self, Error> {
        let file = folder.join(format!("{}.json", option.interface));
        let counted = Self { option, file, used: AtomicU64::new(0) };
        let about = || format!("keep the count of a quota in {}", folder.display());
        fs::create_dir_all(folder).about(about())?;
        counted.count().about(about())?;
        Ok(counted)
    }

    /// Read the interface's counter and bring the file up to date; programs that share it take turns.
    fn count(&self) -> io::Result<()> {
        let lock = File::create(self.file.with_extension("lock"))?;
        lock.lock()?;
        let now = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
        let device = counter(&fs::read_to_string("/proc/net/dev")?, &self.option.interface);
        let kept: Option<Count> = match fs::read(&self.file) {
            Ok(text) => Some(serde_json::from_slice(&text)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        // Traffic from before there was a quota does not count.
        let before = kept.unwrap_or(Count { since: now, used: 0, counter: device.unwrap_or(0) });
        // An interface that is gone comes back with a counter of its own.
        let count = before.read(device.unwrap_or(0), now, self.option.days);
        // An idle interface costs no write.
        if kept != Some(count) {
            let part = self.file.with_extension("part");
            fs::write(&part, serde_json::to_vec(&count)?)?;
            fs::rename(&part, &self.file)?;
        }
        self.used.store(count.used, Ordering::Relaxed);
        Ok(())
    }
}

/// Return the folder for counts: systemd's, or the usual one of this user.
pub fn folder() -> PathBuf {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    // SAFETY: geteuid(2) cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    let home = || variable("HOME").unwrap_or_else(|| "/".into()).join(".local/state");
    variable("STATE_DIRECTORY").unwrap_or_else(|| {
        let base = if root { "/var/lib".into() } else { variable("XDG_STATE_HOME").unwrap_or_else(home) };
        base.join("hosts-batcp")
    })
}

/// Return the bytes that a device has received and sent, of the text of /proc/net/dev.
fn counter(text: &str, device: &str) -> Option<u64> {
    let (_, numbers) = text.lines().filter_map(|line| line.split_once(':')).find(|(name, _)| name.trim() == device)?;
    let numbers: Vec<u64> = numbers.split_ascii_whitespace().map_while(|number| number.parse().ok()).collect();
    Some(numbers.first()? + numbers.get(8)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_follows_the_interface_and_its_period() {
        let begin = Count { since: 1000, used: 0, counter: 500 };
        let first = begin.read(700, 2000, Some(1));
        assert_eq!(first, Count { since: 1000, used: 200, counter: 700 });
        let restarted = first.read(50, 3000, Some(1));
        assert_eq!(restarted.used, 250, "a counter that starts again has passed all that it shows");
        assert_eq!(
            restarted.read(60, 1000 + 2 * DAY + 5, Some(1)),
            Count { since: 1000 + 2 * DAY, used: 10, counter: 60 }
        );
        assert_eq!(restarted.read(60, 1000 + 400 * DAY, None).used, 260);
        assert_eq!(restarted.read(60, 0, Some(1)).used, 260, "the clock was set back");
    }

    #[test]
    fn quotas_are_read() {
        let quota: QuotaOption = "wwan0=20GB/30".parse().unwrap();
        assert_eq!(quota, QuotaOption { interface: "wwan0".into(), bytes: 20_000_000_000, days: Some(30) });
        assert_eq!("a=5MB".parse::<QuotaOption>().unwrap().days, None);
        for wrong in ["wwan0", "=5MB", "a=5", "a=5MB/0", "a=5MB/x", "192.0.2.1=5MB", "a/b=5MB", "fe80::1=5MB"] {
            let error = wrong.parse::<QuotaOption>().unwrap_err().to_string();
            assert!(error.contains("DEVICE=BYTES[/DAYS]"), "{error}");
        }
    }

    #[test]
    fn counters_are_those_of_proc() {
        let text = "Inter-| Receive\n face |bytes packets\n  eth0: 100 1 0 0 0 0 0 0 23 1 0 0 0 0 0 0\n wwan0:7 0\n";
        assert_eq!((counter(text, "eth0"), counter(text, "wwan0"), counter(text, "eth")), (Some(123), None, None));
    }

    #[test]
    fn a_count_survives_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let option: QuotaOption = "lo=1KB".parse().unwrap();
        let counted = Counted::begin(option.clone(), folder.path()).unwrap();
        assert_eq!(counted.used.load(Ordering::Relaxed), 0, "earlier bytes do not count");
        let counter = counter(&fs::read_to_string("/proc/net/dev").unwrap(), "lo").unwrap();
        fs::write(&counted.file, format!("{{\"since\":0,\"used\":1000,\"counter\":{counter}}}")).unwrap();
        assert!(Quota::new(option, folder.path()).unwrap().is_used_up());
        fs::write(&counted.file, "torn").unwrap();
        assert!(counted.count().is_err(), "a count is never begun anew by mistake");
    }
}

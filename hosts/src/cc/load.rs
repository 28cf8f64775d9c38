// SPDX-License-Identifier: Apache-2.0
//! Loading and unloading. A control lives as long as its BPF link is held: by this process, or by a pin in a BPF file
//! system.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use libbpf_rs::{Link, MapCore, MapType, ObjectBuilder};
use tokio::signal::unix::{SignalKind, signal};

use super::controls::{Control, Settings};
use super::loaded;
use hosts_base::{About, Error};

/// Bytes of the ring of recorded events: seconds of a fast connection, should the reader be late.
const RING_BYTES: u32 = 16 << 20;
/// Time for the kernel to forget a control.
const MAX_FORGET_TIME: Duration = Duration::from_secs(10);
const BPF_FS_MAGIC: libc::__fsword_t = 0xcafe_4a11;

/// Load `control` and pin it below `bpffs`, a BPF file system.
pub fn load(control: &Control, settings: &Settings, bpffs: &Path) -> Result<(), Error> {
    expect_bpf_file_system(bpffs)?;
    let (mut link, _object) = attach(control, settings, false)?;
    let pin = pin(bpffs, control);
    let directory = pin.parent().expect("a pin has a directory");
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).about(directory.display())?;
    link.pin(&pin).about(format!("pin {}", pin.display()))
}

/// Load `control`, print that, and unload it on SIGINT, SIGTERM or SIGHUP; the kernel does so when the process dies.
pub fn run(control: &Control, settings: &Settings) -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().about("start")?;
    runtime.block_on(async {
        let mut signals = Vec::new();
        for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
            signals.push(signal(kind).about("catch signals")?);
        }
        let (link, _object) = attach(control, settings, false)?;
        println!("{} is loaded as {}", control.name, control.kernel_name);
        let [a, b, c] = &mut signals[..] else { unreachable!("three signals") };
        tokio::select! { _ = a.recv() => (), _ = b.recv() => (), _ = c.recv() => () }
        drop(link);
        wait_until_forgotten(control);
        Ok(())
    })
}

/// Remove the pin of `control`, and wait until it is unloaded. Errors: it is not loaded, or a process holds it.
pub fn unload(control: &Control, bpffs: &Path) -> Result<(), Error> {
    let pin = pin(bpffs, control);
    match fs::remove_file(&pin) {
        Ok(()) => {
            if let Some(directory) = pin.parent() {
                let _ = fs::remove_dir(directory); // others may be pinned there
            }
            match wait_until_forgotten(control) {
                true => Ok(()),
                false => Err(Error::new(format!(
                    "{} is not pinned any more, and still loaded: another process holds it",
                    control.name
                ))),
            }
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Err(match loaded::find(control)? {
            Some(_) => Error::new(format!(
                "{0} is not pinned below {1}: end the `hosts cc run {0}` that holds it, or name its --bpffs",
                control.name,
                bpffs.display()
            )),
            None => Error::new(format!("{} is not loaded", control.name)),
        }),
        Err(e) => Err(e).about(pin.display()),
    }
}

/// Wait until the kernel has forgotten `control`, which it does some time after the last holder of the link is gone: who
/// loads it next is not refused. False: it has not, as somebody else holds it.
pub(super) fn wait_until_forgotten(control: &Control) -> bool {
    let end = Instant::now() + MAX_FORGET_TIME;
    while loaded::available().iter().any(|name| name == control.kernel_name) {
        if Instant::now() > end {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
    true
}

/// Return the path of `control`'s pin.
pub fn pin(bpffs: &Path, control: &Control) -> PathBuf {
    bpffs.join("hosts").join(control.kernel_name)
}

/// Load `control`; it is registered until both results are dropped. With `record` its ring of events is filled.
pub(super) fn attach(control: &Control, settings: &Settings, record: bool) -> Result<(Link, libbpf_rs::Object), Error> {
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Err(loaded::no_btf());
    }
    let failed = |error: libbpf_rs::Error| explain(control, &error);
    let mut object = ObjectBuilder::default().open_memory(control.object).map_err(failed)?;
    if object.maps().any(|m| m.name().to_string_lossy().ends_with(".kconfig")) {
        find_kernel_configuration(control)?;
    }
    if let Some(mut options) = object.maps_mut().find(|m| m.name() == ".data.options") {
        let bytes = options.initial_value_mut().expect("a data section has a value");
        for &(index, value) in settings {
            bytes[index * 4..][..4].copy_from_slice(&value.to_ne_bytes());
        }
    }
    if record {
        for mut map in object.maps_mut() {
            if map.name() == ".rodata.record" {
                map.initial_value_mut().expect("a data section has a value")[0] = 1;
            } else if map.name() == "events" {
                map.set_max_entries(RING_BYTES).map_err(failed)?;
            }
        }
    }
    let mut object = object.load().map_err(failed)?;
    let mut maps = object.maps_mut();
    let mut map = maps.find(|m| m.map_type() == MapType::StructOps).expect("a control has a struct_ops map");
    let link = map.attach_struct_ops().map_err(failed)?;
    drop(maps);
    Ok((link, object))
}

/// Check that libbpf finds the rate of the kernel's clock (CONFIG_HZ), which it reads from one of these files.
fn find_kernel_configuration(control: &Control) -> Result<(), Error> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let boot = format!("/boot/config-{}", release.trim());
    if Path::new("/proc/config.gz").exists() || Path::new(&boot).exists() {
        return Ok(());
    }
    Err(Error::new(format!(
        "{} needs the rate of the kernel's clock, from /proc/config.gz (modprobe configs) or {boot}; the other \
         congestion controls load without",
        control.name
    )))
}

/// Translate the kernel's error into the remedy.
fn explain(control: &Control, error: &libbpf_rs::Error) -> Error {
    use libbpf_rs::ErrorKind::{AlreadyExists, NotFound, PermissionDenied};
    match error.kind() {
        PermissionDenied => Error::new(format!(
            "loading {} needs root (CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN); `hosts cc list` works without, and \
             programs may choose a loaded control without, but for tcp_av",
            control.name
        )),
        AlreadyExists => Error::new(format!(
            "{0} is loaded already: hosts cc set changes it, hosts cc unload {0} ends it",
            control.name
        )),
        // libbpf found no type `tcp_congestion_ops` that it may implement.
        NotFound => loaded::no_struct_ops(),
        _ => Error::new(format!("the kernel does not take {}: {error:#}", control.name)),
    }
}

/// Check that `path` is a BPF file system. One that was mounted here could go with a private mount namespace, and the
/// pins with it, so mounting is left to the user.
fn expect_bpf_file_system(path: &Path) -> Result<(), Error> {
    let name = CString::new(path.as_os_str().as_bytes()).about(path.display())?;
    // SAFETY: all of its fields may be zero.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: `name` ends with a zero, `found` is a place for the answer.
    if unsafe { libc::statfs(name.as_ptr(), &mut found) } != 0 {
        return Err(std::io::Error::last_os_error()).about(path.display());
    }
    if found.f_type == BPF_FS_MAGIC {
        return Ok(());
    }
    Err(Error::new(format!(
        "{0} is no BPF file system here: mount one, mount -t bpf bpf {0} (not inside `ip netns exec`, whose mounts end with \
         it; a control is for all network namespaces), or use hosts cc run",
        path.display()
    )))
}

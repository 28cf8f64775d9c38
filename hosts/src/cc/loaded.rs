// SPDX-License-Identifier: Apache-2.0
//! Loaded congestion controls, found through the kernel's BPF links, whatever process holds them.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{Composite, MemberAttr};
use libbpf_rs::libbpf_sys;
use libbpf_rs::query::{LinkInfo, LinkTypeInfo};
use libbpf_rs::{MapCore, MapFlags, MapHandle, Program};

use super::controls::{Control, Settings};
use hosts_base::{About, Error};

/// Callbacks that a control may have, by the kernel's and by this program's functions' names, in the order of
/// `bpf/cc_record.h`.
pub const CALLBACKS: [&str; 8] =
    ["init", "ssthresh", "cong_avoid", "pkts_acked", "set_state", "cwnd_event", "in_ack_event", "undo_cwnd"];

/// Loaded control.
pub struct Loaded {
    maps: Vec<MapHandle>,
}

/// Return all loaded controls by the kernel's names. Needs CAP_SYS_ADMIN.
pub fn all() -> Result<HashMap<String, Loaded>, Error> {
    let layout = Layout::of_kernel()?;
    let mut found = HashMap::new();
    for map_id in struct_ops_maps().about("list BPF links (which needs root)")? {
        // A map may go between the listing and the look.
        let Ok(map) = MapHandle::from_map_id(map_id) else { continue };
        let Ok(Some(value)) = map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY) else { continue };
        if let Some(name) = layout.name(&value) {
            found.insert(name.to_string(), Loaded { maps: maps_of(&layout.programs(&value)) });
        }
    }
    Ok(found)
}

/// Return the kernel's names of all controls that a socket can choose now.
pub fn available() -> Vec<String> {
    let names = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap_or_default();
    names.split_whitespace().map(String::from).collect()
}

/// Return the loaded `control`, or None.
pub fn find(control: &Control) -> Result<Option<Loaded>, Error> {
    Ok(all()?.remove(control.kernel_name))
}

/// Return the loaded `control`. Errors: it is not loaded; the line says how to load it.
pub fn expect(control: &Control) -> Result<Loaded, Error> {
    find(control)?.ok_or_else(|| Error::new(format!("{0} is not loaded: hosts cc load {0}", control.name)))
}

impl Loaded {
    /// Read the values of the options, in the control's order.
    pub fn options(&self) -> Result<Vec<u32>, Error> {
        self.fields(".data.options")
    }

    /// Read the values of the counters, in the control's order.
    pub fn counters(&self) -> Result<Vec<u32>, Error> {
        self.fields(".data.counters")
    }

    /// Change options; the next ACK uses them.
    pub fn set(&self, settings: &Settings) -> Result<(), Error> {
        let mut values = self.options()?;
        for &(index, value) in settings {
            values[index] = value;
        }
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_ne_bytes()).collect();
        let map = self.map(".data.options").ok_or_else(|| Error::new("this control has no options"))?;
        map.update(&0u32.to_ne_bytes(), &bytes, MapFlags::ANY).about("set options")
    }

    /// Return the map called `name`.
    pub fn map(&self, name: &str) -> Option<&MapHandle> {
        self.maps.iter().find(|m| m.name() == name)
    }

    fn fields(&self, name: &str) -> Result<Vec<u32>, Error> {
        let Some(map) = self.map(name) else { return Ok(Vec::new()) };
        let bytes = map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).about(format!("read {name}"))?.unwrap_or_default();
        Ok(bytes.chunks_exact(4).map(|b| u32::from_ne_bytes(b.try_into().expect("four bytes"))).collect())
    }
}

/// Offsets in the value of a struct_ops map, in bytes.
struct Layout {
    name: usize,
    callbacks: Vec<usize>,
}

impl Layout {
    fn of_kernel() -> Result<Self, Error> {
        let btf = Btf::from_vmlinux().map_err(|_| no_btf())?;
        let offset = |of: &str, member: &str| {
            let of = btf.type_by_name::<Composite<'_>>(of)?;
            let found = of.iter().find(|m| m.name.is_some_and(|n| n == member))?;
            match found.attr {
                MemberAttr::Normal { offset } => Some(offset as usize / 8),
                MemberAttr::BitField { .. } => None,
            }
        };
        let data = offset("bpf_struct_ops_tcp_congestion_ops", "data").ok_or_else(no_struct_ops)?;
        let member = |name| offset("tcp_congestion_ops", name).map(|at| data + at);
        let callbacks = CALLBACKS.iter().filter_map(|name| member(name)).collect();
        Ok(Self { name: member("name").ok_or_else(no_struct_ops)?, callbacks })
    }

    fn name<'v>(&self, value: &'v [u8]) -> Option<&'v str> {
        std::str::from_utf8(value.get(self.name..self.name + 16)?.split(|&b| b == 0).next()?).ok()
    }

    /// Return the ids of the programs, which the kernel shows in place of their callbacks.
    fn programs(&self, value: &[u8]) -> Vec<u32> {
        let id = |at: usize| Some(u64::from_ne_bytes(value.get(at..at + 8)?.try_into().ok()?) as u32);
        self.callbacks.iter().filter_map(|&at| id(at)).filter(|&id| id != 0).collect()
    }
}

/// Return the error for a kernel without type information.
pub fn no_btf() -> Error {
    Error::new(
        "this kernel has no BTF (/sys/kernel/btf/vmlinux), which BPF congestion controls need: use one with \
         CONFIG_DEBUG_INFO_BTF=y; its own controls still work (hosts cc list shows them)",
    )
}

/// Return the error for a kernel without congestion controls in BPF.
pub fn no_struct_ops() -> Error {
    Error::new(
        "this kernel takes no congestion controls in BPF: use Linux 6.4 or newer with CONFIG_BPF_JIT=y; its own \
         controls still work (hosts cc list shows them)",
    )
}

/// Return the ids of the maps of all struct_ops links. Without CAP_SYS_ADMIN the kernel lists none: EPERM.
fn struct_ops_maps() -> io::Result<Vec<u32>> {
    let mut found = Vec::new();
    let mut id = 0;
    loop {
        // SAFETY: `id` is a valid place for the next id.
        if unsafe { libbpf_sys::bpf_link_get_next_id(id, &mut id) } != 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::NotFound { Ok(found) } else { Err(error) };
        }
        // SAFETY: takes an id, gives a new descriptor or a negative number.
        let fd = unsafe { libbpf_sys::bpf_link_get_fd_by_id(id) };
        if fd < 0 {
            continue; // gone already
        }
        // SAFETY: `fd` is open and nobody else's.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        if let Ok(LinkInfo { info: LinkTypeInfo::StructOps(info), .. }) = LinkInfo::from_fd(fd.as_fd()) {
            found.push(info.map_id);
        }
    }
}

/// Return the maps that the programs use, each once.
fn maps_of(programs: &[u32]) -> Vec<MapHandle> {
    let mut ids: Vec<u32> = programs.iter().filter_map(|&id| map_ids(id).ok()).flatten().collect();
    ids.sort_unstable();
    ids.dedup();
    ids.into_iter().filter_map(|id| MapHandle::from_map_id(id).ok()).collect()
}

fn map_ids(program: u32) -> libbpf_rs::Result<Vec<u32>> {
    let fd = Program::fd_from_id(program)?;
    let mut ids = [0u32; 64];
    // SAFETY: all of its fields may be zero.
    let mut info: libbpf_sys::bpf_prog_info = unsafe { std::mem::zeroed() };
    info.nr_map_ids = ids.len() as u32;
    info.map_ids = ids.as_mut_ptr() as u64;
    let mut size = size_of_val(&info) as u32;
    // SAFETY: `info` has `size` bytes, and `ids` room for `nr_map_ids` numbers.
    let result = unsafe { libbpf_sys::bpf_prog_get_info_by_fd(fd.as_raw_fd(), &mut info, &mut size) };
    if result != 0 {
        return Err(io::Error::last_os_error().into());
    }
    Ok(ids[..(info.nr_map_ids as usize).min(ids.len())].to_vec())
}

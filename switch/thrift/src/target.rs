// SPDX-License-Identifier: Apache-2.0
//! Methods about the switch itself: its program, ports, mirroring sessions and queues.

use std::time::{SystemTime, UNIX_EPOCH};

use apswitch_dataplane::control::{PortConfig, PortNumber, Update};
use md5::{Digest, Md5};

use crate::Server;
use crate::call::{Answered, Call, Codes, Refusal, application, declared, i32_field};
use crate::handles::Mirror;
use crate::message::Value;
use crate::notifications;

/// `SwapOperationErrorCode`, `DevMgrErrorCode`, `MirroringOperationErrorCode`.
const CONFIG_SWAP_DISABLED: i32 = 1;
const PORT_ERROR: i32 = 1;
const SESSION_NOT_FOUND: i32 = 1;
/// Packets of a queue, as gNMI bounds them.
const MAX_DEPTH: u32 = 1 << 20;
const SESSION: Codes = Codes {
    exists: SESSION_NOT_FOUND,
    not_found: SESSION_NOT_FOUND,
    full: SESSION_NOT_FOUND,
    denied: SESSION_NOT_FOUND,
    other: SESSION_NOT_FOUND,
};

impl Server {
    pub fn management(&self, method: &str, call: &Call) -> Option<Answered> {
        Some(match method {
            "bm_mgmt_get_info" => Ok(Some(self.info())),
            "bm_get_config" => Ok(Some(Value::Bytes(self.source()))),
            "bm_get_config_md5" => Ok(Some(Value::Bytes(Md5::digest(self.source()).to_vec()))),
            "bm_reset_state" => self.reset(),
            "bm_load_new_config" | "bm_swap_configs" => {
                Err(declared(CONFIG_SWAP_DISABLED, "programs are replaced over P4Runtime"))
            }
            "bm_dev_mgr_show_ports" => Ok(Some(self.ports())),
            "bm_dev_mgr_add_port" => self.add_port(call),
            "bm_dev_mgr_remove_port" => port(call, 1).and_then(|number| {
                let removed = self.dataplane.remove_port_blocking(number);
                removed.map(|()| None).map_err(|error| declared(PORT_ERROR, error.to_string()))
            }),
            "bm_learning_ack" => self.acknowledge(call, true),
            "bm_learning_ack_buffer" => self.acknowledge(call, false),
            // A message has one sample, sent at once.
            "bm_learning_set_timeout" | "bm_learning_set_buffer_size" => Ok(None),
            _ => return None,
        })
    }

    pub fn target(&self, method: &str, call: &Call) -> Option<Answered> {
        Some(match method {
            "mirroring_session_add" => self.add_session(call),
            "mirroring_session_delete" => self.delete_session(call),
            "mirroring_session_get" => self.find_session(call),
            "set_egress_queue_depth" => self.set_depth(call, Some(1), 2),
            "set_all_egress_queue_depths" => self.set_depth(call, None, 1),
            "set_egress_priority_queue_depth"
            | "set_egress_priority_queue_rate"
            | "set_egress_queue_rate"
            | "set_all_egress_queue_rates" => application(
                "queues have rates in bit/s here, not in packets/s: start with --link and --queue, or use gNMI",
            ),
            "get_time_elapsed_us" => Ok(Some(Value::I64((self.dataplane.clock().now() / 1000) as i64))),
            "get_time_since_epoch_us" => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                Ok(Some(Value::I64(since.as_micros() as i64)))
            }
            _ => return None,
        })
    }

    fn info(&self) -> Value {
        let mut fields = vec![(1, Value::I64(self.device.device_id as i64)), (2, Value::I32(self.device.port.into()))];
        fields.extend(self.device.notifications.as_deref().map(|address| (3, address.into())));
        Value::Struct(fields)
    }

    /// The program's JSON.
    fn source(&self) -> Vec<u8> {
        self.dataplane.program().map(|program| program.source.to_vec()).unwrap_or_default()
    }

    /// Starts the program anew: no entries, groups and sessions, and all counts and registers 0.
    fn reset(&self) -> Answered {
        if let Some(program) = self.dataplane.program() {
            let committed = self.dataplane.commit_blocking((*program).clone());
            committed.or_else(|error| application(error.to_string()))?;
            drop(self.state());
        }
        Ok(None)
    }

    fn ports(&self) -> Value {
        Value::structs(self.dataplane.ports().iter().map(|port| {
            vec![
                (1, Value::I32(port.number.into())),
                (2, port.interface.as_str().into()),
                (3, Value::Bool(port.up)),
                (4, Value::EmptyMap),
            ]
        }))
    }

    fn add_port(&self, call: &Call) -> Answered {
        if !call.text(3)?.is_empty() {
            return application("a port's packets are written to files with --pcap, for all ports");
        }
        let config = PortConfig { number: port(call, 2)?, interface: call.text(1)?.into(), link: None };
        let added = self.dataplane.add_port_blocking(config);
        added.map(|()| None).map_err(|error| declared(PORT_ERROR, error.to_string()))
    }

    /// Acknowledges a message of a digest, which has one sample, number 0.
    fn acknowledge(&self, call: &Call, has_samples: bool) -> Answered {
        let (list, buffer) = (call.i32(2)?, call.i64(3)?);
        if has_samples && !call.list(4)?.contains(&Value::I32(0)) {
            return Ok(None);
        }
        let program = self.dataplane.program();
        let digest = program.and_then(|program| notifications::digest(&program, list));
        let digest = digest.ok_or_else(|| declared(1, format!("there is no list {list}")))?;
        let sequences = vec![buffer as u64];
        self.write(Update::AckDigest { digest, sequences }, SESSION).map(|()| None)
    }

    fn add_session(&self, call: &Call) -> Answered {
        let mut state = self.state();
        let (id, config) = (session(call)?, call.fields(2)?);
        let mirror = Mirror {
            port: i32_field(config, 1).map(number).transpose()?,
            group: i32_field(config, 2).map(|group| group as u32),
        };
        let is_there = self.dataplane.clone_sessions(Some(id)).contains_key(&id);
        let config = self.session(&state, mirror);
        let update = match is_there {
            true => Update::ModifyCloneSession { session: id, config },
            false => Update::InsertCloneSession { session: id, config },
        };
        self.write(update, SESSION)?;
        state.mirrors.insert(id as i32, mirror);
        Ok(None)
    }

    fn delete_session(&self, call: &Call) -> Answered {
        let mut state = self.state();
        let id = session(call)?;
        self.write(Update::DeleteCloneSession { session: id }, SESSION)?;
        state.mirrors.remove(&(id as i32));
        Ok(None)
    }

    fn find_session(&self, call: &Call) -> Answered {
        let id = session(call)?;
        let sessions = self.dataplane.clone_sessions(Some(id));
        let unknown = || declared(SESSION_NOT_FOUND, format!("there is no mirroring session {id}"));
        let (config, _) = sessions.get(&id).ok_or_else(unknown)?;
        let mirror = self.state().mirrors.get(&(id as i32)).copied();
        let mirror =
            mirror.unwrap_or(Mirror { port: config.replicas.first().map(|replica| replica.port), group: None });
        let port = mirror.port.map(|port| (1, Value::I32(port.into())));
        let group = mirror.group.map(|group| (2, Value::I32(group as i32)));
        Ok(Some(Value::Struct(port.into_iter().chain(group).collect())))
    }

    /// Sets the packets that wait at one port, or at each.
    fn set_depth(&self, call: &Call, at: Option<i16>, depth: i16) -> Answered {
        let only = at.map(|at| port(call, at)).transpose()?;
        let given = call.i32(depth)?;
        let limit = u32::try_from(given).ok().filter(|limit| *limit <= MAX_DEPTH);
        let limit = limit.map_or_else(|| application(format!("a depth of {given} packets: 0 to {MAX_DEPTH}")), Ok)?;
        let views = self.dataplane.views();
        let links = views.into_iter().filter(|(port, _)| only.is_none_or(|only| only == port.number));
        let links: Vec<_> = links
            .filter_map(|(port, view)| {
                let mut link = view.link?;
                link.limit_packets = limit;
                Some((port.number, link))
            })
            .collect();
        if links.is_empty() {
            return application("a port without --link sends at once and has no queue: give it one");
        }
        self.dataplane.set_links_blocking(links).or_else(|error| application(error.to_string()))?;
        Ok(Some(Value::I32(0)))
    }
}

fn number(given: i32) -> Result<PortNumber, Refusal> {
    PortNumber::try_from(given).or_else(|_| application(format!("port {given}: ports are numbered from 0 to 510")))
}

/// The port of an argument.
fn port(call: &Call, argument: i16) -> Result<PortNumber, Refusal> {
    number(call.i32(argument)?)
}

/// The mirroring session of argument 1.
fn session(call: &Call) -> Result<u32, Refusal> {
    let given = call.i32(1)?;
    u32::try_from(given).map_err(|_| declared(SESSION_NOT_FOUND, format!("mirroring session {given}")))
}

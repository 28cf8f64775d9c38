// SPDX-License-Identifier: Apache-2.0
//! Methods about the switch itself: its program, ports, mirroring sessions and queues.

use std::time::{SystemTime, UNIX_EPOCH};

use apswitch_dataplane::control::{CloneSession, DigestId, PortConfig, PortNumber, Update};
use md5::{Digest, Md5};

use crate::Handler;
use crate::call::{Answered, Call, Codes, Refusal, application, declared, i32_field};
use crate::handles::Mirror;
use crate::message::Value;

/// `SwapOperationErrorCode`, `DevMgrErrorCode`, `MirroringOperationErrorCode`.
const CONFIG_SWAP_DISABLED: i32 = 1;
const PORT_ERROR: i32 = 1;
const SESSION_NOT_FOUND: i32 = 1;
/// Packets of a queue, as gNMI bounds them.
const MAX_DEPTH: u32 = 1 << 20;
const SESSION: Codes = Codes::all(SESSION_NOT_FOUND);
/// `LearnOperationErrorCode`, `CrcErrorCode` and `ToeplitzHashErrorCode`.
const INVALID_LIST: i32 = 1;
const LEARNING: Codes = Codes::all(3);
const INVALID_CONFIG: i32 = 3;

impl Handler<'_> {
    pub fn management(&mut self, method: &str, call: &Call) -> Option<Answered> {
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
            "bm_dev_mgr_remove_port" => self.remove_port(call),
            "bm_learning_ack" => self.acknowledge(call, true),
            "bm_learning_ack_buffer" => self.acknowledge(call, false),
            "bm_set_crc16_custom_parameters" | "bm_set_crc32_custom_parameters" | "bm_set_toeplitz_hash_key" => {
                Err(declared(INVALID_CONFIG, "hash algorithms are v1model's own"))
            }
            // A message has one sample, sent at once.
            "bm_learning_set_timeout" | "bm_learning_set_buffer_size" => Ok(None),
            _ => return None,
        })
    }

    pub fn target(&mut self, method: &str, call: &Call) -> Option<Answered> {
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
                "rates are in bit/s here, not in packets/s, and depths those of a port: start with --link and --queue, or use gNMI",
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
        let source = self.state.program.as_ref().map(|program| program.source.to_vec());
        // Clients read it as JSON in any case.
        source.filter(|source| !source.is_empty()).unwrap_or_else(|| b"{}".to_vec())
    }

    /// Restarts the program: no entries and groups, and all counts and registers 0. Sessions stay, as in BMv2.
    fn reset(&mut self) -> Answered {
        let Some(program) = self.state.program.clone() else { return Ok(None) };
        let (sessions, mirrors) = (self.dataplane.clone_sessions(None), std::mem::take(&mut self.state.mirrors));
        self.dataplane.commit_blocking((*program).clone()).or_else(|error| application(error.to_string()))?;
        let (dataplane, program) = self.dataplane.bound().or_else(|error| application(error.to_string()))?;
        self.dataplane = dataplane;
        self.begin(Some(program));
        let sessions = sessions.into_iter().map(|(session, (mut config, _))| {
            // Groups have no nodes now.
            if let Some(mirror) = mirrors.get(&session).filter(|mirror| mirror.group.is_some()) {
                config.replicas = self.state.mirrored(*mirror);
            }
            Update::InsertCloneSession { session, config }
        });
        self.write_each(sessions, SESSION)?;
        self.state.mirrors = mirrors;
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
            return Err(declared(PORT_ERROR, "packets are written to files with --pcap, for all ports"));
        }
        let config =
            PortConfig { number: port(call, 2).map_err(port_error)?, interface: call.text(1)?.into(), link: None };
        let added = self.dataplane.add_port_blocking(config);
        added.map(|()| None).map_err(|error| declared(PORT_ERROR, error.to_string()))
    }

    fn remove_port(&self, call: &Call) -> Answered {
        let removed = self.dataplane.remove_port_blocking(port(call, 1).map_err(port_error)?);
        removed.map(|()| None).map_err(|error| declared(PORT_ERROR, error.to_string()))
    }

    /// Acknowledges a message of a digest, which has one sample, number 0.
    fn acknowledge(&self, call: &Call, has_samples: bool) -> Answered {
        let (list, buffer) = (call.i32(2)?, call.i64(3)?);
        if has_samples && !call.list(4)?.contains(&Value::I32(0)) {
            return Ok(None);
        }
        let digest = self.state.lists.iter().position(|own| *own == list).map(DigestId);
        let digest = digest.ok_or_else(|| declared(INVALID_LIST, format!("there is no list {list}")))?;
        self.write(Update::AckDigest { digest, sequences: vec![buffer as u64] }, LEARNING).map(|()| None)
    }

    fn add_session(&mut self, call: &Call) -> Answered {
        let (session, config) = (session(call)?, call.fields(2)?);
        let mirror = Mirror {
            port: i32_field(config, 1).map(number).transpose()?,
            group: i32_field(config, 2).map(|group| group as u32),
        };
        let config = CloneSession { replicas: self.state.mirrored(mirror), ..CloneSession::default() };
        let update = match self.dataplane.clone_sessions(Some(session)).contains_key(&session) {
            true => Update::ModifyCloneSession { session, config },
            false => Update::InsertCloneSession { session, config },
        };
        self.write(update, SESSION)?;
        self.state.mirrors.insert(session, mirror);
        Ok(None)
    }

    fn delete_session(&mut self, call: &Call) -> Answered {
        let session = session(call)?;
        self.write(Update::DeleteCloneSession { session }, SESSION)?;
        self.state.mirrors.remove(&session);
        Ok(None)
    }

    fn find_session(&self, call: &Call) -> Answered {
        let session = session(call)?;
        let sessions = self.dataplane.clone_sessions(Some(session));
        let unknown = || declared(SESSION_NOT_FOUND, format!("there is no mirroring session {session}"));
        let (config, _) = sessions.get(&session).ok_or_else(unknown)?;
        let first = || Mirror { port: config.replicas.first().map(|replica| replica.port), group: None };
        let mirror = self.state.mirrors.get(&session).copied().unwrap_or_else(first);
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

/// The code of a port that cannot be.
fn port_error(refusal: Refusal) -> Refusal {
    declared(PORT_ERROR, refusal.text)
}

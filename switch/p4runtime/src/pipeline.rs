// SPDX-License-Identifier: Apache-2.0
//! A forwarding pipeline config: checked, and kept as it was sent (P4Runtime 1.4, "Forwarding-Pipeline Configuration").

use apswitch_dataplane::control::Program;
use bytes::Bytes;
use prost::Message;

use super::error::{Checked, refuse};
use super::proto::p4::config::v1::{P4Info, Preamble, Table};
use super::proto::p4::v1::ForwardingPipelineConfig;
use super::proto::p4::v1::get_forwarding_pipeline_config_request::ResponseType;
use super::schema::{self, Schema};

/// Bytes of a P4Info at most: decoded it takes ten times as much memory.
const MAX_P4INFO_BYTES: usize = 1 << 20;
const MAX_DEVICE_CONFIG_BYTES: usize = 16 << 20;

pub struct Pipeline {
    pub schema: Schema,
    config: ForwardingPipelineConfig,
}

/// `p4.tmp.P4DeviceConfig`, in which older BMv2 clients wrap the JSON.
#[derive(Clone, PartialEq, Message)]
struct WrappedConfig {
    #[prost(bytes = "bytes", tag = "3")]
    device_data: Bytes,
}

impl Pipeline {
    /// Checks that the device config is a program that runs here and that the P4Info describes it.
    pub fn verify(config: Option<ForwardingPipelineConfig>) -> Checked<(Pipeline, Program)> {
        let Some(config) = config else {
            return refuse!(InvalidArgument, "there is no config");
        };
        for (what, bytes, most) in [
            ("P4Info", &config.p4info, MAX_P4INFO_BYTES),
            ("p4_device_config", &config.p4_device_config, MAX_DEVICE_CONFIG_BYTES),
        ] {
            if bytes.len() > most {
                return refuse!(ResourceExhausted, "a {what} of {} bytes: {most} are the most", bytes.len());
            }
        }
        if config.p4info.is_empty() {
            return refuse!(InvalidArgument, "the config has no P4Info");
        }
        let p4info = match P4Info::decode(config.p4info.clone()) {
            Ok(p4info) => p4info,
            Err(reason) => return refuse!(InvalidArgument, "P4Info: {reason}"),
        };
        let json = device_json(&config.p4_device_config)?;
        let initial = p4info.tables.iter().filter(|table| table.has_initial_entries && !table.is_const_table);
        let size = |table: &Table| Some((table.preamble.as_ref()?.name.clone(), usize::try_from(table.size).ok()?));
        let mut program = match Program::load_with(&json, &initial.filter_map(size).collect()) {
            Ok(program) => program,
            Err(reason) => return refuse!(InvalidArgument, "p4_device_config: {reason}"),
        };
        program.source = json;
        for info in &mut program.profiles {
            let is_it = |preamble: &Preamble| preamble.name == info.name;
            let described = p4info.action_profiles.iter().find(|p| p.preamble.as_ref().is_some_and(is_it));
            info.counts_members = described.is_some_and(schema::counts_members);
        }
        apswitch_core::store::check_size(&program)?;
        let schema = Schema::new(&p4info, &program).map_err(|e| e.at("P4Info"))?;
        Ok((Pipeline { schema, config }, program))
    }

    /// The parts of the config that a client asks for.
    pub fn config(&self, parts: ResponseType) -> ForwardingPipelineConfig {
        let (p4info, device) = match parts {
            ResponseType::All => (true, true),
            ResponseType::CookieOnly => (false, false),
            ResponseType::P4infoAndCookie => (true, false),
            ResponseType::DeviceConfigAndCookie => (false, true),
        };
        ForwardingPipelineConfig {
            p4info: if p4info { self.config.p4info.clone() } else { Bytes::new() },
            p4_device_config: if device { self.config.p4_device_config.clone() } else { Bytes::new() },
            cookie: self.config.cookie,
        }
    }
}

fn device_json(device_config: &Bytes) -> Checked<Bytes> {
    if device_config.is_empty() {
        return refuse!(InvalidArgument, "the config has no p4_device_config");
    }
    if device_config.trim_ascii_start().starts_with(b"{") {
        return Ok(device_config.clone());
    }
    match WrappedConfig::decode(device_config.clone()) {
        Ok(wrapped) if !wrapped.device_data.is_empty() => Ok(wrapped.device_data),
        _ => refuse!(InvalidArgument, "p4_device_config is not the JSON that p4c writes for BMv2"),
    }
}

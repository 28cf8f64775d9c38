// SPDX-License-Identifier: Apache-2.0
//! `apswitch trace`: packets of a running switch, explained step by step as they come.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Status};

use crate::server::proto::trace::trace_client::TraceClient;
use crate::server::proto::trace::{Condition, FollowRequest};

const AFTER_HELP: &str = "\
Fields are named as in the output, such as ipv4.dst_addr, or by the beginning of the name, such as ipv4.dst; sport and
dport are short for src_port and dst_port. The switch explains copies of the frames, after they have passed: at most 100
a second for each of 4 clients. It counts those that it leaves out.";

#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub struct Options {
    /// Address of the switch's P4Runtime server
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9559")]
    address: String,

    /// Only packets that this port receives
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..511))]
    port: Option<u16>,

    /// Only packets whose header fields have these values: ipv4.dst=10.0.0.2,tcp.dport=443
    #[arg(long = "match", value_name = "FIELD=VALUE,...", value_delimiter = ',', value_parser = condition)]
    conditions: Vec<Condition>,

    /// End after so many packets
    #[arg(long, value_name = "N")]
    count: Option<u64>,

    /// One JSON object for each packet instead of words
    #[arg(long)]
    json: bool,

    /// Authority of the server's certificate (PEM): TLS
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,

    /// Certificate of this client (PEM), for mutual TLS
    #[arg(long, value_name = "FILE", requires = "tls_ca", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// Key of this client's certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}

fn condition(text: &str) -> Result<Condition, String> {
    match text.split_once('=') {
        Some((field, value)) if !field.is_empty() => Ok(Condition { field: field.into(), value: value.into() }),
        _ => Err(format!("`{text}` is not FIELD=VALUE, such as ipv4.dst=10.0.0.2")),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))
}

async fn connect(options: &Options) -> Result<Channel, String> {
    let Options { address, tls_ca, tls_cert, tls_key, .. } = options;
    let scheme = if tls_ca.is_some() { "https" } else { "http" };
    let endpoint = Endpoint::from_shared(format!("{scheme}://{address}"));
    let mut endpoint = endpoint.map_err(|_| format!("--address {address}: give HOST:PORT"))?;
    if let Some(ca) = tls_ca {
        let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(ca)?));
        if let (Some(cert), Some(key)) = (tls_cert, tls_key) {
            tls = tls.identity(Identity::from_pem(read(cert)?, read(key)?));
        }
        endpoint = endpoint.tls_config(tls).map_err(|e| reason(&e))?;
    }
    endpoint.connect().await.map_err(|e| format!("{address}: {}", reason(&e)))
}

/// The innermost of an error's reasons.
fn reason(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => reason(source),
        None => error.to_string(),
    }
}

fn refusal(status: &Status) -> String {
    match status.code() {
        Code::Unimplemented => "the switch has no traces: it is another one, or older".into(),
        _ => status.message().to_owned(),
    }
}

async fn follow(options: &Options) -> Result<(), String> {
    let mut client = TraceClient::new(connect(options).await?);
    let request =
        FollowRequest { port: options.port.map(u32::from), conditions: options.conditions.clone(), json: options.json };
    let mut packets = client.follow(request).await.map_err(|status| refusal(&status))?.into_inner();
    eprintln!("tracing {}", options.address);
    let mut left = options.count.unwrap_or(u64::MAX);
    while left > 0 {
        let Some(packet) = packets.message().await.map_err(|status| refusal(&status))? else {
            return Err("the switch has ended the trace".into());
        };
        let lost = match (packet.lost, options.json) {
            (0, _) => String::new(),
            (lost, true) => format!("{{\"lost\":{lost}}}\n"),
            (lost, false) => format!("{lost} packets are not shown: they came too fast\n\n"),
        };
        let mut out = io::stdout().lock();
        match out.write_all((lost + &packet.text).as_bytes()).and_then(|()| out.flush()) {
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            other => other.map_err(|e| format!("standard output: {e}"))?,
        }
        left -= 1;
    }
    Ok(())
}

pub fn run(options: &Options) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|e| format!("cannot start threads: {e}"))?.block_on(follow(options))
}

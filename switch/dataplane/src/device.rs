// SPDX-License-Identifier: Apache-2.0
//! Options that define a switch: ports, links, queues, CPU port, seed. The same words serve the command line
//! and for who embeds a switch.

use std::collections::HashSet;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use apswitch_core::link::MAX_WEIGHT;
use apswitch_core::link_trace::Trace;
use clap::{Args, Parser};

use crate::control::{LinkConfig, PortConfig, PortNumber, QueueConfig};

#[derive(Args, Clone, Debug)]
pub struct DeviceOptions {
    /// A port and its interface; repeated
    #[arg(short, long = "interface", value_name = "PORT@IFACE", value_parser = parse_interface)]
    interfaces: Vec<(PortNumber, String)>,

    /// Link model of a port; repeated
    #[arg(long = "link", value_name = "PORT:KEY=VALUE,...", value_parser = parse_link)]
    links: Vec<(PortNumber, LinkConfig)>,

    /// A queue of a port; repeated
    #[arg(long = "queue", value_name = "PORT/QUEUE:KEY=VALUE,...", value_parser = parse_queue)]
    queues: Vec<(PortNumber, usize, QueueConfig)>,

    /// P4Runtime device id
    #[arg(long, default_value_t = 1)]
    pub device_id: u64,

    /// Port number of packet-in and packet-out
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(0..511))]
    pub cpu_port: Option<PortNumber>,

    /// Queues of each port
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = parse_queues)]
    pub priority_queues: usize,

    /// Seed of loss, jitter, P4's random numbers and the tables' hashes, to repeat a run; another one each time if
    /// missing
    #[arg(long)]
    pub seed: Option<u64>,
}

impl DeviceOptions {
    /// Parses words such as `-i`, `1@radio`, `--link`, `1:rate=14mbit`.
    pub fn from_words<S: AsRef<str>>(words: &[S]) -> Result<DeviceOptions, String> {
        #[derive(Parser)]
        #[command(no_binary_name = true, disable_help_flag = true)]
        struct Words {
            #[command(flatten)]
            device: DeviceOptions,
        }
        let parsed = Words::try_parse_from(words.iter().map(AsRef::as_ref));
        // One line; what follows is the usage of a command that is not there.
        let line = |text: String| {
            text.trim_start_matches("error: ").split("\n\n").next().unwrap_or_default().replace('\n', " ")
        };
        parsed.map(|words| words.device).map_err(|error| line(error.to_string()))
    }

    /// Every port with its link model.
    pub fn ports(&self) -> Result<Vec<PortConfig>, String> {
        let mut ports: Vec<PortConfig> = Vec::new();
        for (number, interface) in &self.interfaces {
            if Some(*number) == self.cpu_port {
                return Err(format!("-i {number}@{interface}: {number} is the CPU port: choose another number"));
            }
            if let Some(other) = ports.iter().find(|p| p.number == *number || p.interface == *interface) {
                let (taken, by) = (other.number, &other.interface);
                return Err(format!("-i {number}@{interface}: port {taken} is {by} already: use each one once"));
            }
            ports.push(PortConfig { number: *number, interface: interface.clone(), link: None });
        }
        for (number, link) in &self.links {
            match ports.iter_mut().find(|p| p.number == *number) {
                Some(port) if port.link.is_none() => port.link = Some(link.clone()),
                Some(_) => return Err(format!("--link {number}: given twice: put all its settings into one")),
                None => return Err(format!("--link {number}: there is no such port: add -i {number}@INTERFACE")),
            }
        }
        let mut given = HashSet::new();
        for (number, queue, config) in &self.queues {
            let option = format!("--queue {number}/{queue}");
            if *queue >= self.priority_queues {
                return Err(format!("{option}: there are {} queues, from 0 on", self.priority_queues));
            }
            if !given.insert((number, queue)) {
                return Err(format!("{option}: given twice: put all its settings into one"));
            }
            match ports.iter_mut().find(|p| p.number == *number) {
                Some(port) => port.link.get_or_insert_default().queues[*queue] = config.clone(),
                None => return Err(format!("{option}: there is no such port: add -i {number}@INTERFACE")),
            }
        }
        Ok(ports)
    }
}

fn parse_queues(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(queues @ 1..=8) => Ok(queues),
        _ => Err("give a number from 1 to 8".into()),
    }
}

fn parse_port(text: &str) -> Result<PortNumber, String> {
    match text.parse() {
        Ok(port @ 0..511) => Ok(port),
        _ => Err(format!("`{text}` is not a port number: give one from 0 to 510")),
    }
}

fn parse_interface(text: &str) -> Result<(PortNumber, String), String> {
    match text.split_once('@') {
        Some((port, interface)) if !interface.is_empty() => Ok((parse_port(port)?, interface.to_string())),
        _ => Err("give PORT@INTERFACE, such as 1@veth0".into()),
    }
}

fn parse_link(text: &str) -> Result<(PortNumber, LinkConfig), String> {
    let Some((port, settings)) = text.split_once(':') else {
        return Err("give PORT:KEY=VALUE,..., such as 2:rate=1mbit,delay=2ms".into());
    };
    let mut link = LinkConfig::default();
    for setting in settings.split(',') {
        let (key, value) = key_value(setting)?;
        match key {
            "rate" => link.rate = Some(rate(value)?),
            "burst" => link.burst = number(value)?,
            "trace" => link.trace = Some(Arc::new(Trace::read(Path::new(value))?)),
            "limit" => link.limit_packets = number(value)?,
            "limit-bytes" => link.limit_bytes = Some(number(value)?),
            "delay" => link.delay_ns = duration(value)?,
            "jitter" => link.jitter_ns = duration(value)?,
            "loss" => link.loss = probability(value)?,
            "overhead" => link.overhead = number(value)?,
            _ => {
                return Err(format!(
                    "`{key}` is no setting of a link: use rate, burst, trace, limit, limit-bytes, delay, jitter, loss or \
                     overhead"
                ));
            }
        }
    }
    if link.rate.is_some() && link.trace.is_some() {
        return Err("rate and trace: give one of them, since a trace is a rate".into());
    }
    if link.rate.is_none() && link.burst > 0 {
        return Err("burst: give a rate too".into());
    }
    Ok((parse_port(port)?, link))
}

fn parse_queue(text: &str) -> Result<(PortNumber, usize, QueueConfig), String> {
    let parts = text.split_once(':').and_then(|(place, settings)| Some((place.split_once('/')?, settings)));
    let Some(((port, queue), settings)) = parts else {
        return Err("give PORT/QUEUE:KEY=VALUE,..., such as 2/0:weight=3,limit=100".into());
    };
    let mut config = QueueConfig::default();
    for setting in settings.split(',') {
        let (key, value) = key_value(setting)?;
        match key {
            "weight" => match number(value)? {
                weight @ 1..=MAX_WEIGHT => config.weight = Some(weight),
                _ => return Err(format!("`{value}` is not a weight from 1 to {MAX_WEIGHT}")),
            },
            "limit" => config.limit_packets = Some(number(value)?),
            "limit-bytes" => config.limit_bytes = Some(number(value)?),
            "rate" => config.rate = Some(rate(value)?),
            "burst" => config.burst = number(value)?,
            _ => {
                return Err(format!("`{key}` is no setting of a queue: use weight, limit, limit-bytes, rate or burst"));
            }
        }
    }
    if config.rate.is_none() && config.burst > 0 {
        return Err("burst: give a rate too".into());
    }
    Ok((parse_port(port)?, number(queue)?, config))
}

fn key_value(setting: &str) -> Result<(&str, &str), String> {
    setting.split_once('=').ok_or_else(|| format!("`{setting}` is not KEY=VALUE"))
}

fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("`{text}` is not a whole number"))
}

fn probability(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(value) if (0.0..=1.0).contains(&value) => Ok(value),
        _ => Err(format!("`{text}` is not a probability from 0 to 1")),
    }
}

/// A number with one of the units, in the smallest of them.
fn with_unit(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let at = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(at);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    let value = number.parse::<f64>().ok()? * factor;
    (0.0..1e15).contains(&value).then_some(value.round())
}

fn rate(text: &str) -> Result<u64, String> {
    match with_unit(text, &[("bit", 1.0), ("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9)]) {
        Some(rate) if rate >= 1.0 => Ok(rate as u64),
        _ => Err(format!("`{text}` is not a rate: give such as 600kbit (bit, kbit, mbit, gbit)")),
    }
}

fn duration(text: &str) -> Result<u64, String> {
    match with_unit(text, &[("us", 1e3), ("ms", 1e6), ("s", 1e9)]) {
        Some(ns) if ns <= 60e9 => Ok(ns as u64),
        _ => Err(format!("`{text}` is not a duration of at most 60 s: give such as 2ms (us, ms, s)")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_and_what_is_wrong_is_one_line() {
        let device = DeviceOptions::from_words(&["-i", "1@radio", "--link", "1:rate=14mbit", "--seed", "7"]).unwrap();
        assert_eq!((device.ports().unwrap()[0].number, device.seed), (1, Some(7)));
        for (words, message) in [
            (&["--link", "1:rate=x"][..], "such as 600kbit"),
            (&["--grpc-server-addr", "x"], "unexpected argument '--grpc-server-addr'"),
        ] {
            let error = DeviceOptions::from_words(words).unwrap_err();
            assert!(error.contains(message) && !error.contains('\n'), "{error}");
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The congestion controls: their names, sources, options and counters.

use hosts_base::Error;

/// Congestion control. Its options and counters are maps of one entry with 32-bit fields, in the order given here.
pub struct Control {
    /// Name in this program's commands.
    pub name: &'static str,
    /// Name in the kernel: `TCP_CONGESTION`, `ip route ... congctl`, `net.ipv4.tcp_congestion_control`.
    /// Not the plain name, which belongs to the kernel's own module: two of one name exclude each other, and a socket
    /// that asks for `vegas` must not get one or the other by chance.
    pub kernel_name: &'static str,
    /// Summary in a few words.
    pub about: &'static str,
    pub options: &'static [OptionSpec],
    /// Names of the counters, which begin at loading.
    pub counters: &'static [&'static str],
    /// Compiled program.
    pub object: &'static [u8],
}

/// Option of a control: a whole number, its unit and bounds.
#[derive(Debug)]
pub struct OptionSpec {
    pub name: &'static str,
    pub unit: &'static str,
    pub default: u32,
    pub min: u32,
    pub max: u32,
}

/// Options by their index in `Control::options`, with their new values.
pub type Settings = Vec<(usize, u32)>;

const fn option(name: &'static str, unit: &'static str, default: u32, min: u32, max: u32) -> OptionSpec {
    OptionSpec { name, unit, default, min, max }
}

macro_rules! object {
    ($name:literal) => {
        include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".bpf.o"))
    };
}

const ALPHA: OptionSpec = option("alpha", "packets", 2, 0, 1 << 20);
const BETA: OptionSpec = option("beta", "packets", 4, 0, 1 << 20);
const GAMMA: OptionSpec = option("gamma", "packets", 1, 0, 1 << 20);

/// All congestion controls.
pub static CONTROLS: [Control; 5] = [
    Control {
        name: "vegas",
        kernel_name: "bpf_vegas",
        about: "keeps few packets in queues",
        options: &[ALPHA, BETA, GAMMA],
        counters: &[],
        object: object!("vegas"),
    },
    Control {
        name: "vegas_fair",
        kernel_name: "bpf_vegas_fair",
        about: "Vegas, asks for more after a pause",
        options: &[
            ALPHA,
            BETA,
            GAMMA,
            option("pause", "ms", 1000, 1, 1 << 30),
            option("introduction", "bytes", 5000, 0, u32::MAX),
            option("more_alpha", "packets", 1, 0, 1 << 20),
            option("more_beta", "packets", 2, 0, 1 << 20),
        ],
        counters: &[],
        object: object!("vegas_fair"),
    },
    Control {
        name: "westwood",
        kernel_name: "bpf_westwood",
        about: "Reno, measured window after a loss",
        options: &[],
        counters: &[],
        object: object!("westwood"),
    },
    Control {
        name: "reno_maxwin",
        kernel_name: "bpf_reno_maxwin",
        about: "Reno with a bounded window",
        options: &[option("bound", "packets", 10, 1, 1 << 20)],
        counters: &[],
        object: object!("reno_maxwin"),
    },
    Control {
        name: "tcp_av",
        kernel_name: "bpf_tcp_av",
        about: "holds a target rate",
        options: &[
            option("target", "kbit/s", 0, 0, u32::MAX),
            option("loss_limit", "percent", 10, 0, 100),
            option("timeout_limit", "timeouts", 2, 0, u32::MAX),
            option("rest", "ms", 5000, 0, u32::MAX),
            option("ceiling", "0 or 1", 0, 0, 1),
            option("patience", "ms", 1500, 0, u32::MAX),
        ],
        counters: &["gave_way", "resumed"],
        object: object!("tcp_av"),
    },
];

/// Find a control by either of its names. Errors: there is none.
pub fn find(name: &str) -> Result<&'static Control, Error> {
    CONTROLS.iter().find(|c| c.name == name || c.kernel_name == name).ok_or_else(|| {
        let names: Vec<_> = CONTROLS.iter().map(|c| c.name).collect();
        Error::new(format!("no congestion control is called '{name}': there are {}", names.join(", ")))
    })
}

impl Control {
    /// Parse `name=value` words. Errors name the word and the allowed values.
    pub fn parse(&self, words: &[String]) -> Result<Settings, Error> {
        words.iter().map(|word| self.parse_one(word)).collect()
    }

    /// List the options, for error messages.
    pub fn usage(&self) -> String {
        let options: Vec<_> = self.options.iter().map(|o| format!("{}={}", o.name, o.default)).collect();
        match options.is_empty() {
            true => format!("{} has no options", self.name),
            false => format!("{} has the options {} (these are the defaults)", self.name, options.join(" ")),
        }
    }

    fn parse_one(&self, word: &str) -> Result<(usize, u32), Error> {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        let index = self.options.iter().position(|o| o.name == name);
        let index = index.ok_or_else(|| Error::new(format!("'{word}' is no option: {}", self.usage())))?;
        let option = &self.options[index];
        match value.parse() {
            Ok(number) if (option.min..=option.max).contains(&number) => Ok((index, number)),
            _ => Err(Error::new(format!(
                "'{word}': {name} is a whole number from {} to {} ({})",
                option.min, option.max, option.unit
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_names_fit_and_differ() {
        for (i, control) in CONTROLS.iter().enumerate() {
            assert!(control.kernel_name.len() < 16, "TCP_CA_NAME_MAX holds 15 characters");
            assert!(CONTROLS[..i].iter().all(|c| c.kernel_name != control.kernel_name));
            assert!(std::ptr::eq(find(control.kernel_name).unwrap(), control));
        }
    }

    #[test]
    fn bad_options_are_named_with_what_would_do() {
        let vegas = find("vegas").unwrap();
        assert_eq!(vegas.parse(&["beta=6".into(), "alpha=3".into()]).unwrap(), [(1, 6), (0, 3)]);
        for (word, part) in [("alfa=1", "alpha=2 beta=4"), ("alpha", "whole number"), ("alpha=-1", "from 0 to")] {
            let error = vegas.parse(&[word.into()]).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains(word), "{error}");
        }
        let error = find("westwood").unwrap().parse(&["x=1".into()]).unwrap_err().to_string();
        assert!(error.contains("has no options"), "{error}");
        assert!(find("cubic").err().unwrap().to_string().contains("vegas_fair"));
    }

    #[test]
    fn the_objects_hold_the_defaults() {
        use libbpf_rs::ObjectBuilder;
        for control in &CONTROLS {
            let object = ObjectBuilder::default().open_memory(control.object).unwrap();
            let map = object.maps().find(|m| m.name() == ".data.options");
            let bytes = map.as_ref().map_or(&[][..], |m| m.initial_value().unwrap());
            let values: Vec<_> = bytes.chunks(4).map(|b| u32::from_ne_bytes(b.try_into().unwrap())).collect();
            assert_eq!(values, control.options.iter().map(|o| o.default).collect::<Vec<_>>(), "{}", control.name);
        }
    }
}

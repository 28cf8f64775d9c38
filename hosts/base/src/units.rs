// SPDX-License-Identifier: Apache-2.0
//! Quantities as people write them.

/// Parse a rate: `8mbit` is 8000000 (bit/s). For clap: the error is one line with the remedy.
pub fn rate(text: &str) -> Result<u64, String> {
    quantity(text, "bit")
        .filter(|rate| (1e3..=1e12).contains(rate))
        .map(|rate| rate.round() as u64)
        .ok_or_else(|| format!("'{text}' is no rate from 1kbit to 1000gbit: write it as 8mbit or 600kbit"))
}

/// Parse an amount: `20GB` is 20000000000 (bytes). For clap: the error is one line with the remedy.
pub fn bytes(text: &str) -> Result<u64, String> {
    quantity(text, "b")
        .filter(|bytes| (1.0..=1e18).contains(bytes))
        .map(|bytes| bytes.round() as u64)
        .ok_or_else(|| format!("'{text}' is no amount: write it as 20GB or 500MB"))
}

/// Parse a number with a unit, to which k, m or g may be prefixed, in either case.
fn quantity(text: &str, unit: &str) -> Option<f64> {
    let lower = text.to_ascii_lowercase();
    let (number, prefix) =
        lower.strip_suffix(unit).map(|rest| rest.split_at(rest.trim_end_matches(['k', 'm', 'g']).len()))?;
    let factor = match prefix {
        "" => 1.0,
        "k" => 1e3,
        "m" => 1e6,
        "g" => 1e9,
        _ => return None,
    };
    number.trim().parse::<f64>().ok().map(|number| number * factor)
}

/// Format a rate in bit/s, such as `13.4 Mbit/s`.
pub fn show_rate(rate: f64) -> String {
    match rate {
        r if r >= 1e9 => format!("{:.2} Gbit/s", r / 1e9),
        r if r >= 1e6 => format!("{:.2} Mbit/s", r / 1e6),
        r => format!("{:.1} kbit/s", r / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_need_a_number_and_a_unit() {
        assert_eq!(rate("8mbit"), Ok(8_000_000));
        assert_eq!(rate("0.6Mbit"), Ok(600_000));
        assert_eq!(rate("1 gbit"), Ok(1_000_000_000));
        for wrong in ["8", "mbit", "", "-1mbit", "nanmbit", "infgbit", "8mb", "1bit", "8 mbit/s"] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn amounts_need_a_number_and_a_unit() {
        assert_eq!(bytes("20GB"), Ok(20_000_000_000));
        assert_eq!(bytes("0.5 mb"), Ok(500_000));
        assert_eq!(bytes("7B"), Ok(7));
        for wrong in ["20", "GB", "", "-1GB", "nanB", "1KKB", "0B", "1GBit"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rates_are_shown_with_three_digits_or_so() {
        assert_eq!(show_rate(13_414_000.0), "13.41 Mbit/s");
        assert_eq!(show_rate(633_000.0), "633.0 kbit/s");
        assert_eq!(show_rate(2.5e9), "2.50 Gbit/s");
    }
}

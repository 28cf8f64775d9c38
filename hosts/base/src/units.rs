// SPDX-License-Identifier: Apache-2.0
//! Quantities as people write them.

/// Parse a rate: `8mbit` is 8000000 (bit/s). For clap: the error is one line with the remedy.
pub fn rate(text: &str) -> Result<u64, String> {
    let lower = text.to_ascii_lowercase();
    let split = lower.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(lower.len());
    let unit = match &lower[split..] {
        "bit" => 1.0,
        "kbit" => 1e3,
        "mbit" => 1e6,
        "gbit" => 1e9,
        _ => f64::NAN,
    };
    match lower[..split].trim().parse::<f64>().map(|number| number * unit) {
        Ok(rate) if (1e3..=1e12).contains(&rate) => Ok(rate.round() as u64),
        _ => Err(format!("'{text}' is no rate from 1kbit to 1000gbit: write it as 8mbit or 600kbit")),
    }
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
    fn rates_are_shown_with_three_digits_or_so() {
        assert_eq!(show_rate(13_414_000.0), "13.41 Mbit/s");
        assert_eq!(show_rate(633_000.0), "633.0 kbit/s");
        assert_eq!(show_rate(2.5e9), "2.50 Gbit/s");
    }
}

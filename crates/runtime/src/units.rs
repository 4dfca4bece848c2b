//! Durations as people write them, and figures as people read them.

use std::time::Duration;

/// Reads `500ms`, `10 s`, `5min`, `24h`, `2d`, or a bare number of milliseconds.
///
/// # Errors
/// Anything else; the text says what is understood.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let trimmed = text.trim();
    let digits = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(digits);
    let wrong = || {
        format!(
            "{text:?} is no duration; write 500ms, 10s, 5min, 24h, 2d, or a number of milliseconds"
        )
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let unit_ms = match unit.trim() {
        "" | "ms" => 1,
        "s" | "sec" => 1000,
        "m" | "min" => 60 * 1000,
        "h" => 3600 * 1000,
        "d" => 24 * 3600 * 1000,
        _ => return Err(wrong()),
    };
    number.checked_mul(unit_ms).map(Duration::from_millis).ok_or_else(wrong)
}

/// `26,865`.
#[must_use]
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `4.1 KiB`.
#[must_use]
pub fn bytes(number: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if number < 1024 {
        return format!("{number} B");
    }
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let mut scaled = number as f64 / 1024.0;
    let mut unit = "KiB";
    for larger in UNITS.into_iter().skip(1) {
        if scaled < 1024.0 {
            break;
        }
        scaled /= 1024.0;
        unit = larger;
    }
    format!("{scaled:.1} {unit}")
}

/// `8.3 ms`.
#[must_use]
pub fn millis(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected_ms: Option<u64>) {
        assert_eq!(parse_duration(text).ok(), expected_ms.map(Duration::from_millis), "{text:?}");
    }

    #[test]
    fn durations() {
        check("500ms", Some(500));
        check("10 s", Some(10_000));
        check("5min", Some(300_000));
        check("24h", Some(86_400_000));
        check("2d", Some(172_800_000));
        check("10000", Some(10_000));
        check("", None);
        check("s", None);
        check("-1s", None);
        check("1.5s", None);
        check("10 parsecs", None);
        check("99999999999999999999s", None);
        check("18446744073709551615d", None);
    }

    #[test]
    fn figures() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(26_865), "26,865");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(5 << 30), "5.0 GiB");
        assert_eq!(millis(Duration::from_micros(8_300)), "8.3 ms");
    }
}

//! `cargo xtask vectors`: the test vectors of the snapshot format, made by the library itself.

use std::error::Error;
use std::fs;

use crate::steps::Outcome;
use crate::workspace::{cargo, root};

const FILE: &str = "docs/vectors/snapshot.json";

/// Writes the file.
pub(crate) fn write() -> Result<bool, Box<dyn Error>> {
    fs::write(root().join(FILE), made()?)?;
    println!("{FILE} is written");
    Ok(true)
}

/// Whether the file is what the library makes now.
pub(crate) fn check() -> Result<bool, Box<dyn Error>> {
    let (there, made) = (fs::read_to_string(root().join(FILE))?, made()?);
    match first_difference(&there, &made) {
        None => println!("{FILE} is as it should be"),
        Some((line, there, made)) => {
            println!("{FILE}:{line}: the library makes other bytes than these:");
            println!("- {there}\n+ {made}");
            println!("A format that has been released doesn't change without a new version.");
        }
    }
    Ok(there == made)
}

/// The check as a step of the tests.
pub(crate) fn step() -> Result<Outcome, Box<dyn Error>> {
    Ok(if check()? { Outcome::Passed } else { Outcome::Failed })
}

fn made() -> Result<String, Box<dyn Error>> {
    let arguments = ["run", "--quiet", "-p", "strandline-snapshot", "--example", "vectors"];
    let output = cargo().args(arguments).output()?;
    if !output.status.success() {
        return Err(format!("vectors: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// The first line that differs, with its number; a line that isn't there is empty.
fn first_difference<'a>(a: &'a str, b: &'a str) -> Option<(usize, &'a str, &'a str)> {
    let lines = a.lines().count().max(b.lines().count());
    let of = |text: &'a str| text.lines().chain(std::iter::repeat("")).take(lines);
    let mut pairs = (1..).zip(of(a)).zip(of(b)).map(|((line, a), b)| (line, a, b));
    pairs.find(|(_, a, b)| a != b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference() {
        assert_eq!(first_difference("a\nb\n", "a\nb\n"), None);
        assert_eq!(first_difference("a\nb\n", "a\nc\n"), Some((2, "b", "c")));
        assert_eq!(first_difference("a\n", "a\nc\n"), Some((2, "", "c")));
        assert_eq!(first_difference("", "a\n"), Some((1, "", "a")));
    }
}

//! What figures depend on: the machine, the compiler, and the commit.

use std::fs;

use crate::workspace::output;

/// Where and when a benchmark has run. What can't be found out is said to be unknown.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    pub(super) cpu: String,
    pub(super) cores: String,
    pub(super) memory: String,
    pub(super) kernel: String,
    /// Of the folder that checkpoints go to.
    pub(super) file_system: String,
    pub(super) compiler: String,
    pub(super) commit: String,
    /// `2026-01-31`, UTC.
    pub(super) date: String,
}

impl Machine {
    /// Reads them. `page` is what the benchmark writes; a change of it doesn't make the commit dirty.
    pub(super) fn read(page: &str) -> Self {
        let unknown = || "unknown".to_owned();
        let file = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Self {
            cpu: field(&file("/proc/cpuinfo"), "model name").unwrap_or_else(unknown),
            cores: std::thread::available_parallelism()
                .map_or_else(|_| unknown(), |n| n.to_string()),
            memory: field(&file("/proc/meminfo"), "MemTotal")
                .and_then(|size| gibibytes(&size))
                .unwrap_or_else(unknown),
            kernel: output("uname", &["-sr"]).unwrap_or_else(unknown),
            file_system: output("findmnt", &["-n", "-o", "FSTYPE", "-T", "."])
                .unwrap_or_else(unknown),
            compiler: output("rustc", &["--version"]).unwrap_or_else(unknown),
            commit: commit(page).unwrap_or_else(unknown),
            date: output("date", &["-u", "+%Y-%m-%d"]).unwrap_or_else(unknown),
        }
    }
}

fn commit(page: &str) -> Option<String> {
    let commit = output("git", &["rev-parse", "--short=12", "HEAD"])?;
    let except = format!(":!{page}");
    let changes = output("git", &["status", "--porcelain", "--", ".", &except])?;
    Some(if changes.is_empty() { commit } else { format!("{commit}, with changes on top") })
}

/// The value of the first line `name : value`.
fn field(text: &str, name: &str) -> Option<String> {
    let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned())
}

/// From `16384256 kB`, rounded to a tenth.
fn gibibytes(size: &str) -> Option<String> {
    let kibibytes: f64 = size.strip_suffix("kB")?.trim().parse().ok()?;
    Some(format!("{:.1} GiB", kibibytes / 1_048_576.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_proc() {
        let text = "processor\t: 0\nmodel name\t: A CPU @ 2 GHz\nmodel name\t: B\n";
        assert_eq!(field(text, "model name").as_deref(), Some("A CPU @ 2 GHz"));
        assert_eq!(field(text, "model"), None);
    }

    #[test]
    fn sizes() {
        assert_eq!(gibibytes("25165824 kB").as_deref(), Some("24.0 GiB"));
        assert_eq!(gibibytes("many"), None);
    }
}

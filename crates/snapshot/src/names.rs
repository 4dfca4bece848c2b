//! Every object's name, made and read in one place.
//!
//! ```text
//! <root>/<job id>/_job                                   the job's name
//! <root>/<job id>/owner.lock                             held by a live owner (local stores)
//! <root>/<job id>/fence/<token, 20 digits>               one for each owner there ever was
//! <root>/<job id>/shared/<checkpoint, 20 digits>-<token>-<label>.pack
//! <root>/<job id>/chk-<checkpoint>/_metadata             the manifest
//! ```

use crate::job::JobId;
use crate::{Error, Result};

pub(crate) fn job(id: JobId) -> String {
    format!("{id}/_job")
}

pub(crate) fn lock(id: JobId) -> String {
    format!("{id}/owner.lock")
}

pub(crate) fn fences(id: JobId) -> String {
    format!("{id}/fence/")
}

pub(crate) fn fence(id: JobId, token: u64) -> String {
    format!("{id}/fence/{token:020}")
}

/// The token of a fence object.
pub(crate) fn fence_token(path: &str) -> Option<u64> {
    let (_, name) = path.rsplit_once('/')?;
    if name.len() == 20 { name.parse().ok() } else { None }
}

pub(crate) fn packs(id: JobId) -> String {
    format!("{id}/shared/")
}

pub(crate) fn pack(id: JobId, name: &str) -> String {
    format!("{id}/shared/{name}")
}

/// The name of a pack, without folder.
pub(crate) fn pack_name(checkpoint: u64, token: u64, label: &str) -> Result<String> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if label.is_empty() || label.len() > 100 || !label.chars().all(fits) {
        return Err(Error::invalid(format!("a label has 1 to 100 of a-z, 0-9 and -: {label:?}")));
    }
    Ok(format!("{}{token}-{label}.pack", pack_prefix(checkpoint)))
}

/// What the packs of a checkpoint begin with.
fn pack_prefix(checkpoint: u64) -> String {
    format!("{checkpoint:020}-")
}

/// The checkpoint that a pack was written for, and the token of its owner.
pub(crate) fn pack_owner(name: &str) -> Option<(u64, u64)> {
    let mut fields = name.splitn(3, '-');
    let number = pack_checkpoint(name)?;
    Some((number, fields.nth(1)?.parse().ok()?))
}

/// The checkpoint that a pack was written for.
pub(crate) fn pack_checkpoint(name: &str) -> Option<u64> {
    let (number, _) = name.split_once('-')?;
    if number.len() == 20 { number.parse().ok() } else { None }
}

pub(crate) fn checkpoints(id: JobId) -> String {
    format!("{id}/chk-")
}

pub(crate) fn manifest(id: JobId, checkpoint: u64) -> String {
    format!("{id}/chk-{checkpoint}/_metadata")
}

/// The checkpoint of a manifest object.
pub(crate) fn manifest_checkpoint(path: &str) -> Option<u64> {
    let (folder, name) = path.rsplit_once('/')?;
    let (_, folder) = folder.rsplit_once('/')?;
    let number: u64 = folder.strip_prefix("chk-")?.parse().ok()?;
    (name == "_metadata" && folder == format!("chk-{number}")).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back() {
        let id = JobId::for_name("x");
        assert_eq!(manifest_checkpoint(&manifest(id, 7)), Some(7));
        assert_eq!(manifest_checkpoint(&format!("{id}/chk-07/_metadata")), None);
        assert_eq!(manifest_checkpoint(&format!("{id}/chk-7/other")), None);
        assert_eq!(fence_token(&fence(id, 3)), Some(3));
        let name = pack_name(9, 1, "task-00001").expect("a fine label");
        assert_eq!(pack_checkpoint(&name), Some(9));
        assert_eq!(pack_owner(&name), Some((9, 1)));
        for bad in ["", "A", "a/b", "..", "a b"] {
            assert!(pack_name(9, 1, bad).is_err(), "{bad}");
        }
    }
}

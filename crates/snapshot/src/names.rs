//! Every object's name, made and read in one place.
//!
//! ```text
//! <root>/<job id>/_job                                   the job's name
//! <root>/<job id>/owner.lock                             held by a live owner (local stores)
//! <root>/<job id>/fence/<token, 20 digits>               one for each owner there ever was
//! <root>/<job id>/accepted/<token, 20 digits>            what it goes on from
//! <root>/<job id>/lease/<token>-<sequence>               signs of life, 20 digits each
//! <root>/<job id>/pins/<32 hex digits>                   readers
//! <root>/<job id>/shared/<checkpoint, 20 digits>-<token>-<label>.pack
//! <root>/<job id>/chk-<checkpoint>/_metadata             the manifest
//! <root>/savepoint-<6 hex digits>-<12 hex digits>/       a savepoint: manifest and packs
//! ```

use crate::job::JobId;
use crate::nonce::Nonce;
use crate::{Error, Result};

/// The manifest's name in its folder.
pub(crate) const MANIFEST: &str = "_metadata";

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

pub(crate) fn all_accepted(id: JobId) -> String {
    format!("{id}/accepted/")
}

pub(crate) fn accepted(id: JobId, token: u64) -> String {
    format!("{id}/accepted/{token:020}")
}

/// The token of a fence, or of the record of what is accepted.
pub(crate) fn token(path: &str) -> Option<u64> {
    let (_, name) = path.rsplit_once('/')?;
    digits(name)
}

fn digits(text: &str) -> Option<u64> {
    let fits = text.len() == 20 && text.bytes().all(|byte| byte.is_ascii_digit());
    fits.then(|| text.parse().ok())?
}

pub(crate) fn leases(id: JobId) -> String {
    format!("{id}/lease/")
}

pub(crate) fn lease(id: JobId, token: u64, sequence: u64) -> String {
    format!("{id}/lease/{token:020}-{sequence:020}")
}

/// Token and sequence of a lease.
pub(crate) fn lease_order(path: &str) -> Option<(u64, u64)> {
    let (_, name) = path.rsplit_once('/')?;
    let (token, sequence) = name.split_once('-')?;
    Some((digits(token)?, digits(sequence)?))
}

pub(crate) fn pins(id: JobId) -> String {
    format!("{id}/pins/")
}

pub(crate) fn pin(id: JobId, nonce: &Nonce) -> String {
    format!("{id}/pins/{nonce}")
}

/// The folder of a new savepoint of a job.
pub(crate) fn savepoint(id: JobId, nonce: &Nonce) -> String {
    let job: String = id.to_string().chars().take(6).collect();
    let random: String = nonce.to_string().chars().take(12).collect();
    format!("savepoint-{job}-{random}")
}

pub(crate) fn packs(id: JobId) -> String {
    format!("{id}/shared/")
}

pub(crate) fn pack(id: JobId, name: &str) -> String {
    format!("{}{name}", packs(id))
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
    digits(number)
}

pub(crate) fn checkpoints(id: JobId) -> String {
    format!("{id}/chk-")
}

pub(crate) fn manifest(id: JobId, checkpoint: u64) -> String {
    format!("{id}/chk-{checkpoint}/{MANIFEST}")
}

/// The checkpoint of a manifest object.
pub(crate) fn manifest_checkpoint(path: &str) -> Option<u64> {
    let (folder, name) = path.rsplit_once('/')?;
    let (_, folder) = folder.rsplit_once('/')?;
    let number: u64 = folder.strip_prefix("chk-")?.parse().ok()?;
    (name == MANIFEST && folder == format!("chk-{number}")).then_some(number)
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
        assert_eq!(token(&fence(id, 3)), Some(3));
        assert_eq!(token(&accepted(id, 3)), Some(3));
        assert_eq!(lease_order(&lease(id, 3, 4)), Some((3, 4)));
        let name = pack_name(9, 1, "task-00001").expect("a fine label");
        assert_eq!(pack_checkpoint(&name), Some(9));
        assert_eq!(pack_owner(&name), Some((9, 1)));
        for bad in ["", "A", "a/b", "..", "a b"] {
            assert!(pack_name(9, 1, bad).is_err(), "{bad}");
        }
    }
}

//! Framed records: as bytes, as payloads behind the hash, and in their place in a job's folder.

use strandline_snapshot::pieces;

use crate::input::Input;
use crate::world::{self, job};

/// Inputs whose first byte is below this have their payload framed.
const FRAMED: u8 = 128;

/// One kind of record, by the first byte.
pub fn try_input(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let kind = input.byte();
    let place = |magic: [u8; 4], path: String| Some((magic, path));
    let placed = match kind % 16 {
        0 => manifest(pieces::manifest_again(input.rest()).ok()),
        1 => manifest(pieces::manifest_of_payload(input.rest()).ok()),
        2..=4 => place(*b"SLFN", format!("fence/{:020}", token(&mut input))),
        5..=7 => place(*b"SLAC", format!("accepted/{:020}", token(&mut input))),
        8 | 9 => {
            let token = token(&mut input);
            place(*b"SLLS", format!("lease/{token:020}-{:020}", input.number()))
        }
        10 => place(*b"SLPN", "pins/00112233445566778899aabbccddeeff".to_owned()),
        11 => place(*b"SLJB", "_job".to_owned()),
        12 | 13 => place(*b"SLMF", format!("chk-{}/_metadata", token(&mut input))),
        _ => place(*b"SLMF", String::from_utf8_lossy(input.prefixed()).into_owned()),
    };
    let Some((magic, path)) = placed else { return };
    let payload = input.rest();
    let bytes =
        if kind < FRAMED { pieces::frame(magic, payload) } else { payload.to_vec() };
    let mut objects = world::objects().clone();
    objects.insert(format!("{}/{path}", job()), bytes);
    let store = world::store(&objects);
    let published = world::live(&store);
    // Whatever a record of owners says: what has been published counts.
    if let Some(number) = published.filter(|_| kind % 16 < 12) {
        world::check_whole(&store, number);
    }
}

/// Most often one that is there.
fn token(input: &mut Input<'_>) -> u64 {
    let kind = input.byte();
    if kind < 200 { u64::from(kind % 6) } else { input.number() }
}

/// What is written of a manifest is read and written as it is.
fn manifest(again: Option<Vec<u8>>) -> Option<([u8; 4], String)> {
    if let Some(again) = again {
        assert_eq!(pieces::manifest_again(&again).expect("it was written here"), again);
    }
    None
}

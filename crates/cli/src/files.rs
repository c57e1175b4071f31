//! Files with secrets and certificates. None is read without a bound, and none that never ends.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use crate::failure::Failure;
use crate::report;

/// Several times what all authorities of a usual system take.
const MOST: u64 = 1 << 20;

/// The text of a file that others may know too.
pub(crate) fn text(file: &Path) -> Result<String, Failure> {
    read(file).map(|(text, _)| text).map_err(refused(file))
}

/// The text of one that they should not. It says on stderr if they can.
pub(crate) fn secret(file: &Path) -> Result<String, Failure> {
    let (text, is_open) = read(file).map_err(refused(file))?;
    if is_open {
        warn_of_readers(file);
    }
    Ok(text)
}

pub(crate) fn warn_of_readers(file: &Path) {
    report::say(format_args!(
        "every user of this machine can read the secret in {0}: `chmod o-r {0}` ends that",
        file.display()
    ));
}

fn refused(file: &Path) -> impl FnOnce(io::Error) -> Failure {
    let file = file.to_owned();
    |source| Failure::File { file, source }
}

/// The text, and whether every user may read it.
pub(crate) fn read(file: &Path) -> io::Result<(String, bool)> {
    let opened = File::open(file)?;
    let about = opened.metadata()?;
    if !about.is_file() && !about.file_type().is_fifo() {
        return Err(io::Error::other("it is neither a file nor a pipe"));
    }
    let mut text = String::new();
    if opened.take(MOST + 1).read_to_string(&mut text)? as u64 > MOST {
        return Err(io::Error::other("it is longer than 1 MiB"));
    }
    Ok((text, about.is_file() && about.mode() & 0o004 != 0))
}

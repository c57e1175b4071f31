//! `completions`: what a shell needs to know of the words of the command line. It asks no server.

use crate::args::{self, Completions};
use crate::failure::Failure;
use crate::report;

pub(crate) fn run(order: &Completions) -> Result<u8, Failure> {
    let mut tool = args::tool();
    let name = tool.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(order.shell, &mut tool, name, &mut script);
    report::print(String::from_utf8_lossy(&script).trim_end())?;
    Ok(0)
}

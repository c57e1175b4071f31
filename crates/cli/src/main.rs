//! The `lockkeeper` command-line tool; see the library of this package.

use std::process::ExitCode;

fn main() -> ExitCode {
    lockkeeper_cli::main()
}

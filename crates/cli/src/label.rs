//! The label of a command that was given none: the name of its program or script. (pure)
//!
//! Invariant: every client reads it, so it is never an argument that may be a secret. An option is
//! passed over only if its length is known. Before any other one, the search for a name ends.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The longest label, in characters.
const LONGEST: usize = 40;

/// A program that runs a script or another program, and its options as far as they are known.
struct Launcher {
    names: &'static [&'static str],
    /// Options without a value.
    flags: &'static [&'static str],
    /// Options whose value is the next word.
    valued: &'static [&'static str],
    /// Options whose value is in the same word, or further flags.
    attached: &'static [&'static str],
    /// Options whose value is what runs.
    naming: &'static [&'static str],
    /// So many words stand before what runs.
    skips: usize,
    /// Whether `X=1` may stand there, too.
    sets_variables: bool,
    /// Whether what runs may be a launcher itself.
    runs_programs: bool,
}

const SCRIPTS: Launcher = Launcher {
    names: &[],
    flags: &[],
    valued: &[],
    attached: &[],
    naming: &[],
    skips: 0,
    sets_variables: false,
    runs_programs: false,
};

const PROGRAMS: Launcher = Launcher {
    runs_programs: true,
    ..SCRIPTS
};

const LAUNCHERS: &[Launcher] = &[
    Launcher {
        names: &["env"],
        flags: &["-", "-i", "--ignore-environment"],
        valued: &["-u", "--unset", "-C", "--chdir"],
        attached: &["--unset=", "--chdir="],
        sets_variables: true,
        ..PROGRAMS
    },
    Launcher {
        names: &["sudo"],
        flags: &["-n", "-E", "-H"],
        valued: &["-u", "-g"],
        sets_variables: true,
        ..PROGRAMS
    },
    Launcher {
        names: &["nice", "ionice"],
        valued: &["-n", "-c"],
        attached: &["-n", "-c", "--adjustment="],
        ..PROGRAMS
    },
    Launcher {
        names: &["nohup", "setsid"],
        flags: &["-c", "-f", "-w", "--ctty", "--fork", "--wait"],
        ..PROGRAMS
    },
    Launcher {
        names: &["stdbuf"],
        valued: &["-i", "-o", "-e"],
        attached: &["-i", "-o", "-e"],
        ..PROGRAMS
    },
    Launcher {
        names: &["timeout"],
        flags: &["-v", "--verbose", "--foreground", "--preserve-status"],
        valued: &["-k", "--kill-after", "-s", "--signal"],
        attached: &["--kill-after=", "--signal="],
        // The time.
        skips: 1,
        ..PROGRAMS
    },
    Launcher {
        names: &["sh", "ash", "bash", "dash", "ksh", "zsh"],
        flags: &[
            "-e",
            "-u",
            "-x",
            "-v",
            "-l",
            "-eu",
            "-ex",
            "-eux",
            "-ux",
            "--login",
            "--norc",
            "--noprofile",
            "--posix",
        ],
        valued: &["-o", "-eo", "-euo", "-exo", "-euxo"],
        ..SCRIPTS
    },
    Launcher {
        names: &["python", "pypy"],
        flags: &[
            "-b", "-B", "-d", "-E", "-I", "-O", "-OO", "-q", "-s", "-S", "-u", "-v",
        ],
        valued: &["-W", "-X"],
        naming: &["-m"],
        ..SCRIPTS
    },
    Launcher {
        names: &["node", "nodejs"],
        flags: &["--enable-source-maps", "--trace-warnings", "--use-strict"],
        valued: &["-r", "--require", "--import"],
        attached: &["--max-old-space-size=", "--require=", "--import="],
        ..SCRIPTS
    },
    Launcher {
        names: &["perl"],
        flags: &["-w", "-W", "-X", "-t", "-T", "-u"],
        valued: &["-I"],
        attached: &["-I", "-M", "-m"],
        ..SCRIPTS
    },
    Launcher {
        names: &["ruby"],
        flags: &["-w", "-v", "--jit", "--yjit"],
        valued: &["-I", "-r"],
        attached: &["-I", "-r", "-W"],
        ..SCRIPTS
    },
    Launcher {
        names: &["php"],
        flags: &["-n", "-q"],
        valued: &["-c", "-d"],
        naming: &["-f", "--file"],
        ..SCRIPTS
    },
    Launcher {
        names: &["java"],
        flags: &["-server", "-ea", "-esa"],
        valued: &["-cp", "-classpath", "--class-path", "-p", "--module-path"],
        attached: &["-D", "-X", "-ea:", "-javaagent:", "--add-opens="],
        naming: &["-jar", "-m", "--module"],
        ..SCRIPTS
    },
];

/// The label of a command.
pub(crate) fn of(command: &[OsString]) -> String {
    let Some((program, mut arguments)) = command.split_first() else {
        return String::new();
    };
    let mut name = file_name(program);
    while let Some(launcher) = Launcher::of(&name) {
        let Some(what) = launcher.what_runs(arguments) else {
            break;
        };
        name = file_name(&arguments[what]);
        if !launcher.runs_programs {
            break;
        }
        arguments = &arguments[what + 1..];
    }
    name.chars().take(LONGEST).collect()
}

fn file_name(word: &OsStr) -> String {
    let name = Path::new(word).file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

impl Launcher {
    /// By its name, which may end with a version: `python3.11`.
    fn of(name: &str) -> Option<&'static Self> {
        let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        let mut launchers = LAUNCHERS.iter();
        launchers.find(|launcher| launcher.names.contains(&name))
    }

    /// Which of its arguments is what runs.
    fn what_runs(&self, arguments: &[OsString]) -> Option<usize> {
        let mut at = 0;
        let what = loop {
            let word = arguments.get(at)?.to_str()?;
            let begins = |option: &&str| word.len() > option.len() && word.starts_with(*option);
            if self.naming.contains(&word) || word == "--" {
                break at + 1;
            } else if self.flags.contains(&word) || self.attached.iter().any(begins) {
                at += 1;
            } else if self.valued.contains(&word) {
                at += 2;
            } else if word.starts_with('-') {
                return None;
            } else if self.sets_variables && word.contains('=') {
                at += 1;
            } else {
                break at + self.skips;
            }
        };
        let is_there = arguments.get(what).is_some_and(|word| !word.is_empty());
        is_there.then_some(what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(command: &str) -> String {
        let words: Vec<OsString> = command.split(' ').map(OsString::from).collect();
        of(&words)
    }

    #[test]
    fn a_label_is_the_program_or_the_script_that_it_runs() {
        for (command, name) in [
            ("./report.sh --all", "report.sh"),
            ("/usr/bin/mysql -psecret db", "mysql"),
            ("sh script.sh", "script.sh"),
            ("bash -e /opt/script.sh a b", "script.sh"),
            ("bash -euo pipefail script.sh", "script.sh"),
            ("bash -- script.sh", "script.sh"),
            ("python3 -u x.py", "x.py"),
            ("/usr/bin/python3.11 -W ignore x.py", "x.py"),
            ("python3 -m http.server 80", "http.server"),
            ("node --max-old-space-size=99 x.js", "x.js"),
            ("perl -w -Ilib x.pl", "x.pl"),
            ("ruby -W0 x.rb", "x.rb"),
            ("php -d a=b -f x.php", "x.php"),
            ("java -Xmx1g -Da=b -cp lib -jar app/x.jar run", "x.jar"),
            ("java -cp lib com.acme.Main", "com.acme.Main"),
            ("env X=1 -u Y ./cmd", "cmd"),
            ("env PASSWORD=x python3 y.py", "y.py"),
            ("nice -n 10 ionice -c2 sh z.sh", "z.sh"),
            ("timeout -k 5 1h ./job a", "job"),
            ("sudo -u www stdbuf -oL nohup ./job", "job"),
        ] {
            assert_eq!(label(command), name, "{command}");
        }
        assert_eq!(label(&"x".repeat(99)).len(), LONGEST);
        assert_eq!(of(&[]), "");
    }

    #[test]
    fn what_may_be_a_secret_is_in_no_label() {
        for (command, name) in [
            ("sh -c secret", "sh"),
            ("bash -ec secret", "bash"),
            ("bash -x --rcfile secret", "bash"),
            ("sh -", "sh"),
            ("sh", "sh"),
            ("sh -o", "sh"),
            ("python3 -c secret", "python3"),
            ("python3 -m", "python3"),
            ("node -e secret", "node"),
            ("node --inspect-secret secret", "node"),
            ("perl -ne secret", "perl"),
            ("ruby -e secret", "ruby"),
            ("php -r secret", "php"),
            ("java -Dpassword=secret", "java"),
            ("env PASSWORD=secret", "env"),
            ("env -S secret", "env"),
            ("timeout 5", "timeout"),
            ("sudo -p secret ./cmd", "sudo"),
        ] {
            assert_eq!(label(command), name, "{command}");
        }
    }
}

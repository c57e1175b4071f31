//! The notes below the options in `--help`. `man.rs` reads them too: an entry is indented, with two
//! spaces before its meaning.

/// Below short help.
pub(super) const SHORT: &str = "\
Try it:
  lockkeeper serve &                    a server to try all this on
  lockkeeper run hello -- echo held     runs a command while it holds a lock

Options of the connection (--servers, --root, --tls-ca, ..) stand before a command or behind it: see `lockkeeper run -h`.
`lockkeeper --help` has more, and so has `lockkeeper help locks|exit-codes|environment`.";

pub(super) const EXAMPLES: &str = "\
Examples:
  lockkeeper run nightly-report ./report.sh --all      wait for the lock, then run
  lockkeeper run --no-wait cron/backup ./backup.sh     run it, or end with 75 if it runs elsewhere
  lockkeeper run a b -- ./move.sh                      run it under several locks, without deadlocks
  lockkeeper queue nightly-report                      the holder and the waiters
  lockkeeper break nightly-report                      remove its holder's ticket, after a question
  lockkeeper elect scheduler ./scheduler.sh            run it here unless another candidate leads
  lockkeeper leader scheduler --watch                  the leader, from now on
  lockkeeper ls                                        the locks that are in use
  lockkeeper ls 'orders/*' --longer-than 5m            those of orders that are held for so long
  lockkeeper resize render 8                           eight permits for the semaphore, from now on
  lockkeeper why nightly-report                        what keeps the waiters waiting, in words
  lockkeeper journal nightly-report                    the earlier holders, and how their holds ended
  lockkeeper doctor                                    problems of all locks
  lockkeeper ui                                        all this as a live page, at http://127.0.0.1:7411/
  lockkeeper --servers redis://host:6379 ls            the same on Redis
  lockkeeper bench                                     the cost of locks on this ensemble
  lockkeeper serve                                     a server to try all this on
  lockkeeper --servers redis+setnx://host:6379 run orders/42 ./work.sh    under a plain lock of Redis

stdout is data; messages go to stderr.

Options stand before a command or behind it, and only where they do something. Each option of the connection has a variable, and a
setting in lockkeeper.toml: see `lockkeeper help environment` and `lockkeeper config --help`.

Exit codes:
   0  done (`run`: the command ended with 0)
   1  `break` removed nothing, or `doctor` found a problem
  64  wrong usage: options, lock name, connect string, what a plain lock does not have
  69  no server or store: unreachable, silent (--read-timeout), not ZooKeeper, no such chroot, or the session ended before the command ran
  74  stdout, or a file of `man --out`, cannot be written
  77  the server denies permission
 130  SIGINT ended `bench`, and 143 SIGTERM
`run` has more: see `lockkeeper run --help`";

pub(super) const RUN: &str = "\
The first word behind the options is the name of the lock. All after it is the command, with options of its own. If a line has a
`--`, names and options stand before it, and the command behind it. Several names need that, and so does a command with a `--` among
its own words. A TIME is written as 30s, 5min or 1h 30min, and a number alone is seconds.

Locks are granted in the order of asking. The lock is released when the command has ended. If you give several names, the command
runs under all of these locks. They are taken together or not at all, so no circle of waiters can form.

Without an option the command runs alone. With --shared it runs beside other --shared commands, and excludes all others. Both kinds
stand in one queue. --permits N/LIMIT takes N of the permits of a semaphore, and all its users must give the same LIMIT. A semaphore
has a queue of its own, so do not use its name for locks. --owner ID lets the command in where ID runs alone already: for example, a
tool that runs another one under the same lock. The lock is free when the last of them has ended.

Waiting: after a second a line on the terminal says who holds the lock and how many wait before you. With -v it is a log line. For it
the queue is read after 1, 2, 4, .. seconds, and then once a minute. The time counts from the holder's ticket. A `run` that would wait
for a `run` around it is refused: give both the same --owner. If it shall wait for the end of the command around it, take
LOCKKEEPER_NAME out of its environment.

Time: with --hold-at-least the lock is held for so long from its grant on, also if the command ends sooner. SIGHUP, SIGINT, SIGQUIT,
SIGTERM and a request end that. With --hold-at-most the command's process group gets SIGTERM after so long, and SIGKILL after --grace.

The command gets these variables:
  LOCKKEEPER_NAME   the name of the lock; of several locks, one a line
  LOCKKEEPER_TOKEN  the fencing token, a number that grows with every grant: let the resource refuse lower ones. It is
                    missing with --shared and --permits, which let others in; several locks have one token
  LOCKKEEPER_NODE   the name of the ticket, as `lockkeeper queue` shows it; of several locks, one a line
  LOCKKEEPER_AROUND the tickets of all `run`s around it, for a `run` inside

Loss: after the servers' last answer the lease lasts for another 0.6 to 0.9 of the session timeout. --tick makes it longer. If no
server answers, `run` sends SIGTERM to the command's process group while a sixteenth is left of the longest lease that it has seen
(or --grace, if that is less). With a session timeout of 10s that is about half a second before the lease ends. SIGKILL follows
after --grace. If the lock is lost in any other way, SIGTERM comes at once. Then `run` ends with 70, whatever the command
ended with. With the defaults SIGKILL comes 4.4 seconds after the lease has ended, when another holder may have the lock. To prevent
that, set --grace below a tenth of the session timeout: 900ms for 10s, or 3s for 40s. A command that cannot end in time, or a tool
that cannot run, may still be working when another holder has the lock. So let the resource refuse lower tokens.

Request: if another client asks for the lock back (`lockkeeper break`, Curator's Revoker), the command's process group gets SIGTERM.
The lock is released when the command has ended, and `run` ends with the command's own code.

Signals: SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1 and SIGUSR2 are passed on to the command's process group, each time. While the
tool still waits for the lock, they end it, and nothing stays in the queue.

End: a command that was not told to end has ended when its first process has. The lock is released then. Processes that are left in
its process group are named on stderr and go on without the lock. With --wait-group the lock is held until the group is gone. A
command is told to end by SIGHUP, SIGINT, SIGQUIT, SIGTERM, a request, a loss or --hold-at-most. Then the lock is held until its whole process group
is gone. When its first process has ended, the others get SIGKILL after --grace. The first process gets SIGKILL after a loss or --hold-at-most only. A
process that has left the group (`setsid`, a daemon) is not waited for and gets no signal. A process of another user in the group
(`sudo`) is waited for, and gets only the signals that the system allows.

If the tool itself is killed, the system sends SIGTERM to the first process, and nothing to the others of its group. The lock is free
when the session expires. As process 1 of a container the tool waits for orphans as an init does, so the container needs none.

Plain locks: if --servers is the URL of a plain lock (redis+setnx://host:6379), the command runs under that lock, in the form that
other programs use. No plain lock is fair. --ttl is the word for --session-timeout: the lock of a tool that was killed is free after
it, or at once where the lock ends with its connection. The lease is nine tenths of it. LOCKKEEPER_TOKEN is set if the kind has a
token, and LOCKKEEPER_NODE is not. --owner is for redis+redisson and the rows. --shared, --permits, --journal, --label and several names are refused. All kinds are in
docs/choosing.md.

Trace: a TRACEPARENT (W3C) in the environment names the trace of the work. Its trace id is written into the ticket. `lockkeeper queue
--json` shows it, and the waiter right behind has it in its log (-vv). The command inherits the variable.

Terminal: the command has a process group of its own, which gets the terminal. Ctrl-Z stops the command and the tool. A stopped tool
cannot renew its lease. If both go on after more than about half of the session timeout, the lock is lost, and the command gets
SIGTERM before it goes on. While the tool waits for the lock, Ctrl-Z does nothing.

Examples:
  lockkeeper run orders/42 ./work.sh --fast
  lockkeeper run --wait 30s deploy sh -c 'deploy --fence \"$LOCKKEEPER_TOKEN\"'
  lockkeeper run --shared prices ./report.sh             beside other readers
  lockkeeper run --permits 1/4 render ./render.sh        at most four at once, everywhere
  lockkeeper run --no-wait --hold-at-least 30s nightly ./report.sh    once, also if another host's cron is late
  lockkeeper run --owner nightly db ./all.sh             ./all.sh may run `lockkeeper run --owner nightly db ..`
  lockkeeper run accounts/4 accounts/17 -- ./move.sh     both locks, in any order of the names
  lockkeeper run --servers postgres+row://me@db/app --ttl 1min orders/42 ./work.sh    a plain lock of PostgreSQL

Exit codes: the command's own, 128+n when signal n ended it (or ended the wait for the lock), and
  64   wrong usage; also a LIMIT that is not the semaphore's, more permits than it has, and a wait for the `run` around it
  69   no server, or the session ended before the command ran
  70   the lock was lost while the command ran, or was about to be, and the command was ended; or before --hold-at-least was over
  75   not granted in time (--wait, --no-wait), or the ticket was removed while it waited
  77   the server denies permission
  124  --hold-at-most was over, and the command was ended
  126  the command cannot be executed
  127  the command is not found";

pub(super) const QUEUE: &str = "\
POS is the number of tickets before it: 0 is the next or present holder. SINCE is by the clock of the ticket's host. VALUE is what a
candidate stands for, or what another library has written into its ticket. KIND of a semaphore has the permits and the limit, as
--permits takes them: permit 1/4. If the queue is empty, a message on stderr says so (--json prints `[]`), and the exit code is 0.

On a terminal the table fits its width, or COLUMNS if that is set. Columns without any value are left out. If there is too little
room, SINCE loses its second unit, then the ends of long texts are cut, which `…` shows. Then columns are left out: SESSION first,
then NODE, OWNER, TOKEN, KIND and so on. Numbers and names of nodes are whole or not there. All is in a wider terminal, in --json,
and in a pipe (`| less -S`), where the table has every column whole. On a terminal a line above the table has the number of
holders and waiters, and of the permits that are left of a semaphore.

Fields of --json: position, node, token, holder, shared, kind (lock, read, write, candidate, permit), permits, value,
session, owner, label, trace, host, pid, since_ms (milliseconds since 1970), and of a semaphore limit and permits_left. With
--watch there is one array in each line.

On a terminal --watch is a view that is drawn again each second, with the holders in green. When it ends, the terminal is as
before. Elsewhere one table follows the other.";

pub(super) const LS: &str = "\
HOLDER is the label of the holder, or the value of a leader; of several holders it is the first. HOST and PID are those of its
process. SINCE is when it took its ticket, by the clock of its host. If nobody holds the lock, SINCE is that of the first waiter.
`(denied)` is a directory that may not be read. On a terminal the table fits, as with `lockkeeper queue`; long names lose their
beginnings.

Patterns are those of a shell, for segments of names:
  *     any characters but '/': 'orders/*' is orders/42, and neither orders nor orders/eu/42
  **    any number of segments: 'orders/**' is also orders/eu/42, and '**/42' is 42 below any name
  ?     one character but '/'
  [ab]  one of these characters; [!ab] is none of them
  orders  without such signs: this name and all below it

Only what is below the segments before the first sign is read: of 'orders/*' what is below orders, and of '*/42' everything. If
there are several patterns, one of them has to match. Options leave out what does not match all of them. --longer-than leaves out
tickets of other libraries, which have no time. --held and --longer-than leave out directories that may not be read.

Fields of --json: name, tickets, denied, kind, holders, waiting, since_ms, holder (null, or the fields of `lockkeeper queue
--json`). If the directory may not be read, denied is true and the others are null. With --watch there is one array in each line;
on a terminal it is a view that is drawn again.

Examples:
  lockkeeper ls 'orders/*' --held --sort age      the locks of orders, the oldest holder first
  lockkeeper ls --sort waiting                    the most wanted locks first
  lockkeeper ls cron --longer-than 1h --json      all that is below cron and was taken an hour ago or before";

pub(super) const RESIZE: &str = "\
Stores another limit, for all users of the semaphore. Holders keep their permits. If more are held than the new limit allows, none
is granted until enough have come back. A waiter for more than the limit ends with 64 when its turn comes. Later commands must
give the new limit: `run --permits 1/8`. With --json stdout is {\"before\":4,\"limit\":8}.

Examples:
  lockkeeper resize render 8

Exit codes:
   0  the limit is stored
  64  wrong usage; also no limit is stored under that name, or another lock has the name
  69  no server; the limit may be stored
  77  the server denies permission";

pub(super) const WHY: &str = "\
Says which process holds the lock and since when, which is next, how many wait, and what keeps the holder from going on. Of processes
on this host it also says whether they are stopped or have ended. The journal tells how long a holder has held (see `lockkeeper
journal --help`). Without it the time is that of the call for the lock.

With --json: name, holders, waiting (a number), next. A holder has the fields of `lockkeeper queue --json`, and `process`: runs,
stopped, ended, or null where it cannot be known.";

pub(super) const JOURNAL: &str = "\
The journal has only holds of clients that write one: `lockkeeper run --journal 100`, KeeperBuilder::journal. The oldest hold is the
first. The journal is a node below the root's name with -journal behind it (/locks-journal/NAME), which stays until it is removed.

ENDED is one of these:
  released        the holder released the lock
  dropped         the program dropped its guard without waiting for the release, or had kept its place for tasks of its own
  lost: ..        the holder lost the lock, for this reason
  holds           its ticket is in the queue
  ending          its ticket went a moment ago
  without a word  no end was written: the process died, was cut off, could not write, or still has its lost guard

HELD of a lost hold lasts until the lost guard is dropped.

Fields of --json: token (of a guest: its host's), ticket (its own, as `queue` shows it in TOKEN), node, kind, owner, label, host, pid,
since_ms (of the grant, milliseconds since 1970), waited_ms, held_ms, ending (released, dropped, lost, a word of a later version, or
null), why (the reason of a loss), holds.";

pub(super) const DOCTOR: &str = "\
  deadlock  owners (--owner, Owner::named) that wait for each other, in any locks and processes; it resolves if a wait has a
            time limit, or if the process that holds for an owner is not the one that waits for it
  orphan    a ticket whose session no server knows; needs the four-letter word `dump` (4lw.commands.whitelist) of every server;
            not searched for with --tls-ca, because the word is sent without TLS
  paused    the process of a holder or waiter is stopped; only processes of this host are checked
  dead      the same, and the process has ended: the ticket goes when its session expires; wrong if a container or another machine
            has the same host name as this one
  mixed     tickets in one queue that do not see each other: of other recipes or libraries
  numbers   a directory that has given nearly all of its 2147483647 numbers
  many      a session that holds more than --many locks
  root      the root was given (--root) and does not exist: it is mistyped, or no lock was taken below it yet
  setting   a setting of the store (Redis, PostgreSQL) that weakens the promises: what it costs, and what to set
  open      a lock's directory, limit or journal whose access list allows more than --acl does (auth::cdrwa if only --auth is
            given): the identities that it lets in can forge the lock; users are compared by their names

Reads every queue below the root twice, some at a time. Directories that it may not read are named on stderr, and so is the reason
for not searching orphans. Neither is a finding. Fields of --json: finding, locks, why.

Exit codes:
   0  no problem was found
   1  problems were found: each finding is a line
  64  wrong usage
  69  no server
  77  the server denies permission";

pub(super) const INIT: &str = "\
A store that has started again may have lost what it answered, and an empty one may have been emptied. So it gives nobody a session
for 35 seconds: clients of before may still think that they hold locks. `init` says that an empty store is new and has no such
clients. It changes nothing in a store that is in use. Never call it in a script that also runs after a failure.

ZooKeeper keeps what it has committed and needs no `init`.

Example:
  lockkeeper init --servers redis://host:6379

Exit codes:
   0  the store serves
  64  wrong usage
  69  no store";

pub(super) const BREAK: &str = "\
Shows the ticket and asks on the terminal before it is removed. --yes does not ask, and is needed where stdin is no
terminal. Without --node it is the first ticket of the queue, which is the holder's if the lock is held.

The holder is asked first, and has --grace to release. A command under `lockkeeper run` gets SIGTERM. Other programs learn of the
request if they listen (Guard::revoked, Curator's revocable locks). If the ticket is still there after --grace, it is removed. Then
the holder learns of its loss within a tenth of its session timeout. Until then it may still be working while the next one is let
in. To prevent harm, stop its process first, or let the resource refuse lower tokens. Candidates and waiters are not asked. A
waiter's call fails as soon as the ticket before it has left. Only the ticket that was shown is removed, never another one
of the same name.

With --json stdout is {\"removed\": true} or {\"removed\": false}.

Examples:
  lockkeeper break nightly-report                                  the holder, after a question
  lockkeeper break nightly-report --node lock-0000000007 --yes     this ticket, without a question
  lockkeeper break nightly-report --grace 10min                    the holder may finish its work

Exit codes:
   0  removed
   1  nothing was removed: the queue is empty, the ticket has gone meanwhile, or the answer was no
  64  wrong usage; also stdin is no terminal and --yes is not given
  69  no server
  77  the server denies permission";

pub(super) const ELECT: &str = "\
Stands in the election, in the order of asking, and runs the command when it leads. When the command has ended, it resigns. All else
is as with `lockkeeper run`: variables, loss, signals and exit codes; see `lockkeeper run --help`.

Examples:
  lockkeeper elect scheduler ./scheduler.sh
  lockkeeper elect --id 10.0.0.7:80 api ./serve.sh       `lockkeeper leader api` shows 10.0.0.7:80 while it serves";

pub(super) const LEADER: &str = "\
Prints one line: the VALUE that the leader stood with or has proclaimed since, its fencing TOKEN, its NODE, LABEL, HOST and PID.
If there is no leader, a message on stderr says so (--json prints `null`), and the exit code is 0.

With --watch each leader, and each new value of the same leader, is a line of its own, without a head, in order and as soon as
it is known. If a session ends, it goes on with the next one. SIGINT, SIGTERM, SIGHUP or SIGQUIT ends it, with 0. The election is
made if it does not exist. If leaders follow each other faster than the servers can be asked, some are not shown.

Fields of --json: value, token, node, session, label, host, pid.";

pub(super) const SERVE: &str = "\
Not for production: everything is in memory, there is one server, and nothing is checked as by an ensemble. There is no TLS; a
warning on stderr says so if it listens beyond this machine. As with ZooKeeper (maxClientCnxns) one address has 60 connections at
most. The first line on stdout has the address: `listening on 127.0.0.1:2181`, with --json {\"listen\":\"127.0.0.1:2181\"}.
SIGINT, SIGTERM, SIGHUP or SIGQUIT ends it, with 0.

Examples:
  lockkeeper serve &
  lockkeeper run hello echo held
  lockkeeper serve --listen 127.0.0.1:0                any free port";

pub(super) const COMPLETIONS: &str = "\
The script goes to stdout, and no server is asked. It knows all subcommands and options, not the names of your locks.

Examples:
  lockkeeper completions bash > ~/.local/share/bash-completion/completions/lockkeeper
  lockkeeper completions zsh > ~/.zfunc/_lockkeeper       with `fpath+=~/.zfunc` before `compinit` in ~/.zshrc
  lockkeeper completions fish > ~/.config/fish/completions/lockkeeper.fish
  lockkeeper completions elvish >> ~/.config/elvish/rc.elv
  lockkeeper completions powershell >> $PROFILE           in PowerShell";

pub(super) const MAN: &str = "\
The page of the tool goes to stdout. With --out it becomes a file in a folder, and so does a page for each subcommand. No
server is asked.

Examples:
  lockkeeper man | man -l -                              reads it at once
  lockkeeper man --out ~/.local/share/man/man1           afterwards: `man lockkeeper`, `man lockkeeper-run`";

pub(super) const CONFIG: &str = "\
Prints each option of the connection, its value, and where the value comes from: an option, a variable, the line of a file, or the
default. It asks no server. A password is not shown, nor is the secret of a credential.

The first of these wins: the option, its variable, its setting in a file, the default. The settings have the names of the options:

  root            is --root, and so on
  require_tls     and the other flags are true or false; LOCKKEEPER_REQUIRE_TLS=0 unsets one that a file sets
  zk              and config have no setting

The files are lockkeeper/lockkeeper.toml in $XDG_CONFIG_HOME (or ~/.config), and then in /etc. Each setting is taken from the first
file that has it. --config FILE or LOCKKEEPER_CONFIG=FILE reads that file alone, and /dev/null none. An unknown setting, a wrong type
and a file that cannot be read are wrong usage.

Settings belong to the servers of their file. If an option or a variable chooses servers that have nothing for a setting, as Redis has
no ticks, it is left out, and `lockkeeper config` says so. Only require_tls is never left out. Beside servers in the same file,
such a setting is wrong usage.

Fields of --json: options (each with option, value, from, and with variable, or file and line), left_out (option, why, file, line),
files (that were read).

Examples:
  lockkeeper config
  lockkeeper config --config /dev/null --json    what is in force without a file

Exit codes:
   0  done
  64  wrong usage";

pub(super) const HELP: &str = "\
Without a word it is the help of the tool. `locks` explains the kinds of locks and their names, `exit-codes` has all exit codes, and
`environment` has all variables.

Examples:
  lockkeeper help run
  lockkeeper help environment";

pub(crate) const LOCKS: &str = "\
A lock is a name: one or more words separated by '/', for example orders/42. It needs no setting up. All who use the same servers and
the same --root share it.

With a queue (ZooKeeper, Redis, PostgreSQL), in the order of asking:
  lockkeeper run NAME CMD                     a lock: one holder
  lockkeeper run --shared NAME CMD            a reader: beside other readers, and no others
  lockkeeper run --permits 1/4 NAME CMD       a semaphore: at most four at once
  lockkeeper run --owner ID NAME CMD          reentrant: the same owner is let in again
  lockkeeper run A B -- CMD                   several locks, together or not at all
  lockkeeper elect NAME CMD                   an election: the holder leads, and shows a value

Every grant has a fencing token (LOCKKEEPER_TOKEN), a number that grows. Let the resource refuse lower ones: nothing else stops a
holder that has lost its lock and does not know it yet.

Plain locks (redis+setnx://host:6379, postgres+row://user@host/db, ..) are for `run` alone, in the form that other programs use. They
have no queue, and are not fair.

A node of ZooKeeper, Redis or PostgreSQL that has the lock's queue is below --root, which is /locks: `lockkeeper ls` lists them.";

pub(crate) const EXIT_CODES: &str = "\
`run` and `elect` end with the exit code of the command, or with 128+n if signal n ended it. Otherwise:

    0  done
    1  `break` removed nothing, or `doctor` found something wrong
   64  wrong usage: options, settings, a lock's name, the connect string, what the store has nothing for
   69  no server or store, one that is not usable for the lock, or the session ended before the command ran
   70  the lock was lost while the command ran
   74  stdout, or a file of `man --out`, cannot be written
   75  not granted in time, or the ticket was removed while it waited
   77  no permission
  124  --hold-at-most ended the command
  126  the command cannot be executed
  127  the command is not found
  130  SIGINT ended `bench`, and 143 SIGTERM";

pub(crate) const ENVIRONMENT: &str = "\
Each option of the connection has a variable. The option wins, then the variable, then a setting in lockkeeper.toml (see `lockkeeper
config --help`). `lockkeeper config` prints what is in force. A flag is unset by 0, false or nothing.

";

pub(crate) const OTHER_VARIABLES: &str = "
  LOCKKEEPER_JOURNAL          --journal of `run` and `elect`
  RUST_LOG                    the log on stderr, in place of --verbose: lockkeeper=debug
  TRACEPARENT                 the trace of the work (W3C), which is written into the ticket
  XDG_CONFIG_HOME             the folder of lockkeeper/lockkeeper.toml, in place of ~/.config

The command of `run` and `elect` gets:
  LOCKKEEPER_NAME             the name of the lock; of several locks, one a line
  LOCKKEEPER_NODE             the name of the ticket; not with plain locks
  LOCKKEEPER_TOKEN            the fencing token; not with --shared, --permits, and plain locks without a token
  LOCKKEEPER_AROUND           the tickets of all `run`s around it, for a `run` inside";

#[cfg(feature = "ui")]
pub(super) const UI: &str = "\
Serves a page with all locks below the root: holder, kind, age and waiters, one queue with its journal, who waits for whom, sessions,
and what `lockkeeper doctor` finds. It is live, and only reads. The first line on stdout has its address: `listening on
http://127.0.0.1:7411/`, with --json {\"listen\":\"127.0.0.1:7411\"}. SIGINT, SIGTERM, SIGHUP or SIGQUIT ends it, with 0.

One reader asks the servers, whatever the number of viewers. It sends at most --requests a second, on average, and a tenth of that
while nobody looks. With many locks a round of all queues takes longer, and the page says how long. The lock that you look at, and
queues that change their length, are read first.

Every user of this machine can open the page. With --token-file only those come in who know the token: browsers ask for it once,
scripts send `Authorization: Bearer TOKEN`. With --proxy-header the proxy decides: it must set the header itself, and nobody else may
reach the address. Other addresses than those of this machine need one of the two. A browser that comes by a name needs that name in
--host; localhost and IP addresses are known.

With --allow-break the page can ask a holder to release, and remove its ticket after a grace, as `lockkeeper break` does. It asks you
first.

The same as JSON: /api/locks, /api/queue?name=NAME, /api/journal?name=NAME, /api/waits, /api/sessions, /api/doctor. For Prometheus:
/metrics, with the locks that --metrics chooses, by patterns as `lockkeeper ls` has them. docs/ui.md has all fields.

Examples:
  lockkeeper ui
  lockkeeper ui --allow-break --token-file /etc/lockkeeper/token
  lockkeeper ui --listen 0.0.0.0:7411 --token-file /etc/lockkeeper/token --host locks.example.com
  lockkeeper ui --metrics 'orders/*' --metrics scheduler
  curl -s 'http://127.0.0.1:7411/api/queue?name=orders/42'

Exit codes:
   0  a signal ended it
  64  wrong usage; also an address beyond this machine without --token-file or --proxy-header
  69  no server, or the address cannot be listened on
  77  the server denies permission";

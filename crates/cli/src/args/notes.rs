//! What stands below the options in `--help`. `man.rs` reads it too: an entry is indented, with two
//! spaces before its meaning.

pub(super) const EXAMPLES: &str = "\
Examples:
  lockkeeper run nightly-report -- ./report.sh         wait for the lock, then run
  lockkeeper run --no-wait cron/backup -- ./backup.sh  run it, or end with 75 if somebody else does
  lockkeeper run a b -- ./move.sh                      run it under several locks, without deadlocks
  lockkeeper queue nightly-report                      who holds it, who waits
  lockkeeper break nightly-report                      remove its holder's ticket, after a question
  lockkeeper elect scheduler -- ./scheduler.sh         run it here if nobody else leads
  lockkeeper leader scheduler --watch                  who leads, from now on
  lockkeeper ls                                        which locks are in use
  lockkeeper why nightly-report                        who keeps the others waiting, in words
  lockkeeper journal nightly-report                    who held it before, and how that ended
  lockkeeper doctor                                    what is wrong with the locks
  lockkeeper bench                                     what locks cost on this ensemble
  lockkeeper serve                                     a server to try all this on

stdout is data, stderr is talk.

Exit codes:
   0  done (`run`: the command ended with 0)
   1  `break` removed nothing, or `doctor` found something wrong
  64  wrong usage: options, lock name, connect string
  69  no server: unreachable, silent (--read-timeout), not ZooKeeper, no such chroot, or the session ended before the command ran
  74  stdout, or a file of `man --out`, cannot be written
  77  the server denies permission
 130  INT ended `bench`, and 143 TERM
`run` has more: see `lockkeeper run --help`";

pub(super) const RUN: &str = "\
The lock is granted in the order of asking, and given back when the command has ended. Names may be followed by more:
then the command runs under all of these locks, taken at once or not at all, so that nobody can wait in a circle.

Without an option the command runs alone. --shared lets all others with --shared run beside it, and excludes those
without; both kinds stand in one queue. --permits N/LIMIT takes N of the permits of a semaphore, all users of which must
say the same LIMIT. It has a queue of its own, so do not use the name for locks. --owner ID lets the command in where ID
runs alone already: a tool that runs another one under the same lock, say. The lock is free when the last of them ended.

The command sees
  LOCKKEEPER_NAME   the name of the lock; of several, one a line
  LOCKKEEPER_TOKEN  the fencing token, a number that grows with every grant: let the resource refuse lower ones. Not
                    there with --shared and --permits, which let others in; one for all of several locks
  LOCKKEEPER_NODE   the name of our ticket, as `lockkeeper queue` shows it; of several locks, one a line

Loss: the lock is ours for 0.6 to 0.9 of the session timeout after the servers last answered: that is the lease. --tick makes
it longer. When no server answers, and only a sixteenth is left of the longest lease that the tool has seen (or --grace, if
that is less), the command's process group gets TERM, and KILL after --grace: TERM comes about half a second before the
lease ends, of a session timeout of 10s. When the lock is lost in any other way, TERM comes at once. `run` then
ends with 70, whatever the command ended with. With the defaults KILL comes 4.4 seconds after the lease has ended, when
others may have the lock. If that must not be, choose a --grace below a tenth of the session timeout: 900ms of 10s, or 3s
of 40s. A command that cannot end in time, or a tool that cannot run, may still be working when others have the lock: let
the resource refuse lower tokens.

Request: when somebody asks for the lock back (`lockkeeper break`, Curator's Revoker), the command's process group gets TERM.
The lock is given back when the command has ended, and `run` ends with the command's own code.

Signals: HUP, INT, QUIT, TERM, USR1 and USR2 are passed on to the command's process group, each time. While the tool still
waits for the lock they end it, and nothing stays in the queue.

End: a command that nobody told to end has ended when its first process has. The lock is given back then; what it left running in
its process group is named on stderr and goes on without the lock, unless --wait-group keeps the lock until the group is gone. A
command that was told to end (HUP, INT, QUIT, TERM, a request, a loss) has ended when its whole process group is gone: the lock is
held until then. When its first process has ended, the rest has --grace to follow and gets KILL then; the first process itself gets
KILL after a loss only. A process that has left the group (`setsid`, a daemon) is not waited for and gets no signal. One of another
user in the group (`sudo`) is waited for, and gets only the signals that the system allows.

If the tool itself is killed, the first process gets TERM from the system, the others of its group get nothing, and the lock is free
when the session times out. As process 1 of a container the tool waits for orphans as an init does, so none is needed.

Trace: a TRACEPARENT (W3C) in the environment names the trace that the work belongs to. The ticket says its trace id, which
`lockkeeper queue --json` shows, and whoever waits right behind it has it in the log (-vv). The command inherits the variable.

Terminal: the command has a process group of its own, which gets the terminal. Ctrl-Z stops the command and the tool;
a stopped tool cannot renew its lease, so when both go on after more than about half of the session timeout the lock is
lost, and the command gets TERM before it goes on. While the tool waits for the lock, Ctrl-Z does nothing.

Examples:
  lockkeeper run orders/42 -- ./work.sh
  lockkeeper run --wait 30s deploy -- sh -c 'deploy --fence \"$LOCKKEEPER_TOKEN\"'
  lockkeeper run --shared prices -- ./report.sh          beside other readers
  lockkeeper run --permits 1/4 render -- ./render.sh     at most four at once, everywhere
  lockkeeper run --owner nightly db -- ./all.sh          ./all.sh may run `lockkeeper run --owner nightly db -- ..`
  lockkeeper run accounts/4 accounts/17 -- ./move.sh     both, whoever asks for them in whatever order

Exit codes: the command's own, 128+n when signal n ended it (or ended the wait for the lock), and
  64   wrong usage; also a LIMIT that is not the semaphore's, and more permits than it has
  69   no server, or the session ended before the command ran
  70   the lock was lost while the command ran, or nearly so and the command was ended
  75   not granted in time (--wait, --no-wait), or somebody removed our ticket while we waited
  77   the server denies permission
  126  the command cannot be executed
  127  the command is not found";

pub(super) const QUEUE: &str = "\
POS is the number of tickets before it: 0 is the next or present holder. SINCE is by the clock of the ticket's host.
An empty queue is said on stderr (with --json it is `[]`) and ends with 0.

Fields of --json: position, node, token, holder, shared, kind (lock, read, write, candidate, permit), permits, value,
session, owner, label, trace, host, pid, since_ms (milliseconds since 1970). With --watch there is one array in each line.

With --watch, on a terminal, it is a view that is drawn again each second, with the holders in green, and the terminal is as it
was when it ends; elsewhere one table follows the other.";

pub(super) const LS: &str = "\
Fields of --json: name, tickets (null, and `denied` in the table, where we may not read the directory). With --watch there is one array in each line; on a terminal it is a view that is drawn again.";

pub(super) const WHY: &str = "\
Says who holds the lock and since when, who is next, how many wait, and what keeps the holder from going on: of processes on this
host also whether they are stopped or have ended. How long a holder holds is known from the journal (see `lockkeeper journal
--help`); without one it is said when it asked for the lock.

With --json: name, holders, waiting (a number), next. A holder has the fields of `lockkeeper queue --json`, and `process`: runs,
stopped, ended, or null where it cannot be known.";

pub(super) const JOURNAL: &str = "\
Only holds of clients that write one are in it: `lockkeeper run --journal 100`, KeeperBuilder::journal. The oldest is the
first. It is a node below the root's name with -journal behind it (/locks-journal/NAME), which stays until it is removed.

ENDED is `released`, `dropped` (the program ended its hold without asking how that went, or had kept its place for others of its
own), `lost: ..` with the reason, `holds` while its ticket is in the queue, `ending` if it went a moment ago, or `without a word`: nobody
has written how it ended, because its process died, was cut off, could not write, or has not given its lost guard up yet. HELD of a
lost hold lasts until that.

Fields of --json: token (of a guest: its host's), ticket (its own, as `queue` shows it in TOKEN), node, kind, owner, label, host, pid,
since_ms (of the grant, milliseconds since 1970), waited_ms, held_ms, ending (released, dropped, lost, a word of a later version, or
null), why (it was lost), holds.";

pub(super) const DOCTOR: &str = "\
  deadlock  owners (--owner, Owner::named) that wait for each other, in whatever locks and processes; it resolves if a wait has a
            time limit, or if whoever holds for an owner is not the one that waits for it
  orphan    a ticket whose session no server knows; needs the four-letter word `dump` (4lw.commands.whitelist) of every server;
            not looked for with --tls-ca, because the word is sent without TLS
  paused    the process of a holder or waiter is stopped; only processes of this host are looked at
  dead      the same, and it has ended: the ticket goes when its session times out; wrong where a container or another machine has the
            same host name as this one
  mixed     tickets in one queue that do not see each other: of other recipes or libraries
  numbers   a directory that has given nearly all of its 2147483647 numbers
  many      a session that holds more than --many locks
  open      a lock's directory, limit or journal whose access list lets others in than --acl does (auth::cdrwa if only --auth is
            given): whoever they are can forge the lock; users are compared by their names

Reads every queue below the root twice, some at a time. What it may not read, and why it looked for no orphans, it says on
stderr; that is no finding. Fields of --json: finding, locks, why.

Exit codes:
   0  nothing is wrong
   1  something is: each finding is a line
  64  wrong usage
  69  no server
  77  the server denies permission";

pub(super) const BREAK: &str = "\
Shows the ticket and asks on the terminal before it is removed; --yes does not ask, and must be given where stdin is no
terminal. Without --node it is the first of the queue: the holder, if anybody holds the lock.

The holder is asked first, and has --grace to release: a command under `lockkeeper run` gets TERM, and other programs hear
of it if they listen (Guard::revoked, Curator's revocable locks). If its ticket is still there then, it is removed. From then on the holder
learns of its loss within a tenth of its session timeout, and may be working until then while the next one is let in: stop its
process first if it is to do no harm, or let the resource refuse lower tokens. Candidates and those who wait are not asked. A
waiter's call fails, as soon as whoever it waits for has left. Only the ticket that was shown is removed, never another one
that stands under its name by then.

With --json stdout is {\"removed\": true} or {\"removed\": false}.

Examples:
  lockkeeper break nightly-report                                  the holder, after a question
  lockkeeper break nightly-report --node lock-0000000007 --yes     this one, without
  lockkeeper break nightly-report --grace 10min                    the holder may finish what it does

Exit codes:
   0  removed
   1  nothing was removed: nobody is there, it has gone meanwhile, or the answer was no
  64  wrong usage; also stdin is no terminal and --yes is not given
  69  no server
  77  the server denies permission";

pub(super) const ELECT: &str = "\
Stands in the election, in the order of asking, and runs the command when we lead. When it has ended we resign. Everything
else is as with `lockkeeper run`: what the command sees, loss, signals and exit codes; see `lockkeeper run --help`.

Examples:
  lockkeeper elect scheduler -- ./scheduler.sh
  lockkeeper elect --id 10.0.0.7:80 api -- ./serve.sh    `lockkeeper leader api` shows 10.0.0.7:80 while it serves";

pub(super) const LEADER: &str = "\
One line: the VALUE that the leader stood with or has proclaimed since, its fencing TOKEN, its NODE, LABEL, HOST and PID.
That nobody leads is said on stderr (with --json it is `null`) and ends with 0.

With --watch each leader, and each new value of the same one, is a line of its own, without a head, in order and as soon as
it is known; it goes on with the next session when one ends, and INT, TERM, HUP or QUIT end it, with 0. The election is made if it does
not exist. Of leaders that follow each other faster than the servers can be asked, some are not shown.

Fields of --json: value, token, node, session, label, host, pid.";

pub(super) const SERVE: &str = "\
Not for production: everything is in memory, there is one server, and nothing is checked as a real ensemble would. There is no TLS:
listening beyond this machine is said on stderr. As with ZooKeeper (maxClientCnxns) one address has 60 connections at most.
The first line on stdout says where it listens: `listening on 127.0.0.1:2181`, with --json {\"listen\":\"127.0.0.1:2181\"}.
INT, TERM, HUP or QUIT ends it, with 0.

Examples:
  lockkeeper serve &
  lockkeeper run hello -- echo held
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
  lockkeeper man --out ~/.local/share/man/man1           from then on: `man lockkeeper`, `man lockkeeper-run`";

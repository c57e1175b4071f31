#!/usr/bin/env bash
# usage: tests/mutants/run.sh [--share N | PATCH...]     all of tests/mutants/NN-*.patch when none is named
#
# With --share N every Nth patch is tried, beginning with another one whenever `src` changes; that all of them still apply is
# looked at even so.
#
# Proves that the tests still catch known bugs. Each patch puts one bug back; its first lines name the test that must
# fail then:
#     # test: <name filter>        required
#     # also: <name filter>, ...   optional: more tests, each of which must fail too
#     # target: lib | bin | it     optional: unit tests of one, or the integration suite (default: it)
#     # on: zookeeper | ensemble   optional: the server that the integration suite runs on (default: embedded)
# Each named test must run and pass on the tree as it is, and run and fail on the patched one. A patch that does not
# apply, a mutant that does not build, and a test that does not run are failures, not catches. Works on a copy: the
# tree is never changed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
repository=$(cd "$here/../.." && pwd)
cd "$repository"
unset LOCKKEEPER_TEST_ON LOCKKEEPER_CASES LOCKKEEPER_SOAK RUST_LOG

patches=()
share=1
if [ "${1:-}" = --share ]; then
    share=$2
    shift 2
fi
if [ $# -gt 0 ]; then
    for name in "$@"; do patches+=("$here/$(basename "$name" .patch).patch"); done
else
    shopt -s nullglob
    patches=("$here"/[0-9]*.patch)
fi
[ ${#patches[@]} -gt 0 ] || { echo "error: there are no mutants in $here" >&2; exit 1; }

# All mutants are built in turn in the same copy, so that only what a patch touches is built again.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$repository/target}/mutants"
export CARGO_TERM_COLOR=never RUST_BACKTRACE=0
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
tree=$copy/tree
mkdir "$tree"
# -m: files are as new as the copy, or cargo would take them for those of an earlier run.
git ls-files -z --cached --others --exclude-standard |
    while IFS= read -r -d '' file; do [ ! -e "$file" ] || printf '%s\0' "$file"; done |
    tar --null -T - -c | tar -x -m -C "$tree"

for patch in "${patches[@]}"; do
    (cd "$tree" && patch -p1 -F0 --dry-run -s <"$patch") >/dev/null || { echo "error: $patch does not apply" >&2; exit 1; }
done
if [ "$share" -gt 1 ]; then
    first=$((0x$(git rev-parse --short=7 HEAD:src 2>/dev/null || echo 0) % share)) mine=()
    for ((at = first; at < ${#patches[@]}; at += share)); do mine+=("${patches[at]}"); done
    echo "every ${share}th of ${#patches[@]} mutants, from number $((first + 1)) on"
    patches=("${mine[@]}")
fi

header() { sed -n "1,10s/^# $2: *//p" "$1" | head -n 1; }

# The filters of all tests that must catch a mutant, one a line.
tests_of() { { header "$1" test; sed -n '1,10s/^# also: *//p' "$1" | tr ',' '\n'; } | sed 's/^ *//; s/ *$//; /^$/d'; }

target_of() {
    case "$(header "$1" target)" in
        lib) echo "--lib" ;;
        bin) echo "--bin lockkeeper" ;;
        it | '') echo "--test it" ;;
        *) echo "error: $1: the target is lib, bin or it" >&2; return 1 ;;
    esac
}

# The server that a mutant's tests run on.
server_of() { local on; on=$(header "$1" on); echo "${on:-embedded}"; }

# Runs one filter on a server and sets: built, passed, failed, code.
try() { # filter target...
    local filter=$1
    shift
    built=no passed=0 failed=0 code=0
    (cd "$tree" && cargo test --all-features "$@" --no-run) >"$copy/build" 2>&1 || return 0
    built=yes
    # The results are on stdout; panics go to stderr and would tear them apart.
    (cd "$tree" && LOCKKEEPER_TEST_ON=$server exec timeout 300 cargo test --all-features "$@" -- "$filter") \
        >"$copy/out" 2>"$copy/err" || code=$?
    local result
    result=$(sed -nE 's/^test result: .* ([0-9]+) passed; ([0-9]+) failed.*/\1 \2/p' "$copy/out")
    [ -z "$result" ] || read -r passed failed <<<"$result"
}

rows=()
bad=0
row() { # name verdict detail
    rows+=("$(printf '%-44s %-10s %s' "$1" "$2" "$3")")
    echo "${rows[-1]}"
}

wrong() { # name verdict detail file
    row "$1" "$2" "$3"
    bad=$((bad + 1))
    tail -n 30 "$4" | sed 's/^/    | /'
}

echo "== as it is"
declare -A sound
for patch in "${patches[@]}"; do
    [ -e "$patch" ] || { echo "error: there is no $patch" >&2; exit 1; }
    [ -n "$(header "$patch" test)" ] || { echo "error: $patch does not say which test catches it" >&2; exit 1; }
    target=$(target_of "$patch") server=$(server_of "$patch")
    while read -r filter; do
        key="$server $target $filter"
        [ -z "${sound[$key]:-}" ] || continue
        # shellcheck disable=SC2086 # the target is two words
        try "$filter" $target </dev/null
        sound[$key]=no
        if [ "$built" = no ]; then
            cat "$copy/build" >&2
            echo "error: the tree does not build" >&2
            exit 1
        elif [ $((passed + failed)) = 0 ]; then
            wrong "$filter" "not run" "no test has this name" "$copy/out"
        elif [ "$code" != 0 ] || [ "$failed" != 0 ]; then
            wrong "$filter" "fails" "without any bug" "$copy/out"
        else
            sound[$key]=yes
            row "$filter" "passes" "$passed run"
        fi
    done < <(tests_of "$patch")
done

echo "== with the bug"
for patch in "${patches[@]}"; do
    name=$(basename "$patch" .patch)
    target=$(target_of "$patch") server=$(server_of "$patch")
    if ! (cd "$tree" && patch -p1 -F0 --dry-run -s <"$patch") >"$copy/patch" 2>&1; then
        wrong "$name" "no fit" "the patch does not apply" "$copy/patch"
        continue
    fi
    (cd "$tree" && patch -p1 -F0 -s --no-backup-if-mismatch <"$patch")
    while read -r filter; do
        [ "${sound["$server $target $filter"]}" = yes ] || { row "$name" "not tried" "$filter proves nothing"; continue; }
        # shellcheck disable=SC2086
        try "$filter" $target </dev/null
        if [ "$built" = no ]; then
            wrong "$name" "no build" "the mutant does not build" "$copy/build"
            break
        elif [ "$failed" -gt 0 ] && [ "$code" != 0 ]; then
            row "$name" "caught" "$filter"
        elif [ "$code" = 124 ] && grep -Eq '^running [1-9]' "$copy/out"; then
            row "$name" "caught" "$filter (hangs)"
        elif [ "$passed" -gt 0 ] && [ "$code" = 0 ]; then
            wrong "$name" "SURVIVED" "$filter" "$copy/out"
        else
            wrong "$name" "unclear" "$filter ended with $code and no result" "$copy/err"
        fi
    done < <(tests_of "$patch")
    (cd "$tree" && patch -p1 -F0 -s -R --no-backup-if-mismatch <"$patch")
done

echo
printf '%-44s %-10s %s\n' "mutant or test" verdict ""
printf '%s\n' "${rows[@]}"
[ "$bad" = 0 ] || { echo "$bad of these are not as they should be"; exit 1; }
echo "all ${#patches[@]} mutants are caught"

#!/usr/bin/env bash
# Runs benchmarks and records them in docs/bench with all that a figure needs to mean something: the date, machine,
# commit and command. The file is input for benchstat.
#
#   scripts/bench.sh [package...]           default: every package that has benchmarks
#   BENCH=Lookup COUNT=10 BENCHTIME=2s scripts/bench.sh ./internal/interval
set -euo pipefail
cd "$(dirname "$0")/.."

packages=("$@")
if ((${#packages[@]} == 0)); then
	while IFS= read -r folder; do
		packages+=("./$folder")
	done < <(git grep -lE '^func Benchmark[A-Z0-9_]' -- '*_test.go' | xargs -r -n1 dirname | sort -u)
fi
if ((${#packages[@]} == 0)); then
	echo "bench: no package has benchmarks" >&2
	exit 1
fi
command=(go test -run '^$' -bench "${BENCH:-.}" -benchmem -count "${COUNT:-6}" -timeout 2h)
[[ -z ${BENCHTIME:-} ]] || command+=(-benchtime "$BENCHTIME")
command+=("${packages[@]}")

commit=$(git rev-parse --short=12 HEAD)
[[ -z $(git status --porcelain --untracked-files=no) ]] || commit+=-dirty
memory=$(awk '/^MemTotal:/ { printf "%.0f GiB", $2 / 1048576 }' /proc/meminfo 2>/dev/null || echo unknown)
processor=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo 2>/dev/null | head -n 1)

mkdir -p docs/bench
record=docs/bench/$(date -u +%Y-%m-%dT%H%M%SZ)-$commit.txt
# What is not finished has another name: a run that was interrupted leaves no record.
trap 'rm -f "$record.part"' EXIT
{
	echo "date: $(date -u +%Y-%m-%dT%H:%M:%SZ)"
	echo "machine: $(getconf _NPROCESSORS_ONLN) x ${processor:-unknown processor}, $memory, $(uname -sr)"
	echo "load: $(cut -d ' ' -f 1-3 /proc/loadavg 2>/dev/null || echo unknown) (1, 5 and 15 minutes, at the start)"
	echo "commit: $commit"
	echo "go: $(go env GOVERSION)"
	printf 'command:'
	printf ' %q' "${command[@]}"
	printf '\n\n'
} | tee "$record.part"
"${command[@]}" 2>&1 | tee -a "$record.part"
if ! grep -q '^Benchmark' "$record.part"; then
	echo "bench: no benchmark matches ${BENCH:-.} in ${packages[*]}" >&2
	exit 1
fi
mv "$record.part" "$record"
echo "bench: recorded in $record"

#!/usr/bin/env bash
# Installs what `make test` needs and does not find: PostgreSQL with PgBouncer, MariaDB, and a C compiler for the race detector.
# It uses Debian's packages, as root or through sudo; elsewhere it says what to install and fails.
# Engines for which SHARDWAY_TEST_POSTGRES or SHARDWAY_TEST_MYSQL names a server, or which SHARDWAY_TEST_REQUIRE
# leaves out, are not installed. For mongodb it builds the module in internal/dbtest/ferretdb, so that no test waits
# for that.
set -euo pipefail

PATH=$PATH:/usr/sbin:/usr/local/sbin
required=,${SHARDWAY_TEST_REQUIRE-postgres,mysql,mongodb},
required=${required// /}

have() { command -v "$1" >/dev/null 2>&1; }

have_postgres() {
	[[ $required != *,postgres,* || -n ${SHARDWAY_TEST_POSTGRES:-} ]] && return
	have initdb && have postgres && return
	compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null
}

have_pgbouncer() {
	[[ $required != *,postgres,* ]] && return
	have pgbouncer
}

have_mariadb() {
	[[ $required != *,mysql,* || -n ${SHARDWAY_TEST_MYSQL:-} ]] && return
	have mariadbd && have mariadb-install-db
}

have_compiler() {
	have "${CC:-gcc}" || return
	[[ -n ${CC:-} ]] || echo '#include <stdlib.h>' | gcc -E - >/dev/null 2>&1
}

build_ferretdb() {
	[[ $required != *,mongodb,* || -n ${SHARDWAY_TEST_MONGODB:-} ]] && return
	(cd "$(dirname "${BASH_SOURCE[0]}")/../internal/dbtest/ferretdb" && GOWORK=off CGO_ENABLED=0 go build -o /dev/null .)
}

build_ferretdb
packages=()
have make || packages+=(make)
have_compiler || packages+=(gcc libc6-dev)
have_postgres || packages+=(postgresql)
have_pgbouncer || packages+=(pgbouncer)
have_mariadb || packages+=(mariadb-server)
if ((${#packages[@]} == 0)); then
	exit 0
fi

if ! have apt-get; then
	echo "test-deps: the tests need these Debian packages or their like here: ${packages[*]}" >&2
	echo "test-deps: or servers of your own, see the comment in internal/dbtest/doc.go" >&2
	exit 1
fi
as_root=(env DEBIAN_FRONTEND=noninteractive)
if ((EUID != 0)); then
	if ! have sudo; then
		echo "test-deps: run this as root: apt-get install -y --no-install-recommends ${packages[*]}" >&2
		exit 1
	fi
	as_root=(sudo "${as_root[@]}")
	[[ -t 0 ]] || as_root=(sudo -n "${as_root[@]:1}")
fi

echo "test-deps: installing ${packages[*]} with apt-get. The tests start servers of their own from these programs;"
echo "test-deps: a server that a package sets up for the system is neither used nor changed by them."
"${as_root[@]}" apt-get update -qq ||
	echo "test-deps: updating the package lists had errors; going on with the lists as they are" >&2
"${as_root[@]}" apt-get install -y -qq --no-install-recommends "${packages[@]}"

have_compiler && have_postgres && have_pgbouncer && have_mariadb || {
	echo "test-deps: ${packages[*]} are installed, but their programs are not where they are looked for" >&2
	exit 1
}

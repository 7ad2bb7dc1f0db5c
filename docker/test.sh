#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause

# Runs the demo's two halves in two containers, then, if docker/programs has been made, those of a program of Debian by goverbs
# run. It exits with the status of the half that fails, with 0 if none does, and with 77 if there is no container engine and
# none can be started. `make test-docker` calls it after building the binary.
#
# If a container engine answers, it is used. Otherwise root starts one for the time of the test: dockerd with its state in a
# temporary directory, in network and mount namespaces of its own. Its bridges, packet filter rules and mounts vanish with it,
# and affect neither the network of the host nor an engine that is started later. That engine reaches no registry, so it works
# only with BASE=scratch.
set -euo pipefail
cd "$(dirname "$0")"
export BASE=${BASE:-scratch}
export COMPOSE_DOCKER_CLI_BUILD=0 # docker-compose 1.29 builds by itself, without the docker command's builders

work=
engine=
composed=
said=
cleanup() {
	status=$?
	trap - EXIT
	if [ -n "$composed" ]; then
		compose down --rmi local --volumes --timeout 3 >/dev/null 2>&1 || true
	fi
	if [ -n "$engine" ]; then
		kill "$engine" 2>/dev/null || true
		wait "$engine" 2>/dev/null || true
		# Control groups are not in the engine's namespaces, so they are removed here.
		for group in /sys/fs/cgroup/*"$cgroup" /sys/fs/cgroup"$cgroup"; do
			rmdir "$group" 2>/dev/null || true
		done
	fi
	rm -rf "$work" "$said"
	exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# cannot ends the test because there is no engine.
cannot() {
	if [ -n "${1-}" ]; then
		echo "$1" >&2
	fi
	exit 77
}

answers() { docker version >/dev/null 2>&1; }

# compose runs whichever form of the command is installed, with the file $composed, for 5 minutes at most.
compose() {
	if docker compose version >/dev/null 2>&1; then
		timeout --foreground 300 docker compose -p "$project" -f "$composed" "$@"
	else
		timeout --foreground 300 docker-compose -p "$project" -f "$composed" "$@"
	fi
}

if ! answers; then
	if ! command -v dockerd >/dev/null || ! command -v docker >/dev/null; then
		../scripts/apt.sh "no container engine answers and none is installed" docker.io docker-compose || cannot
	fi
fi
if ! docker compose version >/dev/null 2>&1 && ! command -v docker-compose >/dev/null; then
	../scripts/apt.sh "neither docker compose nor docker-compose is installed" docker-compose || cannot
fi

# Installing may have started an engine.
if ! answers; then
	if [ "$(id -u)" -ne 0 ]; then
		cannot "no container engine answers; start one, or run this as root"
	fi
	if [ "$BASE" != scratch ]; then
		cannot "BASE=$BASE needs a container engine that has this image or reaches a registry, and none answers"
	fi
	work=$(mktemp -d)
	cgroup=/goverbs-$$
	mkdir "$work/etc"
	export DOCKER_HOST=unix://$work/socket
	# In the new mount namespace /run and /etc/docker are empty directories, so that files of an engine that is
	# stopped stay as they are. In a session of its own it outlives an interrupt from the terminal for as long as
	# cleanup needs it.
	setsid unshare --mount --net sh -c '
		mount -t tmpfs tmpfs /run
		mkdir -p /etc/docker
		mount --bind "$1/etc" /etc/docker
		shift
		exec "$@"' sh "$work" \
		dockerd --host "$DOCKER_HOST" --data-root "$work/data" --exec-root "$work/exec" --pidfile "$work/pid" \
		--bridge none --exec-opt native.cgroupdriver=cgroupfs --cgroup-parent "$cgroup" >"$work/log" 2>&1 </dev/null &
	engine=$!
	echo "no container engine answers: starting one for this test"
	for try in {1..120}; do
		if answers; then
			break
		fi
		if [ "$try" -eq 120 ] || ! kill -0 "$engine" 2>/dev/null; then
			tail -n 20 "$work/log" >&2
			cannot "the container engine does not start"
		fi
		sleep 0.5
	done
fi

project=goverbs-$$

# halves FILE runs the server and the client of a compose file, and sets the exit statuses $client and $server. What the client
# prints is in the file $said too.
said=$(mktemp)
halves() {
	local id state
	composed=$1
	compose build --quiet >/dev/null
	compose up --detach server
	client=0
	compose run --rm -T client >"$said" 2>&1 & # in the background, so that a signal reaches the traps at once
	wait $! || client=$?
	cat "$said"
	# The server ends when the client has gone; one that does not is a failure, too.
	server=124
	id=$(docker ps --all --quiet --filter "label=com.docker.compose.project=$project" \
		--filter label=com.docker.compose.service=server)
	if state=$(timeout 30 docker wait "$id"); then
		server=$state
	fi
	compose logs --no-color server
	echo "exit status: client $client, server $server"
}

halves compose.yaml
if [ "$client" -ne 0 ]; then
	exit "$client"
fi
if [ "$server" -ne 0 ] || [ ! -d programs ]; then
	exit "$server"
fi
compose down --rmi local --volumes --timeout 3 >/dev/null 2>&1

# A client of perftest that comes before the server listens, or between the two times that it does, ends with an error.
for _ in 1 2 3 4 5; do
	halves compose.programs.yaml
	if [ "$client" -eq 0 ] || ! grep -qE 'RDMA_CM_EVENT_REJECTED|Unable to connect' "$said"; then
		break
	fi
	echo "the client came too early; both are started again"
	compose down --volumes --timeout 3 >/dev/null 2>&1
done
if [ "$client" -ne 0 ]; then
	exit "$client"
fi
exit "$server"

// SPDX-License-Identifier: BSD-3-Clause

// pingpong is a TCP ping-pong over sockets that are polled without pause: what the host's TCP can do at its best.
//
//   pingpong SIZE COUNT            listens on a free port of 127.0.0.1 and prints "listening 127.0.0.1:PORT"
//   pingpong SIZE COUNT PORT       connects, sends COUNT messages one by one after as many tenths of warm-up, and prints
//                                  half of the mean round trip in microseconds
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static void die(const char *what) {
	perror(what);
	exit(1);
}

static void send_all(int fd, const char *buf, size_t size) {
	for (size_t at = 0; at < size;) {
		ssize_t n = write(fd, buf + at, size - at);
		if (n >= 0)
			at += n;
		else if (errno != EAGAIN && errno != EINTR)
			die("write");
	}
}

// receive returns 0 at the end of the stream.
static int receive(int fd, char *buf, size_t size) {
	for (size_t at = 0; at < size;) {
		ssize_t n = read(fd, buf + at, size - at);
		if (n == 0)
			return 0;
		if (n > 0)
			at += n;
		else if (errno != EAGAIN && errno != EINTR)
			die("read");
	}
	return 1;
}

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

int main(int argc, char **argv) {
	if (argc < 3 || argc > 4 || atol(argv[1]) <= 0 || atol(argv[2]) <= 0) {
		fprintf(stderr, "usage: pingpong SIZE COUNT [PORT]\n");
		return 2;
	}
	size_t size = atol(argv[1]);
	long count = atol(argv[2]);
	char *buf = calloc(1, size);
	struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int client = argc == 4, one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
	if (buf == NULL || fd < 0)
		die("set-up");
	if (client) {
		addr.sin_port = htons(atoi(argv[3]));
		if (connect(fd, (struct sockaddr *)&addr, sizeof addr) < 0)
			die("connect");
	} else {
		socklen_t len = sizeof addr;
		if (bind(fd, (struct sockaddr *)&addr, len) < 0 || listen(fd, 1) < 0 ||
		    getsockname(fd, (struct sockaddr *)&addr, &len) < 0)
			die("listen");
		printf("listening 127.0.0.1:%d\n", ntohs(addr.sin_port));
		fflush(stdout);
		int listener = fd;
		if ((fd = accept(listener, NULL, NULL)) < 0)
			die("accept");
		close(listener);
	}
	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) < 0 || fcntl(fd, F_SETFL, O_NONBLOCK) < 0)
		die("socket");
	if (!client) {
		while (receive(fd, buf, size))
			send_all(fd, buf, size);
		return 0;
	}
	double start = now();
	for (long i = -count / 10; i < count; i++) {
		if (i == 0)
			start = now();
		send_all(fd, buf, size);
		if (!receive(fd, buf, size)) {
			fprintf(stderr, "pingpong: the other side has gone\n");
			return 1;
		}
	}
	printf("%.3f\n", (now() - start) / count / 2);
	return 0;
}

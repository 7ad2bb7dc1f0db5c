// SPDX-License-Identifier: BSD-3-Clause

/*
 * A program on librdmacm's rsockets that does what its command line says:
 *
 *	peer connect|listen HOST PORT [OPTION=N]... COMMAND...
 *
 * Options, set before connecting: rq and sq (messages), buf (bytes of SO_RCVBUF and SO_SNDBUF),
 * maps. Commands:
 *
 *	send N SIZE    N messages of SIZE bytes
 *	fill SIZE      messages of SIZE bytes until there is no room for one, then "filled MESSAGES"
 *	recv N         N bytes
 *	eof            everything up to the end of the peer's direction, then "eof BYTES"
 *	both N         send endlessly while receiving N bytes
 *	map N          N times: map a buffer for the peer, send a byte, receive a byte
 *	shut           close this side's direction
 *	say WORD       print WORD
 *	wait           read a line
 *
 * The bytes of each direction count from 0 to 250 repeatedly, and received bytes must do so too. At
 * the end the socket is closed. The exit status is 1 after an error, which is printed.
 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <rdma/rsocket.h>

static unsigned long sent, received;
static int rs;

static void fail(const char *what) {
	perror(what);
	exit(1);
}

static long number(const char *text) {
	if (!text) {
		fprintf(stderr, "a command lacks its number\n");
		exit(2);
	}
	return strtol(text, NULL, 10);
}

static void say(const char *word, unsigned long n) {
	printf("%s %lu\n", word, n);
	fflush(stdout);
}

static char buf[1 << 20];

// put fills buf with the next n bytes to send; they are counted once they have been sent.
static void put(size_t n) {
	for (size_t i = 0; i < n; i++)
		buf[i] = (sent + i) % 251;
}

static void check(const char *p, size_t n) {
	for (size_t i = 0; i < n; i++, received++)
		if ((unsigned char)p[i] != received % 251) {
			fprintf(stderr, "byte %lu is %u\n", received, (unsigned char)p[i]);
			exit(1);
		}
}

static void send_message(size_t n) {
	put(n);
	for (size_t done = 0; done < n;) {
		ssize_t ret = rsend(rs, buf + done, n - done, 0);
		if (ret <= 0)
			fail("rsend");
		done += ret;
	}
	sent += n;
}

static void fill(size_t n) {
	unsigned long messages = 0;
	for (;; messages++) {
		put(n);
		ssize_t ret = rsend(rs, buf, n, MSG_DONTWAIT);
		if (ret < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
			// The device may not have sent everything yet. Once it has, only the peer can make room.
			struct pollfd p = {rs, POLLOUT, 0};
			if (rpoll(&p, 1, 2000) == 0)
				break;
			messages--;
			continue;
		}
		if (ret <= 0)
			fail("rsend");
		sent += ret;
	}
	say("filled", messages);
}

static void receive(unsigned long n) {
	static char in[65536];
	while (n > 0) {
		ssize_t ret = rrecv(rs, in, n < sizeof in ? n : sizeof in, 0);
		if (ret < 0)
			fail("rrecv");
		if (ret == 0) {
			fprintf(stderr, "the end after %lu bytes, %lu before there should be one\n", received, n);
			exit(1);
		}
		check(in, ret);
		n -= ret;
	}
}

static void to_end(void) {
	static char in[65536];
	ssize_t ret;
	while ((ret = rrecv(rs, in, sizeof in, 0)) > 0)
		check(in, ret);
	if (ret < 0)
		fail("rrecv");
	say("eof", received);
}

static void both(unsigned long n) {
	static char in[65536];
	while (n > 0) {
		struct pollfd p = {rs, POLLIN | POLLOUT, 0};
		if (rpoll(&p, 1, -1) < 0)
			fail("rpoll");
		if (p.revents & POLLOUT) {
			put(4096);
			ssize_t ret = rsend(rs, buf, 4096, MSG_DONTWAIT);
			if (ret > 0)
				sent += ret; // an error is the expected end: only what is received counts
		}
		ssize_t ret = rrecv(rs, in, n < sizeof in ? n : sizeof in, MSG_DONTWAIT);
		if (ret > 0) {
			check(in, ret);
			n -= ret;
		} else if (ret == 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) {
			fprintf(stderr, "the end after %lu bytes, %lu before there should be one: %zd, %s\n", received, n, ret, strerror(errno));
			exit(1);
		}
	}
}

static void map(int times) {
	static char memory[64];
	for (int i = 0; i < times; i++) {
		if (riomap(rs, memory, sizeof memory, PROT_WRITE, 0, 0) != 0)
			fail("riomap");
		send_message(1);
		receive(1);
		if (riounmap(rs, memory, sizeof memory))
			fail("riounmap");
	}
}

static void set(int level, int name, int value) {
	if (rsetsockopt(rs, level, name, &value, sizeof value))
		fail("rsetsockopt");
}

static char **options(char **arg) {
	for (; *arg && strchr(*arg, '='); arg++) {
		char *equals = strchr(*arg, '=');
		int value = number(equals + 1);
		*equals = 0;
		if (!strcmp(*arg, "rq"))
			set(SOL_RDMA, RDMA_RQSIZE, value);
		else if (!strcmp(*arg, "sq"))
			set(SOL_RDMA, RDMA_SQSIZE, value);
		else if (!strcmp(*arg, "maps"))
			set(SOL_RDMA, RDMA_IOMAPSIZE, value);
		else if (!strcmp(*arg, "buf")) {
			set(SOL_SOCKET, SO_RCVBUF, value);
			set(SOL_SOCKET, SO_SNDBUF, value);
		} else {
			fprintf(stderr, "no option %s\n", *arg);
			exit(2);
		}
	}
	return arg;
}

int main(int argc, char **argv) {
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *ai;
	if (argc < 4 || getaddrinfo(argv[2], argv[3], &hints, &ai)) {
		fprintf(stderr, "peer connect|listen HOST PORT ...\n");
		return 2;
	}
	int listens = !strcmp(argv[1], "listen");
	rs = rsocket(ai->ai_family, SOCK_STREAM, 0);
	if (rs < 0)
		fail("rsocket");
	char **arg = options(argv + 4);
	if (listens) {
		set(SOL_SOCKET, SO_REUSEADDR, 1);
		if (rbind(rs, ai->ai_addr, ai->ai_addrlen) || rlisten(rs, 1))
			fail("rlisten");
		int c = raccept(rs, NULL, NULL);
		if (c < 0)
			fail("raccept");
		rs = c;
	} else if (rconnect(rs, ai->ai_addr, ai->ai_addrlen))
		fail("rconnect");
	for (; *arg; arg++) {
		if (!strcmp(*arg, "send")) {
			long n = number(*++arg), size = number(*++arg);
			while (n-- > 0)
				send_message(size);
		} else if (!strcmp(*arg, "fill"))
			fill(number(*++arg));
		else if (!strcmp(*arg, "recv"))
			receive(number(*++arg));
		else if (!strcmp(*arg, "eof"))
			to_end();
		else if (!strcmp(*arg, "both"))
			both(number(*++arg));
		else if (!strcmp(*arg, "map"))
			map(number(*++arg));
		else if (!strcmp(*arg, "say"))
			say(*++arg, 0);
		else if (!strcmp(*arg, "shut")) {
			if (rshutdown(rs, SHUT_WR))
				fail("rshutdown");
		} else if (!strcmp(*arg, "wait")) {
			if (getchar() == EOF)
				fail("stdin");
		} else {
			fprintf(stderr, "no command %s\n", *arg);
			return 2;
		}
	}
	return rclose(rs) ? 1 : 0;
}

// SPDX-License-Identifier: BSD-3-Clause

// Addresses: the port that an ID reserves, routes to the peer, rdma_getaddrinfo.

#include "shim.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

struct rnic_addr to_addr(const struct sockaddr *sa)
{
	struct rnic_addr a = {.family = sa->sa_family};
	if (sa->sa_family == AF_INET6) {
		const struct sockaddr_in6 *s = (const void *)sa;
		memcpy(a.ip, &s->sin6_addr, 16);
		a.port = ntohs(s->sin6_port);
		a.scope = s->sin6_scope_id;
	} else if (sa->sa_family == AF_INET) {
		const struct sockaddr_in *s = (const void *)sa;
		memcpy(a.ip, &s->sin_addr, 4);
		a.port = ntohs(s->sin_port);
	}
	return a;
}

void from_addr(const struct rnic_addr *a, struct sockaddr_storage *ss)
{
	if (a->family != AF_INET && a->family != AF_INET6)
		return; // unknown: leave the structure unchanged
	memset(ss, 0, sizeof *ss);
	ss->ss_family = a->family;
	if (a->family == AF_INET6) {
		struct sockaddr_in6 *s = (void *)ss;
		memcpy(&s->sin6_addr, a->ip, 16);
		s->sin6_port = htons(a->port);
		s->sin6_scope_id = a->scope;
	} else {
		struct sockaddr_in *s = (void *)ss;
		memcpy(&s->sin_addr, a->ip, 4);
		s->sin_port = htons(a->port);
	}
}

static socklen_t length(const struct sockaddr *sa)
{
	switch (sa->sa_family) {
	case AF_INET:
		return sizeof(struct sockaddr_in);
	case AF_INET6:
		return sizeof(struct sockaddr_in6);
	default:
		return 0;
	}
}

static bool unspecified(const struct sockaddr *sa)
{
	if (sa->sa_family == AF_INET6)
		return IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)sa)->sin6_addr);
	return ((const struct sockaddr_in *)sa)->sin_addr.s_addr == 0;
}

static bool loopback(const struct sockaddr *sa)
{
	if (sa->sa_family == AF_INET6)
		return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)sa)->sin6_addr);
	return ntohl(((const struct sockaddr_in *)sa)->sin_addr.s_addr) >> IN_CLASSA_NSHIFT == IN_LOOPBACKNET;
}

// chooses reports whether binding to an address selects the device. As with the kernel's connection
// manager, a loopback address does not: libfabric infers from that that it must tell its peers
// another one.
static bool chooses(const struct sockaddr *sa) { return !unspecified(sa) && !loopback(sa); }

// port_keep binds a socket to the address to reserve the port until the ID uses it. It first looks
// for a free port (without SO_REUSEADDR), and only if there is none for one whose old connections
// are still closing.
int port_keep(struct id *id, struct sockaddr *at)
{
	struct sockaddr_storage ss;
	socklen_t n = sizeof ss;
	int on = 1, err;
	if (!length(at))
		return EAFNOSUPPORT;
	int fd = socket(at->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return errno;
	if (at->sa_family == AF_INET6) {
		int only = id->af_only;
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only);
	}
	if (id->reuse)
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	err = bind(fd, at, length(at)) ? errno : 0;
	if (err == EADDRINUSE && !id->reuse) {
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
		err = bind(fd, at, length(at)) ? errno : 0;
	}
	if (!err && getsockname(fd, (void *)&ss, &n))
		err = errno;
	if (err) {
		close(fd);
		return err;
	}
	id->port = fd;
	id->id.route.addr.src_storage = ss;
	return 0;
}

// port_share lets the Go library bind the port too.
void port_share(struct id *id)
{
	int on = 1;
	if (id->port >= 0)
		setsockopt(id->port, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
}

void port_drop(struct id *id)
{
	if (id->port >= 0)
		close(id->port);
	id->port = -1;
}

PUBLIC int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
	struct id *i = id_of(id);
	if (!alive())
		return -1;
	if (i->bound)
		return fail(EINVAL);
	int err = port_keep(i, addr);
	if (err)
		return fail(err == EADDRNOTAVAIL ? ENODEV : err); // as in the kernel: no device has the address
	i->bound = true;
	if (chooses(addr))
		id_bind_device(i);
	return 0;
}

// route returns the local address used to reach dst.
static int route(const struct sockaddr *dst, struct sockaddr_storage *src)
{
	socklen_t n = sizeof *src;
	if (!length(dst))
		return EAFNOSUPPORT;
	int fd = socket(dst->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return errno;
	int err = connect(fd, dst, length(dst)) || getsockname(fd, (void *)src, &n) ? errno : 0;
	close(fd);
	return err;
}

PUBLIC int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src, struct sockaddr *dst, UNUSED int timeout_ms)
{
	struct id *i = id_of(id);
	struct sockaddr_storage from;
	if (!alive())
		return -1;
	if (!length(dst))
		return fail(EINVAL);
	if (src && !i->bound && rdma_bind_addr(id, src))
		return -1;
	memset(&id->route.addr.dst_storage, 0, sizeof id->route.addr.dst_storage);
	memcpy(&id->route.addr.dst_storage, dst, length(dst));
	int err = route(dst, &from);
	if (err) {
		cm_tell(i, RDMA_CM_EVENT_ADDR_ERROR, -err);
		return cm_complete(i);
	}
	if (!i->bound || unspecified(&id->route.addr.src_addr)) {
		in_port_t port = i->bound ? id->route.addr.src_sin.sin_port : 0;
		id->route.addr.src_storage = from;
		id->route.addr.src_sin.sin_port = port;
	}
	id_bind_device(i);
	cm_tell(i, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	return cm_complete(i);
}

PUBLIC int rdma_resolve_route(struct rdma_cm_id *id, UNUSED int timeout_ms)
{
	if (!alive())
		return -1;
	if (!id->verbs)
		return fail(EINVAL);
	cm_tell(id_of(id), RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	return cm_complete(id_of(id));
}

static struct sockaddr *copy_of(const struct sockaddr *sa, socklen_t n)
{
	struct sockaddr *to = calloc(1, sizeof(struct sockaddr_storage));
	if (to)
		memcpy(to, sa, n);
	return to;
}

PUBLIC int rdma_getaddrinfo(const char *node, const char *service, const struct rdma_addrinfo *hints, struct rdma_addrinfo **res)
{
	static const struct rdma_addrinfo none = {.ai_port_space = RDMA_PS_TCP};
	struct addrinfo want = {.ai_socktype = SOCK_STREAM}, *found = NULL;
	if (!hints)
		hints = &none;
	if (!node && !service && !hints->ai_src_len && !hints->ai_dst_len)
		return fail(EINVAL);
	if (hints->ai_port_space && hints->ai_port_space != RDMA_PS_TCP && hints->ai_port_space != RDMA_PS_IB)
		return fail(EPROTONOSUPPORT);
	bool passive = hints->ai_flags & RAI_PASSIVE;
	want.ai_flags = (passive ? AI_PASSIVE : 0) | (hints->ai_flags & RAI_NUMERICHOST ? AI_NUMERICHOST : 0);
	want.ai_family = hints->ai_family == AF_IB ? AF_UNSPEC : hints->ai_family;
	struct rdma_addrinfo *r = calloc(1, sizeof *r);
	if (!r)
		return fail(ENOMEM);
	r->ai_flags = hints->ai_flags;
	r->ai_family = hints->ai_family;
	r->ai_qp_type = hints->ai_qp_type ? hints->ai_qp_type : IBV_QPT_RC;
	r->ai_port_space = hints->ai_port_space ? hints->ai_port_space : RDMA_PS_TCP;
	if (node || service) {
		int err = getaddrinfo(node, service, &want, &found);
		if (err) {
			free(r);
			return err; // an error of getaddrinfo(3), as in librdmacm
		}
		r->ai_family = found->ai_family;
		struct sockaddr *sa = copy_of(found->ai_addr, found->ai_addrlen);
		if (passive) {
			r->ai_src_addr = sa;
			r->ai_src_len = found->ai_addrlen;
		} else {
			r->ai_dst_addr = sa;
			r->ai_dst_len = found->ai_addrlen;
		}
		freeaddrinfo(found);
	}
	if (!r->ai_src_len && hints->ai_src_len) {
		r->ai_src_addr = copy_of(hints->ai_src_addr, hints->ai_src_len);
		r->ai_src_len = hints->ai_src_len;
		r->ai_family = hints->ai_src_addr->sa_family;
	}
	if (!r->ai_dst_len && hints->ai_dst_len) {
		r->ai_dst_addr = copy_of(hints->ai_dst_addr, hints->ai_dst_len);
		r->ai_dst_len = hints->ai_dst_len;
		r->ai_family = hints->ai_dst_addr->sa_family;
	}
	// The source address for the peer, which the real library fills in too.
	struct sockaddr_storage from;
	if (!passive && r->ai_dst_len && !r->ai_src_len && !(hints->ai_flags & RAI_NOROUTE) && !route(r->ai_dst_addr, &from)) {
		((struct sockaddr_in *)&from)->sin_port = 0;
		r->ai_src_addr = copy_of((void *)&from, length((void *)&from));
		r->ai_src_len = length((void *)&from);
	}
	*res = r;
	return 0;
}

PUBLIC void rdma_freeaddrinfo(struct rdma_addrinfo *r)
{
	while (r) {
		struct rdma_addrinfo *next = r->ai_next;
		free(r->ai_src_addr);
		free(r->ai_dst_addr);
		free(r);
		r = next;
	}
}

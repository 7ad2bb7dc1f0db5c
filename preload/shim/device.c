// SPDX-License-Identifier: BSD-3-Clause

// The device and its contexts.

#include "shim.h"

#include <stdio.h>

struct ibv_device device;

static void describe(void)
{
	struct rnic_device d = {0};
	if (go.device(&d))
		return;
	device.node_type = d.node_type;
	device.transport_type = d.transport;
	snprintf(device.name, sizeof device.name, "%s", d.name);
	snprintf(device.dev_name, sizeof device.dev_name, "uverbs0");
	// A directory that does not exist: a program that looks there must find nothing, not the files
	// of another device.
	snprintf(device.dev_path, sizeof device.dev_path, "/nonexistent/infiniband_verbs/uverbs0");
	snprintf(device.ibdev_path, sizeof device.ibdev_path, "/nonexistent/infiniband/%s", d.name);
}

static bool described(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	if (!ready())
		return false;
	pthread_once(&once, describe);
	return true;
}

PUBLIC struct ibv_device **ibv_get_device_list(int *num)
{
	if (num)
		*num = 0;
	if (!described())
		return NULL;
	int n = 0;
	struct ibv_device **theirs = kept() ? kept()->ibv_get_device_list(&n) : NULL; // NULL if there is none, or the kernel lacks RDMA
	struct ibv_device **list = calloc(n + 3, sizeof *list);
	if (!list) {
		if (theirs)
			kept()->ibv_free_device_list(theirs);
		return NULL;
	}
	list[0] = &device;
	if (theirs)
		memcpy(list + 1, theirs, n * sizeof *list);
	list[n + 2] = (struct ibv_device *)theirs; // after the NULL, for ibv_free_device_list
	if (num)
		*num = n + 1;
	return list;
}

PUBLIC void ibv_free_device_list(struct ibv_device **list)
{
	struct ibv_device **end = list;
	while (*end)
		end++;
	if (end[1])
		real()->ibv_free_device_list((struct ibv_device **)end[1]);
	free(list);
}

PUBLIC const char *ibv_get_device_name(struct ibv_device *d) { return d == &device ? d->name : real()->ibv_get_device_name(d); }
PUBLIC int ibv_get_device_index(struct ibv_device *d) { return d == &device ? -1 : real()->ibv_get_device_index(d); } // -1: unknown to the kernel

PUBLIC __be64 ibv_get_device_guid(struct ibv_device *d)
{
	struct rnic_device info = {0};
	if (d != &device)
		return real()->ibv_get_device_guid(d);
	if (go.device(&info))
		return 0;
	return info.guid;
}

static struct context *open_context(void)
{
	if (!described())
		return NULL;
	struct context *c = calloc(1, sizeof *c);
	if (!c)
		return NULL;
	if (!queue_init(&c->async))
		return nothing(c, errno);
	int err = go.open(c, &c->h);
	if (err) {
		queue_free(&c->async);
		return nothing(c, err);
	}
	struct rnic_device info = {0};
	go.device(&info);
	context_ops(&c->v);
	c->v.context.device = &device;
	c->v.context.cmd_fd = -1;
	c->v.context.async_fd = c->async.fd;
	c->v.context.num_comp_vectors = info.comp_vectors;
	pthread_mutex_init(&c->v.context.mutex, NULL);
	return c;
}

PUBLIC struct ibv_context *ibv_open_device(struct ibv_device *d)
{
	if (d != &device)
		return real()->ibv_open_device(d);
	struct context *c = open_context();
	return c ? &c->v.context : NULL;
}

PUBLIC int ibv_close_device(struct ibv_context *ctx)
{
	REAL(ctx, ibv_close_device, ctx);
	struct context *c = context_of(ctx);
	int err = go.close(c->h);
	if (err)
		return err;
	async_forget(ctx, NULL);
	queue_free(&c->async);
	free(c);
	return 0;
}

static struct ibv_context *shared;

static void open_shared(void)
{
	struct context *c = open_context();
	shared = c ? &c->v.context : NULL;
}

struct ibv_context *shared_context(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, open_shared);
	if (!shared)
		errno = ENODEV;
	return shared;
}

PUBLIC int ibv_query_device(struct ibv_context *c, struct ibv_device_attr *attr)
{
	REAL(c, ibv_query_device, c, attr);
	memset(attr, 0, sizeof *attr);
	return go.query_device(handle_of(c), attr);
}

// The exported function takes the structure of the first ABI version; the header's inline calls the
// one in verbs_context.
PUBLIC int ibv_query_port(struct ibv_context *c, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	REAL(c, ibv_query_port, c, port, attr);
	return context_of(c)->v.query_port(c, port, (struct ibv_port_attr *)attr, offsetof(struct ibv_port_attr, port_cap_flags2));
}

PUBLIC int _ibv_query_gid_ex(struct ibv_context *c, uint32_t port, uint32_t index, struct ibv_gid_entry *entry, uint32_t flags, size_t size)
{
	struct ibv_gid_entry e = {0};
	REAL(c, _ibv_query_gid_ex, c, port, index, entry, flags, size);
	if (flags)
		return EOPNOTSUPP;
	int err = go.query_gid(handle_of(c), port, index, &e);
	if (!err)
		memcpy(entry, &e, size < sizeof e ? size : sizeof e);
	return err;
}

PUBLIC ssize_t _ibv_query_gid_table(struct ibv_context *c, struct ibv_gid_entry *entries, size_t max, uint32_t flags, size_t size)
{
	struct ibv_port_attr port = {0};
	size_t n = 0;
	REAL(c, _ibv_query_gid_table, c, entries, max, flags, size);
	int err = go.query_port(handle_of(c), 1, &port);
	if (err || flags)
		return err ? -err : -EOPNOTSUPP;
	for (int i = 0; i < port.gid_tbl_len; i++) {
		struct ibv_gid_entry e;
		err = _ibv_query_gid_ex(c, 1, i, &e, 0, sizeof e);
		if (err == ENODATA || err == EINVAL)
			continue;
		if (err)
			return -err;
		if (n == max)
			return -EINVAL;
		memcpy((char *)entries + n++ * size, &e, size < sizeof e ? size : sizeof e);
	}
	return n;
}

PUBLIC int ibv_query_gid(struct ibv_context *c, uint8_t port, int index, union ibv_gid *gid)
{
	struct ibv_gid_entry e = {0};
	REAL(c, ibv_query_gid, c, port, index, gid);
	int err = go.query_gid(handle_of(c), port, index, &e);
	if (err == ENODATA) { // an empty entry of the table
		memset(gid, 0, sizeof *gid);
		return 0;
	}
	if (!err)
		*gid = e.gid;
	return fail(err);
}

PUBLIC int ibv_query_gid_type(struct ibv_context *c, uint8_t port, unsigned int index, unsigned int *type)
{
	struct ibv_gid_entry e = {0};
	REAL(c, ibv_query_gid_type, c, port, index, type);
	int err = go.query_gid(handle_of(c), port, index, &e);
	*type = e.gid_type == IBV_GID_TYPE_ROCE_V2; // its own enum: IB and RoCE v1, or RoCE v2
	return fail(err == ENODATA ? 0 : err);
}

PUBLIC int ibv_query_pkey(struct ibv_context *c, uint8_t port, int index, __be16 *pkey)
{
	uint16_t k = 0;
	REAL(c, ibv_query_pkey, c, port, index, pkey);
	int err = go.query_pkey(handle_of(c), port, index, &k);
	*pkey = htobe16(k);
	return fail(err);
}

PUBLIC int ibv_get_pkey_index(struct ibv_context *c, uint8_t port, __be16 pkey)
{
	__be16 k;
	REAL(c, ibv_get_pkey_index, c, port, pkey);
	for (int i = 0; !ibv_query_pkey(c, port, i, &k); i++)
		if (k == pkey)
			return i;
	return -1;
}

// The RNIC needs no fork support: the memory of its regions is not pinned.
PUBLIC int ibv_fork_init(void) { return kept() ? kept()->ibv_fork_init() : 0; }
PUBLIC enum ibv_fork_status ibv_is_fork_initialized(void) { return kept() ? kept()->ibv_is_fork_initialized() : IBV_FORK_UNNEEDED; }

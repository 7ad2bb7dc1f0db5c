// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

#include "fake.h"

#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct dev fake_dev[2];
int fake_fork_result, fake_fork_status = IBV_FORK_DISABLED;

static void gid4(struct fake_gid *g, uint32_t index, uint32_t type, const uint8_t addr[4], uint32_t ifindex) {
	memset(g, 0, sizeof(*g));
	g->raw[10] = g->raw[11] = 0xff;
	memcpy(g->raw + 12, addr, 4);
	g->index = index;
	g->type = type;
	g->ifindex = ifindex;
	g->port = 1;
}

static void gid6(struct fake_gid *g, uint32_t index, uint32_t type, const char *hex, uint32_t ifindex) {
	memset(g, 0, sizeof(*g));
	for (int i = 0; i < 16; i++)
		sscanf(hex + 2 * i, "%2hhx", &g->raw[i]);
	g->index = index;
	g->type = type;
	g->ifindex = ifindex;
	g->port = 1;
}

// fake0 has what rxe and hardware RoCE devices have in common, fake1 resembles the kernel's siw.
void fake_reset_devices(void) {
	struct dev *d = &fake_dev[0];
	struct ibv_device_attr *a = &d->attr.orig_attr;

	pthread_mutex_lock(&fake_mu);
	for (int i = 0; i < 2; i++) {
		d = &fake_dev[i];
		a = &d->attr.orig_attr;
		memset(&d->attr, 0, sizeof(d->attr));
		memset(&d->port, 0, sizeof(d->port));
		memset(&d->gid, 0, sizeof(d->gid));
		d->hidden = false;
		d->iwarp = i == 1;
		d->index = i + 1;
		d->pub.node_type = i == 0 ? IBV_NODE_CA : IBV_NODE_RNIC;
		d->pub.transport_type = i == 0 ? IBV_TRANSPORT_IB : IBV_TRANSPORT_IWARP;
		snprintf(d->pub.name, sizeof(d->pub.name), "fake%d", i);
		snprintf(d->pub.dev_name, sizeof(d->pub.dev_name), "uverbs%d", i);
		snprintf(d->pub.dev_path, sizeof(d->pub.dev_path), "/sys/class/infiniband_verbs/uverbs%d", i);
		snprintf(d->pub.ibdev_path, sizeof(d->pub.ibdev_path), "/sys/class/infiniband/fake%d", i);
		d->guid = htobe64(0x0200000000000001ULL + i);
		snprintf(a->fw_ver, sizeof(a->fw_ver), "1.%d.0", i);
		a->node_guid = a->sys_image_guid = d->guid;
		a->max_mr_size = 1ULL << 40;
		a->page_size_cap = 4096;
		a->vendor_id = i == 0 ? 0xfa4e : 0x626d74; // fake0 has no vendor, fake1 is siw
		a->vendor_part_id = i;
		a->max_qp = 1024;
		a->max_qp_wr = 4096;
		a->max_sge = i == 0 ? 32 : 6;
		a->max_sge_rd = i == 0 ? 32 : 1;
		a->max_cq = 1024;
		a->max_cqe = 65536;
		a->max_mr = 65536;
		a->max_pd = 1024;
		a->max_qp_rd_atom = a->max_qp_init_rd_atom = 128;
		a->max_res_rd_atom = 4096;
		a->atomic_cap = i == 0 ? IBV_ATOMIC_HCA : IBV_ATOMIC_NONE;
		a->max_mw = i == 0 ? 4096 : 0;
		a->max_mcast_grp = i == 0 ? 64 : 0;
		a->max_mcast_qp_attach = i == 0 ? 16 : 0;
		a->max_total_mcast_qp_attach = i == 0 ? 1024 : 0;
		a->max_ah = i == 0 ? 4096 : 0;
		a->max_srq = 256;
		a->max_srq_wr = 4096;
		a->max_srq_sge = i == 0 ? 32 : 6;
		a->max_pkeys = i == 0 ? 64 : 0;
		a->phys_port_cnt = 1;
		a->device_cap_flags = IBV_DEVICE_MEM_MGT_EXTENSIONS;
		if (i == 0)
			a->device_cap_flags |= IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_SRQ_RESIZE |
				IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_CURR_QP_STATE_MOD;
		d->attr.device_cap_flags_ex = a->device_cap_flags;
		d->attr.phys_port_cnt_ex = 1;
		d->vectors = 1;
		if (i == 0) {
			d->attr.odp_caps.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT;
			d->attr.odp_caps.per_transport_caps.rc_odp_caps = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV |
				IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC;
			d->attr.odp_caps.per_transport_caps.ud_odp_caps = IBV_ODP_SUPPORT_SEND;
		}
		d->port[0] = (struct ibv_port_attr){
			.state = IBV_PORT_ACTIVE,
			.max_mtu = IBV_MTU_4096,
			.active_mtu = IBV_MTU_1024,
			.gid_tbl_len = FAKE_GIDS,
			.max_msg_sz = i == 0 ? 1u << 31 : UINT32_MAX,
			.pkey_tbl_len = i == 0 ? 64 : 1,
			.active_width = 2,
			.active_speed = 1,
			.phys_state = 5,
			.link_layer = IBV_LINK_LAYER_ETHERNET,
			.port_cap_flags = i == 0 ? IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS : IBV_PORT_CM_SUP,
		};
		memset(d->pkey, 0, sizeof(d->pkey));
		d->pkey[0] = 0xffff;
		if (i == 0) {
			const uint8_t addr[4] = {192, 0, 2, 1};

			gid6(&d->gid[0], 0, IBV_GID_TYPE_ROCE_V1, "fe80000000000000020000fffe000001", 1);
			gid6(&d->gid[1], 1, IBV_GID_TYPE_ROCE_V2, "fe80000000000000020000fffe000001", 1);
			gid4(&d->gid[2], 2, IBV_GID_TYPE_ROCE_V1, addr, 1);
			gid4(&d->gid[3], 3, IBV_GID_TYPE_ROCE_V2, addr, 1);
			gid6(&d->gid[4], 4, IBV_GID_TYPE_ROCE_V1, "20010db8000000000000000000000001", 1);
			gid6(&d->gid[5], 5, IBV_GID_TYPE_ROCE_V2, "20010db8000000000000000000000001", 1);
			d->gids = 6;
		} else {
			gid6(&d->gid[0], 0, IBV_GID_TYPE_IB, "02000000000200000000000000000000", 1);
			d->gids = 1;
		}
	}
	fake_fork_result = 0;
	fake_fork_status = IBV_FORK_DISABLED;
	pthread_mutex_unlock(&fake_mu);
}

__attribute__((constructor)) static void init(void) {
	fake_reset_devices();
}

static struct dev *dev_get(const char *fn, struct ibv_device *device) {
	for (int i = 0; i < 2; i++)
		if (device == &fake_dev[i].pub)
			return &fake_dev[i];
	fault("%s: no device is at %p", fn, (void *)device);
	return NULL;
}

static int lists;

struct ibv_device **ibv_get_device_list(int *num_devices) {
	int err = begin(ibv_get_device_list, P(num_devices)), n = 0;
	struct ibv_device **list = NULL;

	if (!err) {
		list = calloc(3, sizeof(*list));
		for (int i = 0; i < 2; i++)
			if (!fake_dev[i].hidden)
				list[n++] = &fake_dev[i].pub;
		lists++;
	}
	if (num_devices)
		*num_devices = n;
	return end_ptr(list, err);
}

void ibv_free_device_list(struct ibv_device **list) {
	begin(ibv_free_device_list, P(list));
	if (--lists < 0)
		fault("ibv_free_device_list: more lists are freed than were got");
	free(list);
	end_errno(0);
}

int fake_lists(void) {
	int n;

	pthread_mutex_lock(&fake_mu);
	n = lists;
	pthread_mutex_unlock(&fake_mu);
	return n;
}

const char *ibv_get_device_name(struct ibv_device *device) {
	struct dev *d;

	begin(ibv_get_device_name, P(device));
	d = dev_get("ibv_get_device_name", device);
	return end_ptr(d ? d->pub.name : NULL, 0);
}

__be64 ibv_get_device_guid(struct ibv_device *device) {
	struct dev *d;
	__be64 guid;

	begin(ibv_get_device_guid, P(device));
	d = dev_get("ibv_get_device_guid", device);
	guid = d ? d->guid : 0;
	end_errno(0);
	return guid;
}

int ibv_get_device_index(struct ibv_device *device) {
	int err = begin(ibv_get_device_index, P(device));
	struct dev *d = dev_get("ibv_get_device_index", device);

	return end_errno(err || !d ? -1 : d->index);
}

struct ctx *ctx_of(struct ibv_context *c) {
	struct verbs_context *v = (struct verbs_context *)((char *)c - offsetof(struct verbs_context, context));

	return (struct ctx *)((char *)v - offsetof(struct ctx, pub));
}

static struct ctx *ctx_get(const char *fn, struct ibv_context *c) {
	return (struct ctx *)obj_get(fn, K_CONTEXT, c);
}

static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t len) {
	int err = begin(ibv_query_port, P(context), port);
	struct ctx *c = ctx_get("ibv_query_port", context);

	if (!c || port < 1 || port > c->dev->attr.orig_attr.phys_port_cnt || port > FAKE_PORTS)
		err = err ? err : EINVAL;
	if (!err) {
		struct ibv_port_attr port_attr = c->dev->port[port - 1];

		port_attr.port_cap_flags |= UNKNOWN_BIT;
		memcpy(attr, &port_attr, len < sizeof(*attr) ? len : sizeof(*attr));
	}
	return end_errno(err);
}

static int query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
	struct ibv_device_attr_ex *attr, size_t len) {
	int err = begin(ibv_query_device_ex, P(context));
	struct ctx *c = ctx_get("ibv_query_device_ex", context);

	(void)input;
	err = err ? err : c ? 0 : EINVAL;
	if (!err)
		memcpy(attr, &c->dev->attr, len < sizeof(*attr) ? len : sizeof(*attr));
	return end_errno(err);
}

void ctx_hot(struct ibv_context *c) {
	c->ops.post_send = fake_hot ? hot_post_send : fake_post_send;
	c->ops.post_recv = fake_hot ? hot_post_recv : fake_post_recv;
	c->ops.poll_cq = fake_hot ? hot_poll_cq : fake_poll_cq;
}

void fake_set_hot(int mode) {
	pthread_mutex_lock(&fake_mu);
	fake_hot = mode;
	for (struct obj *o = obj_next(K_CONTEXT, NULL); o; o = obj_next(K_CONTEXT, o))
		ctx_hot(o->pub);
	pthread_mutex_unlock(&fake_mu);
}

struct ibv_context *ctx_open(struct dev *d, bool own) {
	struct ctx *c = obj_new(K_CONTEXT, sizeof(*c), offsetof(struct ctx, pub.context), sizeof(struct ibv_context));

	c->dev = d;
	c->o.own = own;
	evq_open(&c->async);
	c->pub.sz = sizeof(c->pub);
	c->pub.query_port = query_port;
	c->pub.query_device_ex = query_device_ex;
	c->pub.create_qp_ex = d->iwarp ? NULL : fake_create_qp_ex;
	c->pub.modify_cq = d->iwarp ? NULL : fake_modify_cq;
	c->pub.advise_mr = d->iwarp ? NULL : fake_advise_mr;
	c->pub.context.device = &d->pub;
	c->pub.context.cmd_fd = eventfd(0, EFD_CLOEXEC);
	c->pub.context.async_fd = c->async.fd;
	c->pub.context.num_comp_vectors = d->vectors;
	c->pub.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	pthread_mutex_init(&c->pub.context.mutex, NULL);
	c->pub.context.ops.alloc_mw = fake_alloc_mw;
	c->pub.context.ops.dealloc_mw = fake_dealloc_mw;
	c->pub.context.ops.bind_mw = fake_bind_mw;
	c->pub.context.ops.req_notify_cq = fake_req_notify_cq;
	c->pub.context.ops.post_srq_recv = fake_post_srq_recv;
	ctx_hot(&c->pub.context);
	return &c->pub.context;
}

struct ibv_context *ibv_open_device(struct ibv_device *device) {
	int err = begin(ibv_open_device, P(device));
	struct dev *d = dev_get("ibv_open_device", device);

	if (!err && (!d || d->hidden))
		err = ENODEV;
	return end_ptr(err ? NULL : ctx_open(d, false), err);
}

int ibv_close_device(struct ibv_context *context) {
	int err = begin(ibv_close_device, P(context));
	struct ctx *c = ctx_get("ibv_close_device", context);

	if (!c)
		return end_rc(err ? err : EINVAL);
	if (c->o.own)
		fault("ibv_close_device: context %u belongs to librdmacm", c->o.id);
	if (err)
		return end_rc(err);
	obj_busy("ibv_close_device", &c->o); // the kernel does not check
	close(c->pub.context.cmd_fd);
	evq_close(&c->async);
	obj_kill(&c->o);
	return end_rc(0);
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr) {
	int err = begin(ibv_query_device, P(context));
	struct ctx *c = ctx_get("ibv_query_device", context);

	err = err ? err : c ? 0 : EINVAL;
	if (!err) {
		*attr = c->dev->attr.orig_attr;
		attr->device_cap_flags |= UNKNOWN_BIT;
	}
	return end_errno(err);
}

#undef ibv_query_port
int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr) {
	return query_port(context, port, (struct ibv_port_attr *)attr, offsetof(struct ibv_port_attr, port_cap_flags2));
}

static int find_gid(const char *fn, struct ibv_context *context, uint32_t port, uint32_t index, struct fake_gid *gid) {
	struct ctx *c = ctx_get(fn, context);

	if (!c || port < 1 || port > c->dev->attr.orig_attr.phys_port_cnt || port > FAKE_PORTS ||
		index >= (uint32_t)c->dev->port[port - 1].gid_tbl_len)
		return EINVAL;
	for (int i = 0; i < c->dev->gids; i++)
		if (c->dev->gid[i].index == index && c->dev->gid[i].port == port) {
			*gid = c->dev->gid[i];
			return 0;
		}
	return ENODATA;
}

int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid) {
	int err = begin(ibv_query_gid, P(context), port, index);
	struct fake_gid g;

	memset(&g, 0, sizeof(g));
	if (!err && (err = find_gid("ibv_query_gid", context, port, index, &g)) == ENODATA)
		err = 0; // an empty entry is all zeros
	if (!err)
		memcpy(gid->raw, g.raw, 16);
	return end_rc(err);
}

static void gid_entry(struct ibv_gid_entry *e, const struct fake_gid *g) {
	memcpy(e->gid.raw, g->raw, 16);
	e->gid_index = g->index;
	e->port_num = g->port;
	e->gid_type = g->type;
	e->ndev_ifindex = g->ifindex;
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry,
	uint32_t flags, size_t entry_size) {
	int err = begin(ibv_query_gid_ex, P(context), port, index, flags);
	struct fake_gid g;

	if (!err && (flags != 0 || entry_size != sizeof(*entry)))
		err = EINVAL;
	err = err ? err : find_gid("ibv_query_gid_ex", context, port, index, &g);
	if (!err)
		gid_entry(entry, &g);
	return end_errno(err);
}

ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max_entries,
	uint32_t flags, size_t entry_size) {
	int err = begin(ibv_query_gid_table, P(context), max_entries, flags);
	struct ctx *c = ctx_get("ibv_query_gid_table", context);
	ssize_t n = 0;

	if (!err && (!c || flags != 0 || entry_size != sizeof(*entries) || max_entries < (size_t)c->dev->gids))
		err = EINVAL;
	if (!err)
		for (; n < c->dev->gids; n++)
			gid_entry(&entries[n], &c->dev->gid[n]);
	end_errno(0);
	return err ? -err : n;
}

int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey) {
	int err = begin(ibv_query_pkey, P(context), port, index);
	struct ctx *c = ctx_get("ibv_query_pkey", context);

	if (!err && (!c || port < 1 || port > c->dev->attr.orig_attr.phys_port_cnt || index < 0 ||
		index >= c->dev->port[port - 1].pkey_tbl_len || index >= FAKE_PKEYS))
		err = EINVAL;
	if (!err)
		*pkey = htobe16(c->dev->pkey[index]);
	return end_rc(err);
}

int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey) {
	int err = begin(ibv_get_pkey_index, P(context), port, pkey);
	struct ctx *c = ctx_get("ibv_get_pkey_index", context);

	err = err ? err : !c || port < 1 || port > FAKE_PORTS ? EINVAL : 0;
	for (int i = 0; !err && i < c->dev->port[port - 1].pkey_tbl_len && i < FAKE_PKEYS; i++)
		if (c->dev->pkey[i] == be16toh(pkey))
			return end_errno(i);
	return end_rc(err ? err : EINVAL);
}

int ibv_fork_init(void) {
	int err = begin(ibv_fork_init, 0);

	err = err ? err : fake_fork_result;
	if (!err && fake_fork_status == IBV_FORK_DISABLED)
		fake_fork_status = IBV_FORK_ENABLED;
	return end_errno(err);
}

enum ibv_fork_status ibv_is_fork_initialized(void) {
	begin(ibv_is_fork_initialized, 0);
	return end_errno(fake_fork_status);
}

// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package fakeverbs

// The calls of a provider, for the tests of this package: Go does not allow cgo in test files.

/*
#include "fake.h"

static int call_query_port(struct ibv_context *c, int port, struct ibv_port_attr *attr) {
	return ibv_query_port(c, port, attr);
}
static struct ibv_mr *call_reg_mr(struct ibv_pd *pd, void *addr, size_t len, int access) {
	return ibv_reg_mr(pd, addr, len, access);
}
static int call_poll(struct ibv_cq *cq, int n, struct ibv_wc *wc) { return ibv_poll_cq(cq, n, wc); }
static uint32_t wc_imm(const struct ibv_wc *wc) { return be32toh(wc->imm_data); }
static int call_notify(struct ibv_cq *cq, int solicited) { return ibv_req_notify_cq(cq, solicited); }

struct simple { uint64_t wr_id, addr, remote_addr; uint32_t opcode, flags, len, lkey, rkey, imm; int num_sge; };

// bad is the index of bad_wr, -1 for NULL and -2 if it was not touched.
static int call_post(struct ibv_qp *qp, const struct simple *s, int n, int *bad) {
	struct ibv_send_wr wr[16], mark, *b = &mark;
	struct ibv_sge sge[16];
	int ret;

	memset(wr, 0, sizeof(wr));
	for (int i = 0; i < n; i++) {
		sge[i] = (struct ibv_sge){s[i].addr, s[i].len, s[i].lkey};
		wr[i].wr_id = s[i].wr_id;
		wr[i].next = i + 1 < n ? &wr[i + 1] : NULL;
		wr[i].sg_list = &sge[i];
		wr[i].num_sge = s[i].num_sge;
		wr[i].opcode = s[i].opcode;
		wr[i].send_flags = s[i].flags;
		wr[i].imm_data = htobe32(s[i].imm);
		wr[i].wr.rdma.remote_addr = s[i].remote_addr;
		wr[i].wr.rdma.rkey = s[i].rkey;
	}
	ret = ibv_post_send(qp, wr, &b);
	*bad = b == &mark ? -2 : b == NULL ? -1 : (int)(b - wr);
	return ret;
}

static int call_post_recv(struct ibv_qp *qp, uint64_t wr_id, uint64_t addr, uint32_t len, uint32_t lkey) {
	struct ibv_sge sge = {addr, len, lkey};
	struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1}, *bad;

	return ibv_post_recv(qp, &wr, &bad);
}

static int call_modify(struct ibv_qp *qp, int state, int mask, int dest) {
	struct ibv_qp_attr a = {.qp_state = state, .port_num = 1, .path_mtu = IBV_MTU_1024, .dest_qp_num = dest,
		.rq_psn = 5, .sq_psn = 6, .timeout = 14, .retry_cnt = 7, .rnr_retry = 6, .max_rd_atomic = 4,
		.max_dest_rd_atomic = 3, .min_rnr_timer = 12, .qp_access_flags = IBV_ACCESS_REMOTE_READ};

	a.ah_attr.is_global = 1;
	a.ah_attr.port_num = 1;
	a.ah_attr.grh.sgid_index = 3;
	return ibv_modify_qp(qp, &a, mask | IBV_QP_STATE);
}

static void *volatile lost;
__attribute__((noinline)) static void call_leak(void) {
	for (int i = 0; i < 8; i++) // so that no stray word keeps all of them
		lost = malloc(100);
	lost = NULL;
}

static void sockaddr4(struct sockaddr_storage *s, uint32_t ip, uint16_t port) {
	struct sockaddr_in *in = (struct sockaddr_in *)s;

	memset(s, 0, sizeof(*s));
	in->sin_family = AF_INET;
	in->sin_addr.s_addr = htobe32(ip);
	in->sin_port = htobe16(port);
}
*/
import "C"

import (
	"runtime"
	"syscall"
	"unsafe"
)

// An object is a C object; the zero object is NULL.
type object struct{ p unsafe.Pointer }

func errOf(ok bool, err error) error {
	if ok {
		return nil
	}
	return err
}

func result(rc C.int) error {
	if rc == 0 {
		return nil
	}
	if rc < 0 {
		return negative(rc)
	}
	return syscall.Errno(rc)
}

// A negative is a negative result of a function that does not set errno.
type negative int

func (n negative) Error() string { return "negative " + syscall.Errno(-n).Error() }

func callDevices() ([]object, error) {
	var n C.int
	list, err := C.ibv_get_device_list(&n)
	if list == nil {
		return nil, err
	}
	defer C.ibv_free_device_list(list)
	var all []object
	for _, d := range unsafe.Slice(list, n) {
		all = append(all, object{unsafe.Pointer(d)})
	}
	return all, nil
}

func (o object) name() string { return C.GoString(C.ibv_get_device_name((*C.struct_ibv_device)(o.p))) }

func (o object) open() (object, error) {
	c, err := C.ibv_open_device((*C.struct_ibv_device)(o.p))
	return object{unsafe.Pointer(c)}, errOf(c != nil, err)
}

func (o object) ctx() *C.struct_ibv_context { return (*C.struct_ibv_context)(o.p) }
func (o object) pd() *C.struct_ibv_pd       { return (*C.struct_ibv_pd)(o.p) }
func (o object) mr() *C.struct_ibv_mr       { return (*C.struct_ibv_mr)(o.p) }
func (o object) cq() *C.struct_ibv_cq       { return (*C.struct_ibv_cq)(o.p) }
func (o object) qp() *C.struct_ibv_qp       { return (*C.struct_ibv_qp)(o.p) }
func (o object) id() *C.struct_rdma_cm_id   { return (*C.struct_rdma_cm_id)(o.p) }
func (o object) ch() *C.struct_ibv_comp_channel {
	return (*C.struct_ibv_comp_channel)(o.p)
}
func (o object) ech() *C.struct_rdma_event_channel { return (*C.struct_rdma_event_channel)(o.p) }
func (o object) ev() *C.struct_rdma_cm_event       { return (*C.struct_rdma_cm_event)(o.p) }

func (o object) closeDevice() error {
	rc, err := C.ibv_close_device(o.ctx())
	return errOf(rc == 0, err)
}

func (o object) queryDevice() (maxQP int, err error) {
	var a C.struct_ibv_device_attr
	err = result(C.ibv_query_device(o.ctx(), &a))
	return int(a.max_qp), err
}

func (o object) queryPort(port int) (state int, err error) {
	var a C.struct_ibv_port_attr
	err = result(C.call_query_port(o.ctx(), C.int(port), &a))
	return int(a.state), err
}

func (o object) queryGID(index int) ([]byte, error) {
	var g C.union_ibv_gid
	rc, err := C.ibv_query_gid(o.ctx(), 1, C.int(index), &g)
	return C.GoBytes(unsafe.Pointer(&g), 16), errOf(rc == 0, err)
}

func (o object) gidTable(room int) (int, error) {
	entries := make([]C.struct_ibv_gid_entry, max(room, 1))
	n := C._ibv_query_gid_table(o.ctx(), &entries[0], C.size_t(room), 0, C.sizeof_struct_ibv_gid_entry)
	if n < 0 {
		return 0, negative(n)
	}
	return int(n), nil
}

func (o object) allocPD() (object, error) {
	p, err := C.ibv_alloc_pd(o.ctx())
	return object{unsafe.Pointer(p)}, errOf(p != nil, err)
}

func (o object) deallocPD() error { return result(C.ibv_dealloc_pd(o.pd())) }

func (o object) regMR(addr uint64, length, access int) (object, error) {
	m, err := C.call_reg_mr(o.pd(), *(*unsafe.Pointer)(unsafe.Pointer(&addr)), C.size_t(length), C.int(access))
	return object{unsafe.Pointer(m)}, errOf(m != nil, err)
}

func (o object) regDMABuf(offset uint64, length int, iova uint64, fd, access int) (object, error) {
	m, err := C.ibv_reg_dmabuf_mr(o.pd(), C.uint64_t(offset), C.size_t(length), C.uint64_t(iova), C.int(fd),
		C.int(access))
	return object{unsafe.Pointer(m)}, errOf(m != nil, err)
}

func (o object) lkey() uint32   { return uint32(o.mr().lkey) }
func (o object) rkey() uint32   { return uint32(o.mr().rkey) }
func (o object) deregMR() error { return result(C.ibv_dereg_mr(o.mr())) }

func (o object) rereg(flags, access int) (int, error) {
	rc, err := C.ibv_rereg_mr(o.mr(), C.int(flags), nil, nil, 0, C.int(access))
	return int(rc), errOf(rc == 0, err)
}

func (o object) createChannel() (object, error) {
	c, err := C.ibv_create_comp_channel(o.ctx())
	return object{unsafe.Pointer(c)}, errOf(c != nil, err)
}

func (o object) fd() int               { return int(o.ch().fd) }
func (o object) destroyChannel() error { return result(C.ibv_destroy_comp_channel(o.ch())) }

func (o object) createCQ(cqe int, channel object) (object, error) {
	c, err := C.ibv_create_cq(o.ctx(), C.int(cqe), nil, channel.ch(), 0)
	return object{unsafe.Pointer(c)}, errOf(c != nil, err)
}

func (o object) destroyCQ() error            { return result(C.ibv_destroy_cq(o.cq())) }
func (o object) notify(solicited bool) error { return result(C.call_notify(o.cq(), cbool(solicited))) }

func (o object) getEvent() (object, error) {
	var cq *C.struct_ibv_cq
	var context unsafe.Pointer
	rc, err := C.ibv_get_cq_event(o.ch(), &cq, &context)
	return object{unsafe.Pointer(cq)}, errOf(rc == 0, err)
}

func (o object) ackEvents(n int) { C.ibv_ack_cq_events(o.cq(), C.uint(n)) }

func (o object) poll(n int) ([]WC, error) {
	wcs := make([]C.struct_ibv_wc, n)
	got := C.call_poll(o.cq(), C.int(n), &wcs[0])
	if got < 0 {
		return nil, negative(got)
	}
	var all []WC
	for i := range wcs[:got] {
		w := &wcs[i]
		all = append(all, WC{WRID: uint64(w.wr_id), Status: uint32(w.status), Opcode: uint32(w.opcode),
			ByteLen: uint32(w.byte_len), Imm: uint32(C.wc_imm(w)), Flags: uint32(w.wc_flags)})
	}
	return all, nil
}

func (o object) createQP(typ int, send, recv object, wrs int) (object, error) {
	init := (*C.struct_ibv_qp_init_attr)(C.calloc(1, C.sizeof_struct_ibv_qp_init_attr))
	defer C.free(unsafe.Pointer(init))
	init.send_cq, init.recv_cq, init.qp_type = send.cq(), recv.cq(), uint32(typ)
	init.cap = C.struct_ibv_qp_cap{max_send_wr: C.uint32_t(wrs), max_recv_wr: C.uint32_t(wrs), max_send_sge: 4,
		max_recv_sge: 4}
	q, err := C.ibv_create_qp(o.pd(), init)
	return object{unsafe.Pointer(q)}, errOf(q != nil, err)
}

func (o object) num() uint32      { return uint32(o.qp().qp_num) }
func (o object) destroyQP() error { return result(C.ibv_destroy_qp(o.qp())) }

func (o object) modify(state, mask int) error { return o.modifyTo(state, mask, 7) }

func (o object) modifyTo(state, mask int, dest uint32) error {
	return result(C.call_modify(o.qp(), C.int(state), C.int(mask), C.int(dest)))
}

func (o object) queryState() (int, error) {
	var a C.struct_ibv_qp_attr
	var init C.struct_ibv_qp_init_attr
	err := result(C.ibv_query_qp(o.qp(), &a, C.IBV_QP_STATE, &init))
	return int(a.qp_state), err
}

// postSend posts wrs, at most 16, each with at most one SGE. It returns the index of the request
// that bad_wr points to, -1 for NULL, or -2 if it was not set.
func (o object) postSend(wrs ...WR) (bad int, err error) {
	s := (*[16]C.struct_simple)(C.calloc(16, C.sizeof_struct_simple))
	defer C.free(unsafe.Pointer(s))
	var pin runtime.Pinner
	defer pin.Unpin()
	for i, w := range wrs {
		s[i] = C.struct_simple{wr_id: C.uint64_t(w.WRID), opcode: C.uint32_t(w.Opcode), flags: C.uint32_t(w.Flags),
			remote_addr: C.uint64_t(w.RemoteAddr), rkey: C.uint32_t(w.RKey), imm: C.uint32_t(w.Imm),
			num_sge: C.int(w.NumSGE)}
		if w.NumSGE > 0 && len(w.SGEs) > 0 {
			s[i].addr, s[i].len, s[i].lkey = C.uint64_t(w.SGEs[0].Addr), C.uint32_t(w.SGEs[0].Length),
				C.uint32_t(w.SGEs[0].LKey)
		}
		if w.Inline != nil {
			pin.Pin(&w.Inline[0])
			s[i].addr, s[i].len = C.uint64_t(uintptr(unsafe.Pointer(&w.Inline[0]))), C.uint32_t(len(w.Inline))
		}
	}
	b := C.int(-2)
	rc := C.call_post(o.qp(), &s[0], C.int(len(wrs)), &b)
	return int(b), result(rc)
}

func (o object) postRecv(wrID uint64) error { return o.postRecvTo(wrID, SGE{0x1000, 64, 3}) }

func (o object) postRecvTo(wrID uint64, s SGE) error {
	return result(C.call_post_recv(o.qp(), C.uint64_t(wrID), C.uint64_t(s.Addr), C.uint32_t(s.Length),
		C.uint32_t(s.LKey)))
}

// callAlloc returns C memory and its address; callFree frees it.
func callAlloc(n int) ([]byte, uint64) {
	p := C.calloc(1, C.size_t(n))
	return unsafe.Slice((*byte)(p), n), uint64(uintptr(p))
}

func callFree(mem []byte) { C.free(unsafe.Pointer(unsafe.SliceData(mem))) }

func (o object) asyncFD() int { return int(o.ctx().async_fd) }

// getAsync returns the type of the next event, and the event to acknowledge.
func (o object) getAsync() (int, object, error) {
	ev := (*C.struct_ibv_async_event)(C.calloc(1, C.sizeof_struct_ibv_async_event))
	rc, err := C.ibv_get_async_event(o.ctx(), ev)
	if rc != 0 {
		C.free(unsafe.Pointer(ev))
		return 0, object{}, err
	}
	return int(ev.event_type), object{unsafe.Pointer(ev)}, nil
}

func (o object) ackAsync() {
	C.ibv_ack_async_event((*C.struct_ibv_async_event)(o.p))
	C.free(o.p)
}

func callForkInit() error { return result(C.ibv_fork_init()) }

func callLeak() { C.call_leak() }

// Connections.

func callEventChannel() (object, error) {
	c, err := C.rdma_create_event_channel()
	return object{unsafe.Pointer(c)}, errOf(c != nil, err)
}

func (o object) eventFD() int         { return int(o.ech().fd) }
func (o object) destroyEventChannel() { C.rdma_destroy_event_channel(o.ech()) }

func (o object) createID(ps int) (object, error) {
	p := (**C.struct_rdma_cm_id)(C.calloc(1, C.size_t(unsafe.Sizeof(uintptr(0)))))
	defer C.free(unsafe.Pointer(p))
	rc, err := C.rdma_create_id(o.ech(), p, nil, uint32(ps))
	return object{unsafe.Pointer(*p)}, errOf(rc == 0, err)
}

func (o object) destroyID() error {
	rc, err := C.rdma_destroy_id(o.id())
	return errOf(rc == 0, err)
}

func (o object) bind(ip uint32, port uint16) error {
	var s C.struct_sockaddr_storage
	C.sockaddr4(&s, C.uint32_t(ip), C.uint16_t(port))
	rc, err := C.rdma_bind_addr(o.id(), (*C.struct_sockaddr)(unsafe.Pointer(&s)))
	return errOf(rc == 0, err)
}

func (o object) listen(backlog int) error {
	rc, err := C.rdma_listen(o.id(), C.int(backlog))
	return errOf(rc == 0, err)
}

func (o object) resolveAddr(ip uint32, port uint16) error {
	var s C.struct_sockaddr_storage
	C.sockaddr4(&s, C.uint32_t(ip), C.uint16_t(port))
	rc, err := C.rdma_resolve_addr(o.id(), nil, (*C.struct_sockaddr)(unsafe.Pointer(&s)), 1000)
	return errOf(rc == 0, err)
}

func (o object) resolveRoute() error {
	rc, err := C.rdma_resolve_route(o.id(), 1000)
	return errOf(rc == 0, err)
}

func withParam(ev CMEvent, f func(*C.struct_rdma_conn_param) (C.int, error)) error {
	p := (*C.struct_rdma_conn_param)(C.calloc(1, C.sizeof_struct_rdma_conn_param))
	defer C.free(unsafe.Pointer(p))
	data := C.CBytes(ev.PrivateData)
	defer C.free(data)
	p.private_data, p.private_data_len = data, C.uint8_t(len(ev.PrivateData))
	p.responder_resources, p.initiator_depth = C.uint8_t(ev.ResponderResources), C.uint8_t(ev.InitiatorDepth)
	p.retry_count, p.qp_num = C.uint8_t(ev.RetryCount), C.uint32_t(ev.QPN)
	rc, err := f(p)
	return errOf(rc == 0, err)
}

func (o object) connect(ev CMEvent) error {
	return withParam(ev, func(p *C.struct_rdma_conn_param) (C.int, error) {
		rc, err := C.rdma_connect(o.id(), p)
		return rc, err
	})
}

func (o object) accept(ev CMEvent) error {
	return withParam(ev, func(p *C.struct_rdma_conn_param) (C.int, error) {
		rc, err := C.rdma_accept(o.id(), p)
		return rc, err
	})
}

func (o object) reject(data []byte) error {
	b := C.CBytes(data)
	defer C.free(b)
	rc, err := C.rdma_reject(o.id(), b, C.uint8_t(len(data)))
	return errOf(rc == 0, err)
}

func (o object) establish() error {
	rc, err := C.rdma_establish(o.id())
	return errOf(rc == 0, err)
}

func (o object) disconnect() error {
	rc, err := C.rdma_disconnect(o.id())
	return errOf(rc == 0, err)
}

func (o object) initAttr(state int) (mask, dest int, err error) {
	a := C.struct_ibv_qp_attr{qp_state: uint32(state)}
	var m C.int
	rc, err := C.rdma_init_qp_attr(o.id(), &a, &m)
	return int(m), int(a.dest_qp_num), errOf(rc == 0, err)
}

// getCM returns the next event, its contents, and its id and listener.
func (o object) getCM() (event object, ev CMEvent, id, listener object, err error) {
	p := (**C.struct_rdma_cm_event)(C.calloc(1, C.size_t(unsafe.Sizeof(uintptr(0)))))
	defer C.free(unsafe.Pointer(p))
	rc, err := C.rdma_get_cm_event(o.ech(), p)
	if rc != 0 {
		return object{}, CMEvent{}, object{}, object{}, err
	}
	c := *p
	conn := (*C.struct_rdma_conn_param)(unsafe.Pointer(&c.param))
	ev = CMEvent{Event: int(c.event), Status: int(c.status), ResponderResources: uint8(conn.responder_resources),
		InitiatorDepth: uint8(conn.initiator_depth), RetryCount: uint8(conn.retry_count), QPN: uint32(conn.qp_num),
		PrivateData: C.GoBytes(conn.private_data, C.int(conn.private_data_len))}
	return object{unsafe.Pointer(c)}, ev, object{unsafe.Pointer(c.id)}, object{unsafe.Pointer(c.listen_id)}, nil
}

func (o object) ackCM() error {
	rc, err := C.rdma_ack_cm_event(o.ev())
	return errOf(rc == 0, err)
}

func (o object) migrate(ch object) error {
	rc, err := C.rdma_migrate_id(o.id(), ch.ech())
	return errOf(rc == 0, err)
}

// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

#include "fake.h"

#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, len) ((void)0)
#define ASAN_UNPOISON_MEMORY_REGION(at, len) ((void)0)
#endif

pthread_mutex_t fake_mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
int fake_hot, fake_auto, fake_loop, fake_newer, fake_block_ms = 2000;

// Faults.

#define FAULTS 256
static char *faults[FAULTS];
static int nfaults;

void fault(const char *format, ...) {
	char *text;
	va_list args;

	va_start(args, format);
	if (nfaults < FAULTS && vasprintf(&text, format, args) >= 0)
		faults[nfaults++] = text;
	va_end(args);
}

int fake_take_fault(char *text, size_t len) {
	int n;

	pthread_mutex_lock(&fake_mu);
	n = nfaults;
	if (n > 0) {
		snprintf(text, len, "%s", faults[0]);
		free(faults[0]);
		memmove(faults, faults + 1, --nfaults * sizeof(*faults));
	}
	pthread_mutex_unlock(&fake_mu);
	return n;
}

// Calls.

static const char *const names[] = {
#define X(name) #name,
	FAKE_FUNCS(X)
#undef X
};

struct rule {
	struct rule *next;
	enum fake_fn fn;
	uint64_t at; // the count of the call
	int err;
	bool post, after;
	struct post_fail fail;
};

static uint64_t counts[FN_COUNT];
static struct fake_call last[FN_COUNT];
static struct rule *rules;

const char *fake_fn_name(int fn) {
	return names[fn];
}

int fake_fn_by_name(const char *name) {
	for (int i = 0; i < FN_COUNT; i++)
		if (!strcmp(names[i], name))
			return i;
	return -1;
}

static struct rule *take_rule(enum fake_fn fn, bool post) {
	for (struct rule **r = &rules; *r; r = &(*r)->next) {
		struct rule *found = *r;

		if (found->fn == fn && found->at == counts[fn] && found->post == post) {
			*r = found->next;
			return found;
		}
	}
	return NULL;
}

// The function whose next call is delayed, or FN_COUNT, and by how much.
static int late = FN_COUNT;
static int late_us;

void fake_delay(int fn, int us) {
	late_us = us;
	__atomic_store_n(&late, fn, __ATOMIC_SEQ_CST);
}

bool fake_delaying(void) { return __atomic_load_n(&late, __ATOMIC_SEQ_CST) == FN_COUNT; }

// The function whose next call is held until it is released, or FN_COUNT, and whether one is
// waiting.
static pthread_mutex_t hold_mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t hold_cond = PTHREAD_COND_INITIALIZER;
static int hold_fn = FN_COUNT;
static bool hold_waits;

static void hold_set(int fn) {
	pthread_mutex_lock(&hold_mu);
	hold_fn = fn;
	pthread_cond_broadcast(&hold_cond);
	pthread_mutex_unlock(&hold_mu);
}

void fake_hold(int fn) { hold_set(fn); }

void fake_release(void) { hold_set(FN_COUNT); }

bool fake_holding(void) {
	bool waits;

	pthread_mutex_lock(&hold_mu);
	waits = hold_waits;
	pthread_mutex_unlock(&hold_mu);
	return waits;
}

static void hold(enum fake_fn fn) {
	pthread_mutex_lock(&hold_mu);
	if (hold_fn == (int)fn && !hold_waits) {
		hold_waits = true;
		while (hold_fn == (int)fn)
			pthread_cond_wait(&hold_cond, &hold_mu);
		hold_waits = false;
	}
	pthread_mutex_unlock(&hold_mu);
}

// The errno of a call in progress that is to fail after doing its work.
static int failing_after;

int fake_begin(enum fake_fn fn, int nargs, const uint64_t *args) {
	struct rule *r;
	int err = 0, this = fn;

	if (__atomic_compare_exchange_n(&late, &this, FN_COUNT, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		usleep((unsigned int)late_us);
	hold(fn);
	pthread_mutex_lock(&fake_mu);
	counts[fn]++;
	last[fn] = (struct fake_call){.fn = fn, .nargs = nargs};
	memcpy(last[fn].args, args, nargs * sizeof(*args));
	r = take_rule(fn, false);
	if (r && r->after)
		failing_after = r->err;
	else if (r)
		err = r->err;
	free(r);
	return err;
}

void fake_note(enum fake_fn fn, uint64_t arg0) {
	last[fn].args[0] = arg0;
}

struct post_fail fake_post_fail(enum fake_fn fn) {
	struct rule *r = take_rule(fn, true);
	struct post_fail f = {0};

	if (r)
		f = r->fail;
	free(r);
	return f;
}

// finish returns the errno of a call with this outcome, and releases the lock.
static int finish(int err) {
	err = err ? err : failing_after;
	failing_after = 0;
	pthread_mutex_unlock(&fake_mu);
	return err;
}

int end_errno(int err) {
	return finish(err);
}

int end_rc(int err) {
	err = finish(err);
	if (!err)
		return 0;
	errno = err;
	return -1;
}

void *end_ptr(void *pub, int err) {
	pthread_mutex_unlock(&fake_mu);
	if (!err)
		return pub;
	errno = err;
	return NULL;
}

static void add_rule(struct rule r, uint64_t nth) {
	struct rule *p = malloc(sizeof(*p));

	pthread_mutex_lock(&fake_mu);
	*p = r;
	p->at = counts[r.fn] + nth;
	p->next = rules;
	rules = p;
	pthread_mutex_unlock(&fake_mu);
}

void fake_fail(int fn, uint64_t nth, int err) {
	add_rule((struct rule){.fn = fn, .err = err}, nth);
}

void fake_fail_after(int fn, uint64_t nth, int err) {
	add_rule((struct rule){.fn = fn, .err = err, .after = true}, nth);
}

void fake_fail_post(int fn, uint64_t nth, int index, int result, bool no_bad) {
	add_rule((struct rule){.fn = fn, .post = true, .fail = {true, no_bad, index, result}}, nth);
}

uint64_t fake_count(int fn) {
	uint64_t n;

	pthread_mutex_lock(&fake_mu);
	n = counts[fn];
	pthread_mutex_unlock(&fake_mu);
	return n;
}

int fake_last_call(int fn, struct fake_call *call) {
	int made;

	pthread_mutex_lock(&fake_mu);
	*call = last[fn];
	made = counts[fn] > 0;
	pthread_mutex_unlock(&fake_mu);
	return made;
}

void fake_set(int *what, int value) {
	pthread_mutex_lock(&fake_mu);
	*what = value;
	pthread_mutex_unlock(&fake_mu);
}

void fake_lock(void) {
	pthread_mutex_lock(&fake_mu);
}

void fake_unlock(void) {
	pthread_mutex_unlock(&fake_mu);
}

// Objects.

#define BUCKETS 1024
static struct obj *buckets[BUCKETS];
static uint32_t ids[K_COUNT];

static struct obj **bucket(const void *pub) {
	return &buckets[(P(pub) >> 4) * 2654435761u >> 7 & (BUCKETS - 1)];
}

const char *kind_name(enum fake_kind kind) {
	static const char *const kinds[] = {"context", "PD", "MR", "MW", "completion channel", "CQ", "QP", "SRQ", "AH",
		"event channel", "id", "event"};

	return kinds[kind];
}

void *obj_new(enum fake_kind kind, size_t size, size_t pub_at, size_t pub_len) {
	struct obj *o = calloc(1, size), **b;

	o->kind = kind;
	o->id = ++ids[kind];
	o->pub = (char *)o + pub_at;
	o->len = pub_len;
	b = bucket(o->pub);
	o->next = *b;
	*b = o;
	return o;
}

void obj_up(struct obj *o, int i, struct obj *parent) {
	if (o->up[i])
		o->up[i]->refs--;
	o->up[i] = parent;
	if (parent)
		parent->refs++;
}

struct obj *obj_peek(enum fake_kind kind, const void *pub) {
	for (struct obj *o = *bucket(pub); o; o = o->next)
		if (o->pub == pub && o->kind == kind)
			return o;
	return NULL;
}

struct obj *obj_get_dying(const char *fn, enum fake_kind kind, const void *pub) {
	struct obj *o = obj_peek(kind, pub);

	if (!o)
		fault("%s: no %s is at %p", fn, kind_name(kind), pub);
	else if (o->dead)
		fault("%s: %s %u was destroyed before", fn, kind_name(kind), o->id);
	else
		return o;
	return NULL;
}

struct obj *obj_get(const char *fn, enum fake_kind kind, const void *pub) {
	struct obj *o = obj_get_dying(fn, kind, pub);

	if (o && o->dying) {
		fault("%s: %s %u is being destroyed", fn, kind_name(kind), o->id);
		return NULL;
	}
	return o;
}

struct obj *obj_find(enum fake_kind kind, bool (*match)(const struct obj *, uint32_t), uint32_t what) {
	for (int i = 0; i < BUCKETS; i++)
		for (struct obj *o = buckets[i]; o; o = o->next)
			if (o->kind == kind && !o->dead && match(o, what))
				return o;
	return NULL;
}

static bool has_id(const struct obj *o, uint32_t id) {
	return o->id == id;
}

struct obj *obj_by_id(enum fake_kind kind, uint32_t id) {
	return obj_find(kind, has_id, id);
}

struct obj *obj_next(enum fake_kind kind, const struct obj *after) {
	struct obj *best = NULL;

	for (int i = 0; i < BUCKETS; i++)
		for (struct obj *o = buckets[i]; o; o = o->next)
			if (o->kind == kind && !o->dead && (!after || o->id > after->id) && (!best || o->id < best->id))
				best = o;
	return best;
}

int obj_busy(const char *fn, struct obj *o) {
	if (o->refs == 0)
		return 0;
	fault("%s: %s %u is still used by %d objects", fn, kind_name(o->kind), o->id, o->refs);
	return EBUSY;
}

void obj_kill(struct obj *o) {
	for (int i = 0; i < 5; i++)
		obj_up(o, i, NULL);
	o->dying = false;
	o->dead = true;
	ASAN_POISON_MEMORY_REGION(o->pub, o->len);
}

int fake_live(int kind) {
	int n = 0;

	pthread_mutex_lock(&fake_mu);
	for (int i = 0; i < BUCKETS; i++)
		for (struct obj *o = buckets[i]; o; o = o->next)
			n += o->kind == (enum fake_kind)kind && !o->dead && !o->own;
	pthread_mutex_unlock(&fake_mu);
	return n;
}

uint32_t fake_last_id(int kind) {
	uint32_t id;

	pthread_mutex_lock(&fake_mu);
	id = ids[kind];
	pthread_mutex_unlock(&fake_mu);
	return id;
}

// Waiting for acknowledgements.

void acked(void) {
	pthread_cond_broadcast(&changed);
}

void wait_acked(const char *fn, struct obj *o, const uint32_t *completed, const unsigned *reported) {
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += fake_block_ms / 1000;
	until.tv_nsec += fake_block_ms % 1000 * 1000000L;
	if (until.tv_nsec >= 1000000000L) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000L;
	}
	while (*completed != *reported) {
		if (pthread_cond_timedwait(&changed, &fake_mu, &until) == ETIMEDOUT && *completed != *reported) {
			fault("%s: blocked on %s %u: %u events are not acknowledged", fn, kind_name(o->kind), o->id,
				*reported - *completed);
			return;
		}
	}
}

// Queues of events.

int evq_open(struct evq *q) {
	q->head = NULL;
	q->tail = &q->head;
	q->fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
	return q->fd < 0 ? errno : 0;
}

void evq_close(struct evq *q) {
	while (q->head) {
		struct ev *e = q->head;

		q->head = e->next;
		free(e);
	}
	q->tail = &q->head;
	close(q->fd);
}

void evq_push(struct evq *q, struct ev *e) {
	uint64_t one = 1;

	e->next = NULL;
	*q->tail = e;
	q->tail = &e->next;
	if (write(q->fd, &one, sizeof(one)) != sizeof(one))
		fault("eventfd: %s", strerror(errno));
}

// The count of the descriptor is the length of the list, and both change only under fake_mu, so
// this read never blocks.
static void evq_less(struct evq *q) {
	uint64_t one;

	if (read(q->fd, &one, sizeof(one)) != sizeof(one))
		fault("eventfd: %s", strerror(errno));
}

struct ev *evq_get(const char *fn, struct evq *q, struct obj *owner) {
	struct ev *e;

	for (int waited = 0; !q->head; waited += 20) {
		struct pollfd p = {.fd = q->fd, .events = POLLIN};

		if (fcntl(q->fd, F_GETFL) & O_NONBLOCK) {
			errno = EAGAIN;
			return NULL;
		}
		if (waited >= fake_block_ms) {
			fault("%s: blocked without an event", fn);
			errno = EINTR;
			return NULL;
		}
		pthread_mutex_unlock(&fake_mu);
		poll(&p, 1, 20);
		pthread_mutex_lock(&fake_mu);
		if (owner->dead) {
			fault("%s: %s %u was destroyed during the wait", fn, kind_name(owner->kind), owner->id);
			errno = EBADF;
			return NULL;
		}
	}
	e = q->head;
	q->head = e->next;
	if (!q->head)
		q->tail = &q->head;
	evq_less(q);
	return e;
}

int evq_drop(struct evq *q, struct obj *about, struct evq *into) {
	int n = 0;

	for (struct ev **p = &q->head; *p;) {
		struct ev *e = *p;

		if (e->about != about) {
			p = &e->next;
			continue;
		}
		*p = e->next;
		evq_less(q);
		if (into)
			evq_push(into, e);
		else
			free(e);
		n++;
	}
	q->tail = &q->head;
	while (*q->tail)
		q->tail = &(*q->tail)->next;
	return n;
}

// fake_reset clears calls, rules, faults and destroyed objects. Live objects remain as they are.
void fake_reset(void) {
	struct obj *graves = NULL;

	fake_reset_cm();
	fake_release();
	pthread_mutex_lock(&fake_mu);
	memset(counts, 0, sizeof(counts));
	memset(last, 0, sizeof(last));
	while (rules) {
		struct rule *r = rules;

		rules = r->next;
		free(r);
	}
	while (nfaults > 0)
		free(faults[--nfaults]);
	for (int i = 0; i < BUCKETS; i++)
		for (struct obj **p = &buckets[i]; *p;) {
			struct obj *o = *p;

			if (o->dead) {
				*p = o->next;
				o->next = graves;
				graves = o;
			} else {
				p = &o->next;
			}
		}
	while (graves) {
		struct obj *o = graves;

		graves = o->next;
		ASAN_UNPOISON_MEMORY_REGION(o->pub, o->len);
		free(o);
	}
	fake_reset_posted();
	fake_auto = fake_loop = fake_newer = fake_late_flush = 0;
	fake_block_ms = 2000;
	late = FN_COUNT;
	pthread_mutex_unlock(&fake_mu);
}

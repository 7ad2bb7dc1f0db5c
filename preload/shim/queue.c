// SPDX-License-Identifier: BSD-3-Clause

// Queues of events for the program, and counters of acknowledged events.

#include "shim.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

bool queue_init(struct queue *q)
{
	q->fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	if (q->fd < 0)
		return false;
	pthread_mutex_init(&q->mu, NULL);
	return true;
}

void queue_free(struct queue *q)
{
	close(q->fd);
	pthread_mutex_destroy(&q->mu);
}

void queue_push(struct queue *q, struct node *n)
{
	uint64_t one = 1;
	n->next = NULL;
	pthread_mutex_lock(&q->mu);
	if (q->tail)
		q->tail->next = n;
	else
		q->head = n;
	q->tail = n;
	while (write(q->fd, &one, sizeof one) < 0 && errno == EINTR)
		;
	pthread_mutex_unlock(&q->mu);
}

static struct node *first(struct queue *q, bool (*match)(struct node *, void *), void *arg)
{
	struct node *before = NULL, *n = q->head;
	while (n && match && !match(n, arg)) {
		before = n;
		n = n->next;
	}
	if (!n)
		return NULL;
	if (before)
		before->next = n->next;
	else
		q->head = n->next;
	if (q->tail == n)
		q->tail = before;
	return n;
}

struct node *queue_pull(struct queue *q)
{
	for (;;) {
		uint64_t one;
		if (!alive()) // the descriptor belongs to the parent
			return NULL;
		if (read(q->fd, &one, sizeof one) != sizeof one)
			return NULL;
		pthread_mutex_lock(&q->mu);
		struct node *n = first(q, NULL, NULL);
		pthread_mutex_unlock(&q->mu);
		if (n)
			return n; // otherwise queue_take was faster
	}
}

// uncount takes one from the eventfd. If the count is 0, a reader has taken it and will find the
// list one node shorter.
static void uncount(struct queue *q)
{
	uint64_t one;
	struct iovec v = {&one, sizeof one};
	struct pollfd p = {q->fd, POLLIN, 0};
	if (preadv2(q->fd, &v, 1, -1, RWF_NOWAIT) < 0 && (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL || errno == ESPIPE) &&
	    poll(&p, 1, 0) == 1)
		(void)!read(q->fd, &one, sizeof one);
}

struct node *queue_take(struct queue *q, bool (*match)(struct node *, void *), void *arg)
{
	pthread_mutex_lock(&q->mu);
	struct node *n = first(q, match, arg);
	if (n)
		uncount(q);
	pthread_mutex_unlock(&q->mu);
	return n;
}

void acks_init(struct acks *a)
{
	pthread_mutex_init(&a->mu, NULL);
	pthread_cond_init(&a->all, NULL);
}

void acks_give(struct acks *a)
{
	pthread_mutex_lock(&a->mu);
	a->given++;
	pthread_mutex_unlock(&a->mu);
}

void acks_ack(struct acks *a, unsigned n)
{
	pthread_mutex_lock(&a->mu);
	a->acked += n;
	pthread_cond_broadcast(&a->all);
	pthread_mutex_unlock(&a->mu);
}

void acks_wait(struct acks *a)
{
	pthread_mutex_lock(&a->mu);
	while (a->acked != a->given)
		pthread_cond_wait(&a->all, &a->mu);
	pthread_mutex_unlock(&a->mu);
}

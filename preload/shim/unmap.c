// SPDX-License-Identifier: BSD-3-Clause

// Memory that the program unmaps while it is registered. A kernel device holds on to the pages, but
// this one only has the program's addresses. So the region is closed first: requests of peers for
// it then fail, and nothing touches unmapped memory.
//
// Only calls of munmap by the program and its libraries are noticed, not those within the C
// library, as in free.

#include "shim.h"

#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER; // guards the list
static struct mr *regions;
static int count; // length of the list, read without the lock

void region_add(struct mr *m)
{
	pthread_mutex_lock(&mu);
	m->next = regions;
	regions = m;
	__atomic_add_fetch(&count, 1, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&mu);
}

void region_remove(struct mr *m)
{
	pthread_mutex_lock(&mu);
	for (struct mr **p = &regions; *p; p = &(*p)->next)
		if (*p == m) {
			*p = m->next;
			__atomic_sub_fetch(&count, 1, __ATOMIC_RELEASE);
			break;
		}
	pthread_mutex_unlock(&mu);
}

static bool overlap(const struct ibv_mr *m, uintptr_t at, size_t length)
{
	uintptr_t from = (uintptr_t)m->addr;
	return from < at + length && at < from + m->length;
}

PUBLIC int munmap(void *addr, size_t length)
{
	if (__atomic_load_n(&count, __ATOMIC_ACQUIRE) && alive()) {
		int before = errno;
		pthread_mutex_lock(&mu);
		for (struct mr *m = regions; m; m = m->next)
			if (overlap(&m->m, (uintptr_t)addr, length))
				go.revoke(m->m.handle);
		pthread_mutex_unlock(&mu);
		errno = before;
	}
	return syscall(SYS_munmap, addr, length);
}

// SPDX-License-Identifier: BSD-3-Clause

// The Go library, opened on the first use of RDMA, so that a process that forks before has no Go
// runtime.

#include "shim.h"

#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

#define LIBRARY "libgoverbs-rnic.so"

static bool forked; // set in a child, which starts with a single thread

static int gone(void)
{
	static bool told;
	if (forked && !told)
		fprintf(stderr, "goverbs run: process %d was forked after its parent had used RDMA: it has no device\n", (int)getpid());
	told = true;
	return ENODEV;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define F(name, args) static int gone_##name args { return gone(); }
RNIC_CALLS(F)
#undef F
#pragma GCC diagnostic pop

#define F(name, args) .name = gone_##name,
static const struct rnic_calls nobody = {RNIC_CALLS(F)};
struct rnic_calls go = {RNIC_CALLS(F)};
#undef F

const struct rnic_events events = {.cq = cq_event, .async = async_event, .cm = cm_event};

static void in_child(void)
{
	go = nobody;
	forked = true;
}

// path returns the path of the Go library, next to this one.
static bool path(char *to, size_t size)
{
	Dl_info here;
	if (!dladdr(&go, &here) || !here.dli_fname)
		return false;
	char *self = realpath(here.dli_fname, NULL);
	if (!self)
		return false;
	char *slash = strrchr(self, '/');
	int n = snprintf(to, size, "%.*s/%s", slash ? (int)(slash - self) : 0, self, LIBRARY);
	free(self);
	return n > 0 && (size_t)n < size;
}

static void open_library(void)
{
	char file[4096];
	if (!path(file, sizeof file)) {
		fprintf(stderr, "goverbs run: where %s is cannot be found out: %s\n", LIBRARY, strerror(errno));
		return;
	}
	signals_before();
	void *lib = real_dlopen()(file, RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		fprintf(stderr, "goverbs run: %s\n", dlerror());
		return;
	}
	struct rnic_calls calls;
#define F(name, args) if (!(*(void **)&calls.name = dlsym(lib, "rnic_" #name))) { fprintf(stderr, "goverbs run: %s\n", dlerror()); return; }
	RNIC_CALLS(F)
#undef F
	if (calls.start(&events, options())) // has printed the reason
		return;
	signals_after((void *)calls.start);
	pthread_atfork(NULL, NULL, in_child);
	go = calls;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;

bool ready(void)
{
	pthread_once(&once, open_library);
	if (go.start != gone_start)
		return true;
	errno = gone();
	return false;
}

bool alive(void)
{
	if (!forked)
		return true;
	errno = gone();
	return false;
}

// Writes the rest of a capture.
__attribute__((destructor)) static void at_exit(void)
{
	if (go.stop != gone_stop)
		go.stop();
}

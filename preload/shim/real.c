// SPDX-License-Identifier: BSD-3-Clause

// Devices of the kernel beside the RNIC.

#include "shim.h"

#include <dlfcn.h>
#include <stdio.h>

#ifndef REAL_LIBRARY // a test has its own
#define REAL_LIBRARY "libibverbs.so.1"
#endif

static struct real_calls theirs;
static bool complete; // theirs has all functions

// find_theirs opens the library, which is there already if the program is linked with it, and finds what is not here.
static void find_theirs(void)
{
	void *lib = real_dlopen()(REAL_LIBRARY, RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		fprintf(stderr, "goverbs run: %s\n", dlerror());
		return;
	}
#define F(name) if (!(*(void **)&theirs.name = dlsym(lib, #name))) { fprintf(stderr, "goverbs run: %s\n", dlerror()); return; }
	REAL_CALLS(F)
#undef F
	complete = true;
}

const struct real_calls *real(void) { return &theirs; } // kept has found them: the program has the object from there

const struct real_calls *kept(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	if (!set(options()->keep_real))
		return NULL;
	pthread_once(&once, find_theirs);
	return complete ? &theirs : NULL;
}

// SPDX-License-Identifier: BSD-3-Clause

// Kernel devices next to the RNIC.

#include "shim.h"

#include <dlfcn.h>
#include <stdio.h>

#ifndef REAL_LIBRARY // a test sets its own
#define REAL_LIBRARY "libibverbs.so.1"
#endif

static struct real_calls theirs;
static bool complete; // the library has all functions

// find_theirs opens the library, which is already loaded if the program is linked with it, and
// looks up the functions.
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

const struct real_calls *real(void) { return &theirs; } // looked up by kept, from which the object came

const struct real_calls *kept(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	if (!set(options()->keep_real))
		return NULL;
	pthread_once(&once, find_theirs);
	return complete ? &theirs : NULL;
}

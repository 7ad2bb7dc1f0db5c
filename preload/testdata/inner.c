// SPDX-License-Identifier: BSD-3-Clause

// A library that opens another one, in a directory that only it names (DT_RUNPATH). Built with
// INNER, it is that other library.
#include <dlfcn.h>

#ifdef INNER
int inner(void) { return 7; }
#else
int open_inner(void)
{
	void *lib = dlopen("libinner.so", RTLD_NOW);
	int (*inner)(void);
	if (!lib)
		return -1;
	*(void **)&inner = dlsym(lib, "inner");
	return inner ? inner() : -2;
}
#endif

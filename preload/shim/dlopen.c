// SPDX-License-Identifier: BSD-3-Clause

// A program that opens libibverbs or librdmacm itself gets the functions of the real library from
// dlsym, which the preload cannot intercept. A message says so.

#include "shim.h"

#include <dlfcn.h>

static const struct { const char *name, *what; } libraries[] = {
	{"libibverbs.so", "dlopen of libibverbs"}, {"librdmacm.so", "dlopen of librdmacm"}};

static void look(const char *file)
{
	if (!file)
		return;
	const char *slash = strrchr(file, '/');
	const char *base = slash ? slash + 1 : file;
	for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++)
		if (!strncmp(base, libraries[i].name, strlen(libraries[i].name)))
			say_once(libraries[i].what, "the program gets the real library, which does not have the RNIC");
}

void *(*real_dlopen(void))(const char *, int)
{
	static void *(*real)(const char *, int);
	void *(*f)(const char *, int) = __atomic_load_n(&real, __ATOMIC_RELAXED);
	if (!f) {
		*(void **)&f = dlsym(RTLD_NEXT, "dlopen");
		__atomic_store_n(&real, f, __ATOMIC_RELAXED);
	}
	return f;
}

// dlopen searches directories of its caller (DT_RUNPATH, $ORIGIN), which it identifies by the
// return address. So this must be a jump rather than a call; the attribute makes the compiler emit
// one.
__attribute__((optimize("optimize-sibling-calls"))) PUBLIC void *dlopen(const char *file, int flags)
{
	look(file);
	return real_dlopen()(file, flags);
}

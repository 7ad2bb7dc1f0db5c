// SPDX-License-Identifier: BSD-3-Clause

// The options of goverbs run. They are passed in the environment and copied when this library is
// loaded, because a program may later overwrite its environment with its title (setproctitle).

#include "shim.h"

#include <stdio.h>

static struct rnic_options taken;

static void take(void)
{
#define F(name, variable) { const char *v = getenv(variable); taken.name = strdup(v ? v : ""); }
	RNIC_OPTIONS(F)
#undef F
}

const struct rnic_options *options(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, take); // the constructor of another library may run first
	return &taken;
}

__attribute__((constructor)) static void at_load(void) { options(); }

bool set(const char *option) { return option && *option && strcmp(option, "0"); }

#define MOST 256

void say_once(const char *what, const char *why)
{
	static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
	static const char *told[MOST]; // literals
	static int n;
	pthread_mutex_lock(&mu);
	for (int i = 0; i < n; i++)
		if (!strcmp(told[i], what))
			goto out;
	if (n < MOST)
		told[n++] = what;
	fprintf(stderr, "goverbs run: %s: %s\n", what, why);
out:
	pthread_mutex_unlock(&mu);
}

void refused(const char *what)
{
	if (set(options()->verbose))
		say_once(what, "the device does not have it");
}

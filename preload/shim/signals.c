// SPDX-License-Identifier: BSD-3-Clause

// Handlers of SIGSEGV and SIGBUS that the program installs after the Go library has installed its
// own. The Go library needs its handlers: an access to unmapped memory of a region invalidates the
// region rather than killing the process. So faults in its code go to it, and all others to the
// program.
//
// Before the Go library is opened, and for all other signals, sigaction and signal are those of the
// C library.

#define _GNU_SOURCE
#include "shim.h"

#include <dlfcn.h>
#include <link.h>
#include <signal.h>
#include <stdint.h>
#include <ucontext.h>

enum { GUARDED = 2 };
static const int guarded[GUARDED] = {SIGSEGV, SIGBUS};

static struct sigaction rnic[GUARDED], program[GUARDED]; // the actions of both, as the kernel would have them
static uintptr_t code, code_end;                         // the Go library's; 0 = not open

static int kernels(int sig, const struct sigaction *act, struct sigaction *old)
{
	static int (*f)(int, const struct sigaction *, struct sigaction *);
	if (!f)
		f = dlsym(RTLD_NEXT, "sigaction");
	return f(sig, act, old);
}

// A signal may arrive before the program's first call of these functions, in a place where dlsym is
// not allowed.
__attribute__((constructor)) static void begin(void) { kernels(SIGSEGV, NULL, &program[0]); }

static int index_of(int sig)
{
	for (int i = 0; code && i < GUARDED; i++)
		if (guarded[i] == sig)
			return i;
	return -1;
}

static uintptr_t counter(void *context)
{
#if defined(__x86_64__)
	return ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
	return ((ucontext_t *)context)->uc_mcontext.pc;
#else
	(void)context;
	return 0;
#endif
}

static void on_fault(int sig, siginfo_t *info, void *context)
{
	int i = index_of(sig);
	bool fault = info->si_code > 0; // otherwise it was sent by a process
	if (fault && counter(context) - code < code_end - code) {
		rnic[i].sa_sigaction(sig, info, context);
		return;
	}
	struct sigaction act = program[i];
	if (act.sa_handler == SIG_IGN && !fault)
		return;
	if (act.sa_handler == SIG_IGN || act.sa_handler == SIG_DFL) {
		struct sigaction end = {.sa_handler = SIG_DFL};
		kernels(sig, &end, NULL);
		if (!fault)
			raise(sig);
		return; // to the faulting instruction
	}
	if (act.sa_flags & SA_RESETHAND)
		program[i].sa_handler = SIG_DFL;
	sigset_t mask; // the mask that the kernel would set; on_fault blocks all signals
	sigorset(&mask, &((ucontext_t *)context)->uc_sigmask, &act.sa_mask);
	if (!(act.sa_flags & SA_NODEFER))
		sigaddset(&mask, sig);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	if (act.sa_flags & SA_SIGINFO)
		act.sa_sigaction(sig, info, context);
	else
		act.sa_handler(sig);
}

PUBLIC int sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	int i = index_of(sig);
	if (i < 0)
		return kernels(sig, act, old);
	struct sigaction before = program[i];
	if (act) {
		struct sigaction ours = *act;
		ours.sa_sigaction = on_fault;
		ours.sa_flags = (act->sa_flags & SA_RESTART) | SA_SIGINFO | SA_ONSTACK; // the stacks of goroutines are small
		sigfillset(&ours.sa_mask);
		program[i] = *act;
		if (kernels(sig, &ours, NULL)) {
			program[i] = before;
			return -1;
		}
	}
	if (old)
		*old = before;
	return 0;
}

PUBLIC sighandler_t signal(int sig, sighandler_t handler)
{
	struct sigaction act = {.sa_handler = handler, .sa_flags = SA_RESTART}, old;
	if (handler == SIG_ERR || sigaction(sig, &act, &old)) {
		errno = EINVAL;
		return SIG_ERR;
	}
	return old.sa_handler;
}

void signals_before(void)
{
	for (int i = 0; i < GUARDED; i++)
		kernels(guarded[i], NULL, &program[i]);
}

// within finds the segment that contains the code at *at.
static int within(struct dl_phdr_info *info, size_t size, void *at)
{
	(void)size;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *h = &info->dlpi_phdr[i];
		uintptr_t from = info->dlpi_addr + h->p_vaddr;
		if (h->p_type == PT_LOAD && h->p_flags & PF_X && *(uintptr_t *)at - from < h->p_memsz) {
			code = from;
			code_end = from + h->p_memsz;
			return 1;
		}
	}
	return 0;
}

void signals_after(void *function)
{
	uintptr_t at = (uintptr_t)function;
	for (int i = 0; i < GUARDED; i++)
		kernels(guarded[i], NULL, &rnic[i]);
	dl_iterate_phdr(within, &at);
}

/* Lets user-mode Linux run on a CPU with more registers than it knows of.
 *
 * Linux 6.1 for user mode keeps 2696 bytes of a process's extended registers, which is what AVX-512 takes. The host takes all of them
 * or none (arch/x86/kernel/fpu/regset.c, xstateregs_set): with AMX 11008 bytes, and the guest's first process dies of the refusal.
 * Loaded before the C library, this fills up what is missing with what the process has. Kernels since 6.13 ask for the size. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

typedef long (*ptrace_call)(enum __ptrace_request, ...);

long ptrace(enum __ptrace_request request, ...)
{
	static ptrace_call next;
	/* One thread of the guest's kernel traces. */
	static char all[65536];
	struct iovec *given, whole = { all, sizeof(all) };
	void *addr, *data;
	va_list rest;
	pid_t pid;

	if (!next)
		next = (ptrace_call)dlsym(RTLD_NEXT, "ptrace");
	va_start(rest, request);
	pid = va_arg(rest, pid_t);
	addr = va_arg(rest, void *);
	data = va_arg(rest, void *);
	va_end(rest);
	if (request != PTRACE_SETREGSET || addr != (void *)NT_X86_XSTATE)
		return next(request, pid, addr, data);

	given = data;
	if (next(PTRACE_GETREGSET, pid, addr, &whole) < 0 || whole.iov_len <= given->iov_len)
		return next(request, pid, addr, data);
	memcpy(all, given->iov_base, given->iov_len);
	return next(request, pid, addr, &whole);
}

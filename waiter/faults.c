/*
 * A handler in front of the Go runtime's, for the signals of a program's own faults.
 *
 * The Go runtime takes such a signal for its own fault, and ends the program, unless its siginfo has the code of
 * kill(2) or tgkill(2). An app of user 0 can send others: by rt_sigqueueinfo(2) any code below 0, such as SI_QUEUE,
 * and by a file that it has (fcntl(2), F_SETSIG) SI_SIGIO, which is below 0 too. Only the kernel sends
 * codes above 0, for a fault (siginfo_t in sigaction(2)). This handler drops the former and passes the latter to the Go
 * runtime, which reports the fault with its goroutines.
 */
#define _GNU_SOURCE
#include "waiter.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A signal's action as the kernel has it (rt_sigaction(2)). The C library would put its own restorer there. */
struct kernel_action {
	void (*handler)(int, siginfo_t *, void *);
	unsigned long flags;
	void (*restorer)(void);
	unsigned long mask;
};

/* The Go runtime's handler, which is the same for all of them. */
static void (*go_handler)(int, siginfo_t *, void *);

static void pass_faults(int sig, siginfo_t *info, void *thread)
{
	if (info->si_code > 0)
		go_handler(sig, info, thread);
}

int faults_guard(void)
{
	static const int faults[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP };
	struct kernel_action action;
	size_t i;

	for (i = 0; i < sizeof(faults) / sizeof(*faults); i++) {
		if (syscall(SYS_rt_sigaction, faults[i], NULL, &action, sizeof(action.mask)) < 0)
			return -1;
		go_handler = action.handler;
		action.handler = pass_faults;
		if (syscall(SYS_rt_sigaction, faults[i], &action, NULL, sizeof(action.mask)) < 0)
			return -1;
	}
	return 0;
}
